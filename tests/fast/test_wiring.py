"""What does not fit together is found when a process starts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ferroscope.config.errors import SetupError
from ferroscope.config.options import (
    DiscoverySettings,
    DriverSettings,
    InspectionRuleSettings,
    IronicSettings,
    RegistrySettings,
    Settings,
)
from ferroscope.runtime.externals import build_attached, build_drivers
from ferroscope.runtime.wiring import built_in_rules
from tests.support.bad_server import a_server_that
from tests.support.rows import each


def test_discovered_nodes_need_an_enabled_driver() -> None:
    drivers = DriverSettings(enabled=("fake-hardware",))
    wrong = Settings(drivers=drivers, auto_discovery=DiscoverySettings(enabled=True, driver="redfish"))
    with pytest.raises(SetupError, match=r"auto_discovery.*'redfish'.*fake-hardware"):
        build_drivers(wrong)
    with pytest.raises(SetupError, match=r"auto_discovery. driver is not set"):
        build_drivers(Settings(drivers=drivers, auto_discovery=DiscoverySettings(enabled=True)))
    assert set(build_drivers(Settings(drivers=drivers, auto_discovery=DiscoverySettings(driver="redfish")))) == {
        "fake-hardware"
    }


def test_a_driver_that_does_nothing_is_offered_only_where_it_is_asked_for() -> None:
    assert set(build_drivers(Settings())) == {"redfish", "ipmi"}


def test_discovery_does_not_go_with_a_registry_that_knows_no_such_nodes() -> None:
    registry = RegistrySettings(url="http://ironic.example:6385")
    with pytest.raises(SetupError, match="registry"):
        build_drivers(Settings(registry=registry, auto_discovery=DiscoverySettings(enabled=True, driver="ipmi")))
    build_drivers(Settings(registry=registry))


def test_a_broken_file_of_built_in_rules_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- actions: [{op: nope, args: {}}]")
    settings = Settings(inspection_rules=InspectionRuleSettings(built_in_rules=str(file)))
    with pytest.raises(SetupError, match="unknown op 'nope'"):
        built_in_rules(settings)


ATTACHED = RegistrySettings(backend="ironic")


@each(
    ("ironic", "expected"),
    [
        (IronicSettings(), "auth_type is not set"),
        (IronicSettings(auth_type="none"), "endpoint_override is not set"),
        (IronicSettings(auth_type="none", endpoint_override="ironic:6385"), "endpoint_override has the invalid URL"),
        (IronicSettings(auth_type="none", endpoint_override="http://127.0.0.1:1", username="me"), "username has no"),
        (IronicSettings(auth_type="password", username="me"), "auth_url is not set"),
        (IronicSettings(auth_type="password", auth_url="http://127.0.0.1:1/v3", password="x"), "username is not set"),
        (
            IronicSettings(auth_type="password", auth_url="http://127.0.0.1:1/v3", username="me", password="x"),
            "project_name is not set",
        ),
        (IronicSettings(auth_type="nonsense", auth_url="http://127.0.0.1:1"), 'auth_type "nonsense" is unknown'),
        (
            IronicSettings(auth_type="v3token", auth_url="http://127.0.0.1:1", auth_options={"tokn": "x"}),
            "auth_options: .*tokn",
        ),
        (IronicSettings(cloud="nowhere"), "cloud nowhere"),
        (IronicSettings(cloud="mine", username="me"), "cloud and username are mutually exclusive"),
        (IronicSettings(auth_type="none", endpoint_override="http://h", keyfile="k"), "certfile is not set"),
    ],
)
def test_an_ironic_that_is_not_fully_configured_is_refused_by_the_name_of_the_option(
    ironic: IronicSettings, expected: str
) -> None:
    with pytest.raises(SetupError, match=expected):
        build_attached(Settings(registry=ATTACHED, ironic=ironic), threading.Event())


def test_an_attached_ironic_excludes_a_second_registry_and_discovery() -> None:
    ironic = IronicSettings(auth_type="none", endpoint_override="http://127.0.0.1:1")
    both = RegistrySettings(backend="ironic", url="http://ironic.example:6385")
    with pytest.raises(SetupError, match="url conflicts"):
        build_attached(Settings(registry=both, ironic=ironic), threading.Event())
    discovery = DiscoverySettings(enabled=True, driver="ipmi")
    with pytest.raises(SetupError, match="auto_discovery"):
        build_drivers(Settings(registry=ATTACHED, auto_discovery=discovery))


def test_an_ironic_that_does_not_answer_is_no_reason_not_to_start() -> None:
    ironic = IronicSettings(
        auth_type="none", endpoint_override="http://127.0.0.1:1", max_retries=0, retry_interval=0.0, timeout=5.0
    )
    attached = build_attached(Settings(registry=ATTACHED, ironic=ironic), threading.Event())
    assert attached is not None
    drivers = build_drivers(Settings(registry=ATTACHED, ironic=ironic), attached=attached)
    assert drivers["redfish"] is drivers["ipmi"]


def test_what_is_no_ironic_is_refused() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    with a_server_that([answer]) as port:
        ironic = IronicSettings(auth_type="none", endpoint_override=f"http://127.0.0.1:{port}")
        with pytest.raises(SetupError, match="no Ironic answers at"):
            build_attached(Settings(registry=ATTACHED, ironic=ironic), threading.Event())
    old = b"HTTP/1.1 200 OK\r\nX-OpenStack-Ironic-API-Maximum-Version: 1.31\r\nContent-Length: 2\r\n"
    with a_server_that([old + b"Connection: close\r\n\r\n{}"]) as port:
        ironic = IronicSettings(auth_type="none", endpoint_override=f"http://127.0.0.1:{port}")
        with pytest.raises(SetupError, match=r"too old.*1\.31"):
            build_attached(Settings(registry=ATTACHED, ironic=ironic), threading.Event())


def test_without_an_attached_ironic_the_nodes_are_ours() -> None:
    assert build_attached(Settings(), threading.Event()) is None
