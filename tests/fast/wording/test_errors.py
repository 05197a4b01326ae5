"""Errors of drivers, boot configuration, PXE filter, hooks, rules and searches: the exception's message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from ferroscope.bmc.drivers import DriverOptions, Limits, load_drivers
from ferroscope.bmc.ipmi.info import read as read_ipmi
from ferroscope.bmc.redfish.info import read as read_redfish
from ferroscope.boot_config.dnsmasq import PoolError, parse
from ferroscope.config.errors import StartError
from ferroscope.config.options import InspectorSettings, PxeFilterSettings, Settings
from ferroscope.config.plugins import PluginError
from ferroscope.contracts.errors import BmcError
from ferroscope.core.boot import callback_url
from ferroscope.core.delivery import IllegalEventError, advance
from ferroscope.core.model import Rule
from ferroscope.core.states import Event, State
from ferroscope.hardware.query import QueryError
from ferroscope.hardware.query import parse as parse_query
from ferroscope.hooks.base import HookSetupError
from ferroscope.hooks.loader import load as load_hooks
from ferroscope.hooks.root_device import HintError, Hints
from ferroscope.pxe_filter import checks
from ferroscope.remote.addresses import Networks
from ferroscope.rules.data import InvalidRuleError
from ferroscope.rules.engine import compile_rule
from tests.fast.wording.table import wrong
from tests.support import misses


def _raised(call: Callable[[], object]) -> Callable[[], str]:
    def provoke() -> str:
        with pytest.raises(
            (
                BmcError, PluginError, HintError, HookSetupError, IllegalEventError, InvalidRuleError, PoolError,
                QueryError, StartError, ValueError,
            )
        ) as caught:  # fmt: skip
            call()
        return str(caught.value)

    return provoke


def _pxe_filter(**options: Any) -> Callable[[], str]:
    return _raised(lambda: checks.check(Settings(pxe_filter=PxeFilterSettings(**options))))


ERRORS: Final[tuple[tuple[str, Callable[[], str], str], ...]] = (
    (
        "invalid callback URL",
        _raised(lambda: callback_url("192.0.2.1:6385")),
        "invalid URL '192.0.2.1:6385': expected http://HOST[:PORT] or https://HOST[:PORT]",
    ),
    (
        "illegal event",
        _raised(lambda: advance(State.PROCESSING, Event.INSPECT)),
        "cannot inspect while the inspection is processing; allowed: continue, timeout, abort, fail, delete",
    ),
    (
        "illegal event after a failure",
        _raised(lambda: advance(State.ERROR, Event.FINISH)),
        "cannot finish after the inspection has failed; allowed: inspect, reapply, enroll, delete, verify, set-power, "
        "set-boot-device, attach-vmedia, detach-vmedia, set-password",
    ),
    (
        "unknown driver",
        _raised(lambda: load_drivers(["nope"], DriverOptions(), [])),
        "[drivers] enabled has the unknown driver 'nope'",
    ),
    (
        "Redfish address missing",
        _raised(lambda: read_redfish({})),
        "redfish_address is missing in driver_info; set it to the URL of the Redfish service",
    ),
    (
        "Redfish address without a scheme that is supported",
        _raised(lambda: read_redfish({"redfish_address": "ftp://192.0.2.1"})),
        "invalid URL in redfish_address: expected https://HOST[:PORT] or http://HOST[:PORT]",
    ),
    (
        "Redfish password over HTTP",
        _raised(
            lambda: read_redfish(
                {"redfish_address": "http://192.0.2.1", "redfish_username": "u", "redfish_password": "long enough"}
            )
        ),
        "redfish_address uses http, which would send redfish_password unencrypted; use https, or set [drivers] "
        "allow_http_passwords = true",
    ),
    (
        "BMC in a network that is not allowed",
        _raised(
            lambda: read_redfish({"redfish_address": "https://192.0.2.1"}, Limits(networks=Networks(["10.0.0.0/8"])))
        ),
        "BMC 192.0.2.1 is not in any of the networks in [drivers] bmc_networks",
    ),
    (
        "IPMI address missing",
        _raised(lambda: read_ipmi({})),
        "ipmi_address is missing in driver_info; set it to the IP address or host name of the BMC",
    ),
    (
        "range of addresses",
        _raised(lambda: parse("10.0.0.50", hosts=1)),
        "invalid range '10.0.0.50': expected FIRST-LAST, such as 10.0.0.50-10.0.0.229 "
        "('' does not appear to be an IPv4 or IPv6 address)",
    ),
    (
        "no interfaces for the PXE filter",
        _pxe_filter(),
        "[pxe_filter] interfaces is empty; set it to the interfaces on which machines boot",
    ),
    (
        "unknown backend of the PXE filter",
        _pxe_filter(interfaces=("eth1",), backends=("nftable",)),
        "[pxe_filter] backends has the unknown backend 'nftable'; available: nftables, iptables, dnsmasq, noop",
    ),
    (
        "order of hooks",
        _raised(lambda: load_hooks(InspectorSettings(hooks=("ports", "validate-interfaces")))),
        "[inspector] hooks = ports,validate-interfaces: ports depends on validate-interfaces: move "
        "validate-interfaces before ports",
    ),
    (
        "size in a root device hint",
        _raised(lambda: Hints({"size": "large"})),
        "the hint size must be a whole number of GiB greater than 0, not large",
    ),
    (
        "missing argument of an action",
        _raised(lambda: compile_rule(Rule(uuid="r1", actions=[{"op": "fail", "args": {}}]))),
        "actions[0]: args.msg is missing",
    ),
    (
        "unknown field in a search",
        _raised(lambda: parse_query("memry > 3")),
        "unknown field memry; did you mean memory, memory_mb, memory_gb? (at character 1)",
    ),
    (
        "unit in a search",
        _raised(lambda: parse_query("memory >= 3i")),
        "unknown unit in 3i (at character 11)",
    ),
)


def test_errors() -> None:
    misses.none(wrong(ERRORS))
