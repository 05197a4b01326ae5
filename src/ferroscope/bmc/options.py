"""What a driver is built with: the options of ``[drivers]`` that are for all of them."""

from __future__ import annotations

import threading

import msgspec

from ferroscope.contracts.queue import StopFlag
from ferroscope.remote.resolver import ANYWHERE, Networks


class Limits(msgspec.Struct, frozen=True):
    """What operators allow of every BMC: ``[drivers]`` ``bmc_networks``, ``allow_http_passwords``, ``ca_directory``."""

    networks: Networks = ANYWHERE
    http_passwords: bool = False
    ca_directory: str = "/etc/ferroscope/ca"


class DriverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry point of ``ferroscope.bmc`` is called with; names are those of ``[drivers]``.

    ``command_timeout``: seconds that a call may take, retries included; ``inventory_timeout``: those of a call that
    takes a BMC longer (``OutOfBand``, ``RamdiskBoot``); ``command_tries``: how often a BMC is asked at most within one
    call. ``stop`` is set when the process shall end: whatever waits, waits for it.
    """

    command_timeout: float = 10.0
    command_tries: int = 4
    inventory_timeout: float = 60.0
    limits: Limits = Limits()
    stop: StopFlag = msgspec.field(default_factory=threading.Event)
