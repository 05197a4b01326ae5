"""Logins to Redfish services, the sessions that they open, and the password of the account.

A session is opened once, not for each call. BMCs have as few as four sessions, so each one is deleted, whatever address
its ``Location`` has. Where all are in use, the password is sent with each request instead, unless
``redfish_auth_type`` is ``session``.

While a password is changed, the session with the old one stays open until a new login has proven the new one. If that
fails, this session writes the old password again. A BMC may take a moment until it knows what it has accepted
(dell/iDRAC-Redfish-Scripting#126), but it also locks accounts, so the new password is sent twice at most. Source:
DSP0266, ManagerAccount of DSP8010; DMTF/Redfishtool#107 (PasswordChangeRequired).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sushy import auth as sushy_auth
from sushy import exceptions as sushy
from sushy import main as sushy_main

from ferroscope.bmc.redfish.failures import InvalidAnswerError, is_rejected_login, is_temporary, sessions_are_exhausted
from ferroscope.bmc.redfish.resources import Connector, Lenient, Reader, created_path, page_members, path_of
from ferroscope.bmc.redfish.system import check_machine, find_system
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import StopFlag
from ferroscope.core.model import Document, Node
from ferroscope.hardware import machine_identity
from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope.remote.deadline import Deadline, current
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import Reason
from ferroscope_client.hardware.readings import mapping

if TYPE_CHECKING:
    from ferroscope.bmc.redfish.driver import RedfishAccess

# The least recently used client is closed first.
_MAX_CLIENTS: Final = 256
LOGOUT_TIMEOUT_SECONDS: Final = 2.0
# How often a login that is refused for a while is tried before the password is sent with each request.
_MAX_REFUSED_LOGINS: Final = 2
# Seconds before each login with a new password.
_PAUSE_SECONDS: Final = (0.0, 5.0)
# iDRACs have 16 accounts, and OpenBMC 15.
_MAX_ACCOUNTS: Final = 64


# sushy's log messages duplicate our errors, and may contain what a BMC echoes, such as a password.
logging.getLogger("sushy").setLevel(logging.CRITICAL + 1)


class Root(Lenient, sushy_main.Sushy):  # type: ignore[misc]
    """The service root."""

    def _parse_attributes(self, json_doc: Document) -> Document:
        super()._parse_attributes(json_doc)
        version = mapping(json_doc).get("RedfishVersion")
        self.redfish_version = version if isinstance(version, str) else None
        return {}


class Login(sushy_auth.AuthBase):  # type: ignore[misc]
    """One login, as ``access`` demands it. ``opened``: the service has opened a session, so the password is right.

    ``refusals`` has the logins of earlier tries that were refused for a while. None: the login sends a wrong password
    once only, and sends it with each request only if the service has no sessions.
    """

    _connector: Any
    _root_resource: Any

    def __init__(self, access: RedfishAccess, refusals: list[Exception] | None, kind: str = "") -> None:
        super().__init__(access.username, access.password)
        self._kind = kind or access.auth_type
        self._refusals = refusals
        self._session = ""
        self.opened = False

    def _do_authenticate(self) -> None:
        if self._username is None:
            return
        if self._kind != "basic":
            try:
                self._open_session()
            except (sushy.ConnectionError, InvalidAnswerError):
                raise
            except sushy.SushyError as exc:
                if self._kind == "session" or self._is_final(exc):
                    raise
            else:
                return
        current().seconds_left()
        self._connector.set_http_basic_auth(self._username, self._password)

    def _is_final(self, refusal: Exception) -> bool:
        """Whether the password must not be sent with each request now. 403 may also be: the account must change it."""
        is_busy = is_temporary(refusal) and not sessions_are_exhausted(refusal)
        if self._refusals is None:
            return is_busy or is_rejected_login(refusal)
        self._refusals += [refusal] * is_busy
        return is_busy and len(self._refusals) < _MAX_REFUSED_LOGINS

    def _open_session(self) -> None:
        root = mapping(self._root_resource.json)
        path = mapping(mapping(root.get("Links")).get("Sessions")).get("@odata.id")
        if not isinstance(path, str) or not path:
            service = mapping(root.get("SessionService")).get("@odata.id")
            path = f"{str(service or f'{self._root_resource.path}SessionService').rstrip('/')}/Sessions"
        self._connector._sessions_uri = path  # sushy must not log in because a login is refused
        answer = self._connector.post(path, data={"UserName": self._username, "Password": self._password})
        self._session = created_path(answer)
        if not (token := answer.headers.get("X-Auth-Token")):
            self.close()
            raise sushy.MissingXAuthToken(method="POST", url=path, response=answer)
        self._connector.set_http_session_auth(token)
        self.opened = True

    def can_refresh_session(self) -> bool:
        return False

    def close(self) -> None:
        """Delete the session."""
        session, self._session = self._session, ""
        if session:
            self._connector.delete(session)


class Client:
    """One service, used by one thread at a time. ``fresh``: no call has succeeded with it yet.

    ``known_systems``: the systems that were read from it, also in earlier sessions. ``once``: see ``Login``.
    """

    def __init__(self, access: RedfishAccess, allowed: Networks, *, once: bool = False) -> None:
        self._access = access
        self._allowed = allowed
        self._lock = threading.Lock()
        self._root: Any = None
        self._refusals: list[Exception] | None = None if once else []
        self.fresh = True
        self.known_systems: set[str | None] = set()

    def reserve(self) -> bool:
        """Reserve it for the next ``use``; return False if another thread has it."""
        return self._lock.acquire(blocking=False)

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Yield the service root to the thread that has reserved this client, and free it."""
        try:
            if self._root is None:
                self._root = self._open()
            yield self._root
            self.fresh = False
        finally:
            if self._root is not None:
                self._root._conn.forget()
            self._lock.release()

    @property
    def has_session(self) -> bool:
        """Whether the service has opened a session for it: then the password is right, whatever else is refused."""
        return bool(getattr(getattr(self._root, "_auth", None), "opened", False))

    def _open(self) -> Any:
        access, connector = self._access, Connector(self._access, self._allowed)
        read = partial(Root, access.url, root_prefix=access.root, verify=access.verify, connector=connector)
        try:
            try:
                return read(auth=Login(access, self._refusals))
            except sushy.AccessError:
                if self._refusals is None or access.username is None or access.auth_type == "session":
                    raise
                # The password was not sent yet: some services do not even show the root without it
                # (DMTF/python-redfish-library#132, #165, karmab/kcli#678).
                connector.set_http_basic_auth(access.username, access.password)
                return read(auth=Login(access, self._refusals, "basic"))
        except BaseException:
            connector.close()
            raise

    def close_in_background(self) -> threading.Thread:
        """Log out in a separate thread, which is returned: the call that ends a session must not wait for it."""
        thread = threading.Thread(target=self.close, name="redfish log-out", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Log out, within at most two seconds, and forget the session."""
        with self._lock:
            root, self._root = self._root, None
        if root is None:
            return
        auth, root._auth = root._auth, None  # otherwise its destructor would log out at any time
        with contextlib.suppress(Exception), Deadline(LOGOUT_TIMEOUT_SECONDS):
            auth.close()
        root._conn.close()


class Clients:
    """The clients of a process, by access; ``allowed`` are the networks in which BMCs may be.

    There are as many for one service as there were calls at the same time: for different systems at one address.
    """

    def __init__(self, *, allowed: Networks = ANYWHERE) -> None:
        self._allowed = allowed
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[RedfishAccess, int], Client] = OrderedDict()

    def get(self, access: RedfishAccess) -> Client:
        """Reserve a free client for ``access``: an existing one, or a new one."""
        service = msgspec.structs.replace(access, system=None)
        with self._lock:
            for number in itertools.count():
                key = service, number
                client = self._kept.get(key) or self._kept.setdefault(key, Client(access, self._allowed))
                if client.reserve():
                    break
            if number and (service, 0) in self._kept:
                client.known_systems = self._kept[service, 0].known_systems
            self._kept.move_to_end(key)
            surplus = [self._kept.popitem(last=False)[1] for _ in range(len(self._kept) - _MAX_CLIENTS)]
        for surplus_client in surplus:
            surplus_client.close_in_background()
        return client

    def drop(self, access: RedfishAccess, client: Client) -> None:
        """Replace ``client``, whose session has ended; log out nevertheless, in case the BMC was wrong."""
        fresh = Client(access, self._allowed)
        fresh.known_systems = client.known_systems
        with self._lock:
            for key in [key for key, kept in self._kept.items() if kept is client]:
                self._kept[key] = fresh
        client.close_in_background()

    def close(self) -> None:
        """Log out of all services, all at once: the process may end after this, and their sessions would stay."""
        with self._lock:
            kept = list(self._kept.values())
            self._kept.clear()
        end = time.monotonic() + LOGOUT_TIMEOUT_SECONDS
        for thread in [client.close_in_background() for client in kept]:
            thread.join(max(0.0, end - time.monotonic()))


class Account(msgspec.Struct, frozen=True):
    """The account at ``path``. ``service``: the AccountService, empty if it cannot be read with this account."""

    path: str
    document: Document
    service: Document


class PasswordProof(msgspec.Struct, frozen=True):
    """Proves and changes passwords with new connections only; ``allowed``: the networks in which BMCs may be."""

    access: RedfishAccess
    allowed: Networks
    node: Node

    @contextlib.contextmanager
    def _log_in(self) -> Iterator[tuple[Any, bool]]:
        """Yield the service root, and whether a session has proven the password."""
        client = Client(self.access, self.allowed, once=True)
        client.reserve()
        try:
            with client.use() as root:
                self._check_machine(root)
                yield root, client.has_session
        finally:
            client.close_in_background()

    def _check_machine(self, root: Any) -> None:
        """Raise ``BmcError`` if this is the BMC of another machine, whose password is none of this node's business."""
        if machine_identity.behind_bmc(self.node) is None:
            return
        try:
            system = find_system(root, self.access)
        except (sushy.AccessError, BmcError):
            if root._conn.status != HTTPStatus.FORBIDDEN:
                raise
            return  # an account that has to change its password may read nothing else
        check_machine(system, self.access, self.node)

    def prove(self) -> None:
        """Log in. Where the service has no sessions, read the account: that cannot be done without its password."""
        with self._log_in() as (root, is_proven):
            if not is_proven:
                _find_account(root, self.access)

    def change(self, new: RedfishAccess, stop: StopFlag) -> None:
        """Give the account the password of ``new``, and log in with it; otherwise write the old one again."""
        with self._log_in() as (root, _):
            account = _find_account(root, self.access)
            _check_length(account.service, new)
            _write_password(root._conn, account, self.access, new.password)
            if msgspec.structs.replace(self, access=new)._accepts(account.service, stop):
                return
            with contextlib.suppress(sushy.SushyError):
                _write_password(root._conn, account, new, self.access.password)
        try:
            self.prove()
        except sushy.AccessError as exc:
            if not is_rejected_login(exc):
                raise
            message = f"the BMC at {new.url} has accepted the new password, and now rejects it and the old one"
            raise BmcError(message, transient=False, reason=Reason.BMC_PASSWORD_UNCLEAR) from None
        message = f"the BMC at {new.url} has accepted the new password, but no login with it; it has the old one again"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)

    def _accepts(self, service: Document, stop: StopFlag) -> bool:
        """Whether the BMC accepts the password, after a moment at the latest."""
        threshold = service.get("AccountLockoutThreshold")
        tries = 1 if isinstance(threshold, int) and 0 < threshold <= len(_PAUSE_SECONDS) else len(_PAUSE_SECONDS)
        for pause in _PAUSE_SECONDS[:tries]:
            if pause and (current().remaining() <= pause or stop.wait(pause)):
                break
            try:
                self.prove()
            except sushy.AccessError as exc:
                if not is_rejected_login(exc):
                    raise
            else:
                return True
        return False


