"""BMC drivers: what they are built with, what they share, and loading them by their entry points.

``ferroscope.contracts.bmc`` is the contract, for built-in and third-party drivers alike. Drivers never import each
other, and nothing else imports a driver. Those of ``[drivers] enabled`` are loaded once, when a process starts. Errors
in the list or in a driver are reported then, so that no node ever has a driver that is missing.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from inspect import isfunction
from typing import Final

import msgspec

from ferroscope.config.plugins import Plugins
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.remote import IronicClient
from ferroscope.contracts.store import StopFlag
from ferroscope.core.model import Document
from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope_client.core.reasons import Reason
from ferroscope_client.installed import EntryPoint


class BmcLimits(msgspec.Struct, frozen=True):
    """Operators' limits for all BMCs: ``[drivers]`` ``bmc_networks``, ``allow_http_passwords``, ``ca_directory``."""

    networks: Networks = ANYWHERE
    http_passwords: bool = False
    ca_directory: str = "/etc/ferroscope/ca"


# Attempts within one call, for a BMC that is busy for a moment. All of them end by the call's deadline.
COMMAND_TRIES: Final = 4


class DriverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry point of ``ferroscope.bmc`` is called with; the time-outs are those of ``[drivers]``.

    ``command_timeout``: seconds for a call, retries included, or for each request of a call that makes progress;
    ``inventory_timeout``: seconds for slow calls (``OutOfBand``, ``RamdiskBoot``); ``longest_call``: for any;
    ``command_tries``: the maximum of tries within one call. ``stop`` is set when the
    process is stopping; every wait must end then. ``ironic``: the client of the attached one.
    """

    command_timeout: float = 10.0
    command_tries: int = COMMAND_TRIES
    inventory_timeout: float = 60.0
    limits: BmcLimits = BmcLimits()
    stop: StopFlag = msgspec.field(default_factory=threading.Event)
    ironic: IronicClient | None = None

    @property
    def longest_call(self) -> float:
        return max(self.command_timeout, self.inventory_timeout)


def ca_path(value: str, limits: BmcLimits) -> str:
    """Return the path of a CA file or directory, which must be below ``ca_directory``; it may be relative to that.

    Other paths are rejected unseen: the error must not reveal whether a file exists on the workers.
    """
    path = posixpath.normpath(posixpath.join(limits.ca_directory, value))
    if "\0" in value or len(value) > 1024 or posixpath.commonpath([path, limits.ca_directory]) != limits.ca_directory:
        message = f"a CA file or directory must be below [drivers] ca_directory ({limits.ca_directory})"
        raise BmcError(message, transient=False, reason=Reason.BMC_CA_UNUSABLE)
    return path


def wrong(message: str) -> BmcError:
    """Return the error (permanent) for an invalid ``driver_info``."""
    return BmcError(message, transient=False, reason=Reason.DRIVER_INFO_INVALID)


def text_field(info: Document, name: str, max_characters: int) -> str | None:
    """Return a text of ``driver_info``, None if it is not set; ``BmcError`` (permanent) if it is invalid."""
    value = info.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # YAML reads a password of digits as a number
    if not isinstance(value, str) or len(value) > max_characters or "\0" in value:
        raise wrong(f"{name} must be a string of at most {max_characters} characters")
    return value


GROUP: Final = "ferroscope.bmc"
_CONTRACT: Final = tuple(name for name, member in vars(Bmc).items() if isfunction(member) and not name.startswith("_"))


def load_drivers(
    names: Iterable[str], options: DriverOptions, points: Iterable[EntryPoint] | None = None
) -> dict[str, Bmc]:
    """Return the drivers with these names; ``PluginError`` if one cannot be loaded."""
    plugins = Plugins("driver", "[drivers] enabled", entry_points(group=GROUP) if points is None else points)
    return {name: plugins.build(name, options, _missing_members) for name in dict.fromkeys(names)}


def _missing_members(driver: Bmc) -> str:
    missing = [name for name in _CONTRACT if not callable(getattr(driver, name, None))]
    if not isinstance(getattr(driver, "properties", None), Mapping):
        missing.append("properties")
    return f"{', '.join(missing)} of ferroscope.contracts.bmc.Bmc" if missing else ""
