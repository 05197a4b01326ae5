"""The first command that ``explain`` prints, run as by a person: the node works, or the hint says who has to help."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from ferroscope.bmc.drivers import DriverOptions, Limits
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.core import bmc_access
from ferroscope.core.reasons import Reason
from ferroscope.remote.addresses import Networks
from tests.api import working
from tests.api.service import Service
from tests.support.certificates import DAY, Authority
from tests.support.processes import free_port
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors import ALL
from tests.support.vendors import service as vendors
from tests.support.vendors.hosting import Answer, hosted
from tests.system.cli.console import Shell

# The addresses of BMCs: the simulated ones are on this host.
NETWORKS: Final = Networks(["127.0.0.0/8"], guarded=True)


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[RedfishBmc]:
    limits = Limits(networks=NETWORKS, ca_directory=str(tmp_path))
    with closing(RedfishBmc(DriverOptions(limits=limits))) as driver:
        yield driver


@pytest.fixture
def service(sqlite_url: str, listener: tuple[Any, str], bmc: RedfishBmc) -> Iterator[Service]:
    served = Service(sqlite_url, drivers={"redfish": bmc})
    listener[0].app = served.app
    yield served
    listener[0].app = None
    served.close()


class WebPage:
    """What answers at an address that is not that of a BMC."""

    def answer(self, _method: str, _path: str, _headers: Any, _body: Any) -> Answer:
        return Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})


def try_bmc(service: Service, bmc: RedfishBmc) -> None:
    answer = service.bare_metal.post("/v1/nodes/n/bmc/trial")
    assert answer.status_code == 202, answer.text
    working.work(service, "n", working.worker(service, {"redfish": bmc}))


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        (Reason.BMC_CREDENTIALS, {"redfish_password": "of the last owner"}),
        (Reason.BMC_CERTIFICATE, {"redfish_verify_ca": True}),
        (Reason.BMC_CERTIFICATE_HOST, {"redfish_address": "https://localhost:{port}"}),
        (Reason.BMC_CA_UNUSABLE, {"redfish_verify_ca": "/etc/ssl/site.pem"}),
        (Reason.BMC_CA_UNUSABLE, {"redfish_verify_ca": "of-another-site.pem"}),
        (Reason.BMC_CONNECTION_REFUSED, {"redfish_address": "https://127.0.0.1:{closed}"}),
        (Reason.BMC_NAME_UNKNOWN, {"redfish_address": "https://bmc.invalid:{port}"}),
        (Reason.BMC_NOT_ALLOWED, {"redfish_address": "https://192.0.2.7"}),
        (Reason.BMC_NOT_REDFISH, {"redfish_address": "{web}"}),
        (Reason.BMC_UNCONFIRMED, {}),
    ],
)
def test_the_first_command_that_is_printed_makes_the_node_work(
    shell: Shell, service: Service, bmc: RedfishBmc, tmp_path: Path, reason: Reason, wrong: dict[str, Any]
) -> None:
    authority = Authority(tmp_path, "bmc-ca")
    pair = authority.issue("bmc", hosts=("127.0.0.1",))
    files = (pair.certificate, pair.key)
    with vendors.serving(ALL[0], files) as running, hosted(WebPage(), files) as web:
        port = running.url.rpartition(":")[2]
        right = {"redfish_address": running.url, "redfish_username": USER, "redfish_password": PASSWORD}
        right |= {"redfish_verify_ca": "bmc-ca.pem", "redfish_system_id": running.system}
        place = {"port": port, "closed": free_port(), "web": web}
        planted = {key: value.format(**place) if isinstance(value, str) else value for key, value in wrong.items()}
        service.enrol(name="n", driver="redfish", driver_info=right | planted)
        if reason is Reason.BMC_UNCONFIRMED:
            bmc_access.confirm(node := service.node("n"), by_operator=False)
            service.alter("n", internal=node.internal)
        try_bmc(service, bmc)
        explained = shell.json("explain", "n")
        assert explained["reason"] == reason, explained
        first, *_, last = explained["commands"]
        edited = first.replace("<new address>", running.url)  # only a person knows the right one
        shell(*shlex.split(edited)[1:], check=0, stdin=PASSWORD)
        assert last == "ferroscope node manage n --wait"
        shell(*shlex.split(last.removesuffix(" --wait"))[1:], check=0)
        working.work(service, "n", working.worker(service, {"redfish": bmc}))
        node = service.node("n")
        assert (node.provision_state, node.last_error) == ("manageable", None)


def test_of_a_certificate_that_has_expired_the_hint_says_that_a_person_is_needed(
    shell: Shell, service: Service, bmc: RedfishBmc, tmp_path: Path
) -> None:
    pair = Authority(tmp_path, "bmc-ca").issue("bmc", hosts=("127.0.0.1",), ends=-DAY)
    with vendors.serving(ALL[0], (pair.certificate, pair.key)) as running:
        info = {"redfish_address": running.url, "redfish_username": USER, "redfish_password": PASSWORD}
        service.enrol(name="n", driver="redfish", driver_info=info | {"redfish_verify_ca": "bmc-ca.pem"})
        try_bmc(service, bmc)
        explained = shell.json("explain", "n")
        assert explained["reason"] == Reason.BMC_CERTIFICATE_EXPIRED
        assert explained["hint"].startswith("Renew the certificate on the BMC")
        assert explained["commands"] == ["ferroscope node manage n --wait"]