def _find_account(root: Any, access: RedfishAccess) -> Account:
    """Return the account of the user; ``BmcError`` if there is none, sushy's exceptions."""
    connector = root._conn
    try:
        service = _read(connector, path_of(mapping(root.json).get("AccountService")) or f"{root.path}AccountService")
        collection = _read(connector, path_of(service.get("Accounts")))
    except sushy.AccessError as exc:
        # Such an account may only read and change itself, and the error says where it is.
        if not (path := _account_to_change(exc)):
            raise
        return Account(path, {}, {})
    for document in _accounts(connector, collection, access):
        if document.get("UserName") == access.username and (path := path_of(document)):
            return Account(path, document, service)
    message = f"the BMC at {access.url} lists no account with the user name of redfish_username"
    raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _accounts(connector: Any, collection: Document, access: RedfishAccess) -> Iterator[Document]:
    """Yield the accounts; first the one that is named like the user, as on OpenBMC."""
    reader = Reader(connector, patient=True)
    pages = reader.pages(collection, path_of(collection))
    links = [link for page in pages for link in page_members(page)][:_MAX_ACCOUNTS]
    links.sort(key=lambda link: path_of(link).rpartition("/")[2] != access.username)
    yield from reader.resources(links, _MAX_ACCOUNTS)


