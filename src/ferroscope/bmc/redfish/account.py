"""The account with which the driver logs in: finding it, and changing its password so that the old one can come back.

The session with the old password stays open until a new login has proven the new one. Where it does not, that session
writes the old password again. A BMC may take a moment until it knows what it has accepted
(dell/iDRAC-Redfish-Scripting#126), but it also locks accounts, so the new password is sent twice at most.

Source: DSP0266, ManagerAccount of DSP8010; DMTF/Redfishtool#107 (PasswordChangeRequired).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import msgspec
from sushy import exceptions as sushy

from ferroscope.bmc.redfish import commands, identity
from ferroscope.bmc.redfish.failures import is_rejected_login
from ferroscope.bmc.redfish.info import Access
from ferroscope.bmc.redfish.login import OneLogin
from ferroscope.bmc.redfish.reader import Reader, page_members, path_of
from ferroscope.bmc.redfish.session import Client
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import StopFlag
from ferroscope.core import json_safety
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.hardware import machine_identity
from ferroscope.hardware.parts import mapping
from ferroscope.remote.addresses import Networks
from ferroscope.remote.deadline import current

# Seconds before each login with the new password.
_PAUSE_SECONDS: Final = (0.0, 5.0)
# iDRACs have 16 accounts, and OpenBMC 15.
_MAX_ACCOUNTS: Final = 64
_CHANGE_REQUIRED: Final = "PasswordChangeRequired"
_ACTION: Final = "#ManagerAccount.ChangePassword"


class Login(msgspec.Struct, frozen=True):
    """How to log in with a new connection; ``allowed``: the networks in which the BMC of the ``node`` may be."""

    access: Access
    allowed: Networks
    node: Node

    def with_password(self, access: Access) -> Login:
        return msgspec.structs.replace(self, access=access)


class Account(msgspec.Struct, frozen=True):
    """The account at ``path``. ``service``: the AccountService, empty if it cannot be read with this account."""

    path: str
    document: Document
    service: Document


@contextlib.contextmanager
def _open_login(login: Login) -> Iterator[tuple[Any, OneLogin]]:
    auth = OneLogin(login.access)
    client = Client(login.access, login.allowed, auth)
    client.reserve()
    try:
        with client.use() as root:
            _check_machine(root, login)
            yield root, auth
    finally:
        client.close_in_background()


def _check_machine(root: Any, login: Login) -> None:
    """Raise ``BmcError`` if this is the BMC of another machine, whose password is none of this node's business."""
    if machine_identity.behind_bmc(login.node) is None:
        return
    try:
        system = commands.system(root, login.access)
    except (sushy.AccessError, BmcError):
        if root._conn.status != HTTPStatus.FORBIDDEN:
            raise
        return  # an account that has to change its password may read nothing else
    identity.check(system, login.access, login.node)


def prove(login: Login) -> None:
    """Log in. Where the service has no sessions, read the account: that cannot be done without its password."""
    with _open_login(login) as (root, auth):
        if not auth.proven:
            find(root, login.access)


def change(login: Login, new: Access, stop: StopFlag) -> None:
    """Give the account the password of ``new``, and log in with it; otherwise write the old one again."""
    with _open_login(login) as (root, _):
        account = find(root, login.access)
        _check_length(account.service, new)
        _write_password(root._conn, account, login.access, new.password)
        if _is_proven(login.with_password(new), account.service, stop):
            return
        with contextlib.suppress(sushy.SushyError):
            _write_password(root._conn, account, new, login.access.password)
    try:
        prove(login)
    except sushy.AccessError as exc:
        if not is_rejected_login(exc):
            raise
        message = f"the BMC at {new.url} has accepted the new password, and now rejects it and the old one"
        raise BmcError(message, transient=False, reason=Reason.BMC_PASSWORD_UNCLEAR) from None
    message = f"the BMC at {new.url} has accepted the new password, but no login with it; it has the old one again"
    raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _is_proven(login: Login, service: Document, stop: StopFlag) -> bool:
    """Whether the BMC accepts the password, after a moment at the latest."""
    threshold = service.get("AccountLockoutThreshold")
    tries = 1 if isinstance(threshold, int) and 0 < threshold <= len(_PAUSE_SECONDS) else len(_PAUSE_SECONDS)
    for pause in _PAUSE_SECONDS[:tries]:
        if pause and (current().remaining() <= pause or stop.wait(pause)):
            break
        try:
            prove(login)
        except sushy.AccessError as exc:
            if not is_rejected_login(exc):
                raise
        else:
            return True
    return False


def find(root: Any, access: Access) -> Account:
    """Return the account of the user; ``BmcError`` if there is none, sushy's exceptions."""
    connector = root._conn
    try:
        service = _read(connector, path_of(mapping(root.json).get("AccountService")) or f"{root.path}AccountService")
        collection = _read(connector, path_of(service.get("Accounts")))
    except sushy.AccessError as exc:
        # All that such an account may do is to read and change itself, and the error says where it is.
        if not (path := _account_to_change(exc)):
            raise
        return Account(path, {}, {})
    documents = [
        document for document in _accounts(connector, collection, access) if document.get("UserName") == access.username
    ]
    for document in documents:
        if path := path_of(document):
            return Account(path, document, service)
    message = f"the BMC at {access.url} lists no account with the user name of redfish_username"
    raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _accounts(connector: Any, collection: Document, access: Access) -> Iterator[Document]:
    """Yield the accounts, up to that of the user; first the one that is named like the user, as on OpenBMC."""
    reader = Reader(connector, patient=True)
    pages = reader.pages(collection, path_of(collection))
    links = [link for page in pages for link in page_members(page)][:_MAX_ACCOUNTS]
    links.sort(key=lambda link: path_of(link).rpartition("/")[2] != access.username)
    for account in reader.resources(links, _MAX_ACCOUNTS):
        yield account
        if account.get("UserName") == access.username:
            return


def _read(connector: Any, path: str) -> Document:
    return {"@odata.id": path} | mapping(json_safety.decode(connector.get(path=path).content))


def _account_to_change(error: sushy.AccessError) -> str:
    """Return the path of the account whose password has to be changed first, "" if the error does not say that."""
    for detail in getattr(error, "extended_info", None) or ():
        message = mapping(detail)
        if _CHANGE_REQUIRED in str(message.get("MessageId")):
            arguments = message.get("MessageArgs")
            return path_of(arguments[0]) if isinstance(arguments, list) and arguments else ""
    return ""


def _check_length(service: Document, new: Access) -> None:
    minimum, maximum, length = service.get("MinPasswordLength"), service.get("MaxPasswordLength"), len(new.password)
    is_short = isinstance(minimum, int) and length < minimum
    is_long = isinstance(maximum, int) and 0 < maximum < length
    if is_short or is_long:
        message = (
            f"the BMC at {new.url} takes passwords of {minimum} to {maximum} characters only; the new one has {length}"
        )
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _write_password(connector: Any, account: Account, present: Access, password: str) -> None:
    """Write the password; sushy's exceptions."""
    action = mapping(mapping(account.document.get("Actions")).get(_ACTION))
    if account.service.get("RequireChangePasswordAction") is True and (target := path_of(action.get("target"))):
        body = {"SessionAccountPassword": present.password, "NewPassword": password}
        connector._op("POST", target, data=body)
        return
    connector.patch(account.path, data={"Password": password}, etag=connector.tag(account.path))
