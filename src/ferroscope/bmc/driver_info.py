"""How drivers say what is wrong with a node's ``driver_info``: in one way, with one reason. Pure."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Callable

from ferroscope.bmc.options import Limits
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason


def check_place(host: str, limits: Limits) -> None:
    """Refuse an address outside of the networks that are allowed; a name is looked at when it is connected to."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if host not in limits.networks:
        raise not_allowed(host)


def not_allowed(host: str) -> BmcError:
    """Return the error (permanent) for a BMC that is where none may be."""
    message = f"the BMC {host[:255]} is in none of the networks in [drivers] bmc_networks"
    return BmcError(message, transient=False, reason=Reason.BMC_NOT_ALLOWED)


def ca_path(value: str, limits: Limits) -> str:
    """Return the path of a CA file or directory; it must be below the directory for them, and may be relative to it.

    What lies elsewhere on the workers is nobody's business: not even whether it exists.
    """
    path = posixpath.normpath(posixpath.join(limits.ca_directory, value))
    if "\0" in value or len(value) > 1024 or posixpath.commonpath([path, limits.ca_directory]) != limits.ca_directory:
        raise wrong(
            f"a CA file or directory must be below [drivers] ca_directory, {limits.ca_directory}: give its name there"
        )
    return path


def wrong(message: str) -> BmcError:
    """Return the error (permanent) for a ``driver_info`` that makes no sense."""
    return BmcError(message, transient=False, reason=Reason.DRIVER_INFO_INVALID)


def problem(read: Callable[[Document], object], info: Document) -> str | None:
    """Return what a driver's ``read`` does not like of ``info``, in a sentence, or None."""
    try:
        read(info)
    except BmcError as exc:
        return str(exc)
    return None