def _read(connector: Any, path: str) -> Document:
    return {"@odata.id": path} | mapping(json_safety.decode(connector.get(path=path).content))


def _account_to_change(error: sushy.AccessError) -> str:
    """Return the path of the account whose password must be changed first, "" if the error does not say that."""
    for detail in getattr(error, "extended_info", None) or ():
        message = mapping(detail)
        if "PasswordChangeRequired" in str(message.get("MessageId")):
            arguments = message.get("MessageArgs")
            return path_of(arguments[0]) if isinstance(arguments, list) and arguments else ""
    return ""


def _check_length(service: Document, new: RedfishAccess) -> None:
    minimum, maximum, length = service.get("MinPasswordLength"), service.get("MaxPasswordLength"), len(new.password)
    is_short = isinstance(minimum, int) and length < minimum
    is_long = isinstance(maximum, int) and 0 < maximum < length
    if is_short or is_long:
        limits = f"{minimum} to {maximum} characters only; the new one has {length}"
        message = f"the BMC at {new.url} takes passwords of {limits}"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _write_password(connector: Any, account: Account, present: RedfishAccess, password: str) -> None:
    """Write the password; sushy's exceptions."""
    action = mapping(mapping(account.document.get("Actions")).get("#ManagerAccount.ChangePassword"))
    if account.service.get("RequireChangePasswordAction") is True and (target := path_of(action.get("target"))):
        connector._op("POST", target, data={"SessionAccountPassword": present.password, "NewPassword": password})
        return
    connector.patch(account.path, data={"Password": password}, etag=connector.tag(account.path))
