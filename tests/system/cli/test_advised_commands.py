"""What ``explain`` advises, done as by a person: the node works afterwards, or the hint says what a person has to do.

Each reason is planted with default settings. A hint that needs no person is true if the first command mends the node,
and a command that tries again ends the error. After any other, a person mends what the hint names, and the commands
lead to a node that works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.remote.addresses import Networks
from ferroscope_client.core.explanations import HINTS
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from tests.api.service import Service
from tests.support import misses
from tests.support.certificates import Authority
from tests.system.cli import planted_causes as cause
from tests.system.cli.console import Shell
from tests.system.cli.planted_causes import Site

NEEDS_PERSON: Final = "Manual step: "
# The addresses of BMCs: the simulated ones are on this host.
NETWORKS: Final = Networks(["127.0.0.0/8"], guarded=True)
# A command of a host, which tests of its own run.
OF_HOST: Final = "ferroscope doctor"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "bmc-ca")


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[RedfishBmc]:
    limits = BmcLimits(networks=NETWORKS, ca_directory=str(tmp_path))
    with closing(RedfishBmc(DriverOptions(limits=limits))) as driver:
        yield driver


@pytest.fixture
def service(sqlite_url: str, listener: tuple[Any, str], bmc: RedfishBmc) -> Iterator[Service]:
    served = Service(sqlite_url, drivers={"redfish": bmc, "fake-hardware": FakeBmc()})
    listener[0].app = served.app
    yield served
    listener[0].app = None
    served.close()


@pytest.fixture
def site(shell: Shell, service: Service, bmc: RedfishBmc, authority: Authority) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(shell, service, bmc, authority, stack)


CASES: Final[list[tuple[Reason, Callable[[Site], None]]]] = [
    (Reason.BMC_CREDENTIALS, partial(cause.misname_bmc, redfish_password="of the last owner")),
    (Reason.BMC_CERTIFICATE, partial(cause.misname_bmc, redfish_verify_ca=True)),
    (Reason.BMC_CERTIFICATE_HOST, partial(cause.misname_bmc, redfish_address="https://localhost:{port}")),
    (Reason.BMC_CERTIFICATE_EXPIRED, cause.let_certificate_expire),
    (Reason.BMC_CA_UNUSABLE, partial(cause.misname_bmc, redfish_verify_ca="/etc/ssl/site.pem")),
    (Reason.BMC_CA_UNUSABLE, partial(cause.misname_bmc, redfish_verify_ca="of-another-site.pem")),
    (Reason.BMC_CONNECTION_REFUSED, partial(cause.misname_bmc, redfish_address="https://127.0.0.1:{closed}")),
    (Reason.BMC_UNREACHABLE, partial(cause.misname_bmc, redfish_address="https://127.0.0.1:{hangs_up}")),
    (Reason.BMC_NAME_UNKNOWN, partial(cause.misname_bmc, redfish_address="https://bmc.invalid:{port}")),
    (Reason.BMC_NOT_ALLOWED, partial(cause.misname_bmc, redfish_address="https://192.0.2.7")),
    (Reason.BMC_NOT_REDFISH, partial(cause.misname_bmc, redfish_address="{web}")),
    (Reason.BMC_UNCONFIRMED, cause.leave_unconfirmed),
    (Reason.BMC_SYSTEM_UNCLEAR, cause.name_no_system),
    (Reason.BMC_OTHER_MACHINE, cause.swap_bmcs),
    (Reason.BMC_NOT_READY, partial(cause.answer_badly, status=503, message="ServiceTemporarilyUnavailable")),
    (Reason.BMC_BUSY, partial(cause.answer_badly, status=503, message="SessionLimitExceeded")),
    (Reason.BMC_REFUSED, partial(cause.answer_badly, status=400, message="GeneralError")),
    (Reason.BMC_PRIVILEGES, partial(cause.answer_badly, status=403, message="InsufficientPrivilege")),
    (Reason.DRIVER_INFO_INVALID, partial(cause.misname_bmc, redfish_address=None)),
    (Reason.REFERENCE_UNRESOLVED, partial(cause.misname_bmc, redfish_password="secret://vault/bmc")),
    (Reason.DRIVER_UNKNOWN, cause.lose_driver),
    (Reason.RAMDISK_ERROR, partial(cause.call_with, error="no lshw", logs="bG9n")),
    (Reason.INVALID_INVENTORY, partial(cause.call_with, boot_interface="01-52-54-00-00-00-99")),
    (Reason.RULE_FAILED, partial(cause.break_by_rule, op="set-attribute", path="extra/x", value="{inventory[nosuch]}")),
    (Reason.REFUSED_BY_RULE, partial(cause.break_by_rule, op="fail", msg="not here")),
    (Reason.NAME_TAKEN, partial(cause.break_by_rule, op="set-attribute", path="name", value="taken")),
    (Reason.TIMEOUT, cause.time_out),
    (Reason.TIMEOUT, partial(cause.time_out, sends=slice(None), has_port=False)),
    (Reason.CALLBACK_REFUSED, partial(cause.time_out, sends=slice(-1))),
    (Reason.ABORTED, cause.abort),
    (Reason.RESTARTED, cause.restart),
    (Reason.LOOKUP_UNKNOWN, cause.call_unknown),
    (Reason.LOOKUP_NOT_WAITING, cause.call_when_idle),
    (Reason.LOOKUP_AMBIGUOUS, cause.call_as_two),
    (Reason.CALLBACK_INVALID, cause.call_in_part),
    (Reason.CONFLICTING_CALLBACK, cause.call_twice),
    (Reason.DATA_CONTRADICTS, cause.replace_board),
    (Reason.DATA_REJECTED, partial(cause.replace_board, verb="reject")),
    (Reason.DATA_MISSING, cause.lose_data),
    (Reason.BMC_PASSWORD_UNCLEAR, cause.change_password),
    (Reason.THROTTLED, cause.throttle),
    (Reason.STALE_REQUEST, cause.time_out_early),
    (Reason.DECRYPTION_FAILED, cause.lose_secret),
    (Reason.IMPORTED, partial(cause.store_failure, reason=Reason.IMPORTED)),
    (Reason.INTERRUPTED, partial(cause.store_failure, reason=Reason.INTERRUPTED)),
    (Reason.ATTEMPTS_EXHAUSTED, partial(cause.store_failure, reason=Reason.ATTEMPTS_EXHAUSTED)),
    (Reason.NOT_RESTARTED, partial(cause.fail_command, reason=Reason.NOT_RESTARTED)),
    (Reason.POWER_OFF_DISABLED, partial(cause.fail_command, reason=Reason.POWER_OFF_DISABLED)),
]


def test_each_hint_is_tried_or_says_that_a_person_is_needed() -> None:
    tried = {reason for reason, _ in CASES}
    misses.none(
        f"{reason}: {hint}" for reason, hint in HINTS.items() if reason not in tried and NEEDS_PERSON not in hint
    )


@pytest.mark.parametrize(("reason", "plant"), CASES, ids=[reason for reason, _ in CASES])
def test_what_is_advised_leads_to_a_node_that_works(site: Site, reason: Reason, plant: Callable[[Site], None]) -> None:
    plant(site)
    explained = site.shell.json("explain", "n")
    commands = explained["commands"]
    if explained["reason"] != reason:
        commands = site.shell.json("explain", reason)["commands"]
        assert reason is Reason.THROTTLED or f"'reason': '{reason}'" in str(site.list_notes())  # a moment is not noted
    if HINTS[reason].startswith(NEEDS_PERSON):
        site.mend()
    elif commands[0].startswith("ferroscope node set "):
        retries = [command for command in commands if command.split()[1:3] in (["node", "manage"], ["inspect", "n"])]
        commands = [commands[0], *retries[:1]]
    else:
        commands = commands[:1]
    for command in commands:
        if command != OF_HOST:
            site.run(command)
        if site.works:
            break
    node = site.service.node("n")
    assert (node.provision_state, node.last_error) == (Provision.MANAGEABLE, None)
