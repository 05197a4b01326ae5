"""Ferroscope's inspect interface in a real Ironic: the package is built and installed beside Ironic's own.

Both ask for passwords (http_basic), and Ironic serves TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import bcrypt
import urllib3

from tests import ROOT
from tests.nightly.openstack.ironic.place import Place
from tests.support import source_package
from tests.support.bare_metal import Ironic
from tests.support.bare_metal import ironic as run_ironic
from tests.support.certificates import Authority
from tests.support.processes import free_port, until

_SOURCE: Final = ROOT / "ironic-interface"
_USER, _PASSWORD = "ironic", "pa55-of-the-conductor"
_SETTINGS: Final = """
[DEFAULT]
enabled_hardware_types = fake-hardware,redfish,ferroscope-redfish,ferroscope-ipmi
enabled_boot_interfaces = fake,redfish-virtual-media,pxe
enabled_inspect_interfaces = no-inspect,ferroscope
enabled_management_interfaces = fake,redfish,ipmitool
enabled_power_interfaces = fake,redfish,ipmitool
enabled_vendor_interfaces = no-vendor,fake,redfish,ipmitool
auth_strategy = http_basic
http_basic_auth_user_file = {users}
[api]
enable_ssl_api = true
cert_file = {pair.certificate}
key_file = {pair.key}
[ferroscope]
auth_type = http_basic
username = {user}
password = {password}
endpoint_override = http://127.0.0.1:{port}
status_check_period = 1
outage_timeout = 600
[ipmi]
min_command_interval = 1
"""
_LOGIN: Final = """
auth_type = http_basic
username = {user}
password = {password}
endpoint_override = {url}
cafile = {ca}
"""
_OURS: Final = """
[api]
auth_strategy = http_basic
http_basic_auth_user_file = {users}
"""


def install(directory: Path) -> Path:
    """Build the package from its source and install it; return the directory that has to be in Python's path."""
    return source_package.install(_SOURCE, directory)


@contextmanager
def handing_over(directory: Path, *, workers: int = 1, extra: str = "") -> Iterator[Place]:
    """Run an Ironic whose inspections are Ferroscope's, and the Ferroscope to which it is attached."""
    port, users, theirs = free_port(), directory / "users", directory / "users-of-ironic"
    known = bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    users.write_text(f"{_USER}:{known}:service\noperator:{known}:admin\n")
    theirs.write_text(f"{_USER}:{known}\n")
    authority, credentials = Authority(directory), f"{_USER}:{_PASSWORD}"
    settings = _SETTINGS.format(
        user=_USER, password=_PASSWORD, port=port, users=theirs, pair=authority.issue("ironic.example")
    )
    with (
        run_ironic(
            directory / "ironic",
            extra=settings,
            packages=install(directory),
            headers=urllib3.make_headers(basic_auth=credentials),
            ca=authority.ca,
        ) as ironic,
        Place(
            directory,
            ironic,
            workers=workers,
            login=_LOGIN.format(user=_USER, password=_PASSWORD, url=ironic.url, ca=authority.ca),
            extra=extra + _OURS.format(users=users),
            introspection_port=port,
            credentials=f"operator:{_PASSWORD}",
        ) as place,
    ):
        yield place


def enroll(place: Place, **fields: Any) -> tuple[str, int]:
    """Enroll a new machine whose inspections are handed over; return its UUID and number."""
    return place.enroll(inspect_interface="ferroscope", **fields)


def inspect(ironic: Ironic, uuid: str) -> None:
    """Have Ironic inspect the node, as an operator does."""
    ironic.provision(uuid, "inspect", "inspect wait")


def await_provision(place: Place, uuid: str, state: str) -> Any:
    """Return Ironic's node as soon as it is in this state."""
    assert until(lambda: place.ironic.node(uuid)["provision_state"] == state), (
        place.ironic.node(uuid),
        place.output()[-2000:],
        (place.ironic.log.parent / "ironic-service.log").read_text()[-4000:],
    )
    return place.ironic.node(uuid)


def agreed(place: Place, uuid: str) -> Any:
    """Return what the interface remembers of the node's inspection; None if nothing."""
    return place.ironic.node(uuid)["driver_internal_info"].get("ferroscope_inspection")


def silent_since(place: Place, uuid: str, time: float) -> None:
    """Make Ironic remember that Ferroscope has not answered since then."""
    change = "driver_internal_info = json_set(driver_internal_info, '$.ferroscope_inspection.silent_since', ?)"
    _change(place, uuid, change, time)


def killed_at_start(place: Place, uuid: str) -> None:
    """Make a killed Ironic remember that it was killed while it handed the inspection over."""
    _change(place, uuid, "provision_state = 'inspecting', reservation = ?", "conductor-of-the-tests")


def _change(place: Place, uuid: str, change: str, value: float | str) -> None:
    with place.ironic.database() as connection:
        connection.execute(f"UPDATE nodes SET {change} WHERE uuid = ?", [value, uuid])


def kill_us(place: Place) -> None:
    """SIGKILL to all processes of Ferroscope."""
    for played in (place.api, *place.workers):
        played.kill()


def start_us(place: Place) -> None:
    for played in (place.api, *place.workers):
        played.start()
    for played in (place.api, *place.workers):
        played.wait_ready()
