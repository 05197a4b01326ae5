"""The names of interfaces that a real Ironic with everything enabled accepts for its hardware types, we accept, too."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution
from typing import Any, Final

import pytest

from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import IdracBmc, RedfishBmc
from ferroscope.core.interfaces import KINDS
from tests import ROOT
from tests.api.service import Service
from tests.support.bare_metal import Ironic
from tests.support.bare_metal import ironic as run_ironic

DRIVERS: Final[dict[str, Any]] = {
    "fake-hardware": FakeBmc(),
    "redfish": RedfishBmc(),
    "ipmi": IpmiBmc(),
    "idrac": IdracBmc(),
}
# Of fake hardware: it has no BMC that reports anything; the ramdisk powers nothing on; of another hardware type.
_THEIRS: Final = {
    ("inspect", "fake"),
    ("inspect", "redfish"),
    ("inspect", "idrac-redfish"),
    ("power", "agent"),
    ("management", "intel-ipmitool"),
}


def published() -> dict[str, list[str]]:
    """Return all names of Ironic's interfaces by kind."""
    (path,) = (ROOT / ".ironic-venv").glob("lib/python3*/site-packages/ironic-[0-9]*.dist-info")
    points = Distribution.at(path).entry_points
    return {
        kind: sorted(one.name for one in points.select(group=f"ironic.hardware.interfaces.{kind}")) for kind in KINDS
    }


@pytest.fixture(scope="module")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    lines = [f"enabled_{kind}_interfaces = {','.join(names)}" for kind, names in published().items()]
    everything = "\n".join(["[DEFAULT]", f"enabled_hardware_types = {','.join(DRIVERS)}", *lines, ""])
    with run_ironic(tmp_path_factory.mktemp("everything"), extra=everything) as running:
        yield running


@pytest.fixture
def ours(sqlite_url: str) -> Iterator[Service]:
    service = Service(sqlite_url, drivers=DRIVERS)
    yield service
    service.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_ironic_accepts_is_accepted_and_stored(ironic: Ironic, ours: Service, driver: str) -> None:
    accepted, missing = 0, []
    for kind, names in published().items():
        for name in names:
            body = {"driver": driver, f"{kind}_interface": name}
            status, theirs = ironic.answer("POST", "/v1/nodes", body)
            if status != 201:
                continue
            ironic.call("DELETE", f"/v1/nodes/{theirs['uuid']}")
            accepted += 1
            answer = ours.bare_metal.post("/v1/nodes", body)
            if answer.status_code != 201 or answer.json[f"{kind}_interface"] != name:
                missing.append((kind, name))
    assert accepted > len(KINDS)
    assert set(missing) == (_THEIRS if driver == "fake-hardware" else set())
