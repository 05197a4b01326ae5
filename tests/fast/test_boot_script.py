"""The iPXE script that boots one machine, as the api serves it."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope import node_boot
from ferroscope.config.options import BootSettings, InspectorSettings, Settings
from ferroscope.core import callback_secret
from ferroscope.core.boot import Boot
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.model import Node
from tests.support.rows import each

API = "http://192.0.2.1:6385"
SETTINGS = Settings(
    boot=BootSettings(machine_script_url=f"{API}/v1/boot.ipxe", kernel=f"{API}/k", ramdisk=f"{API}/r"),
    inspector=InspectorSettings(callback_endpoint_override=API, extra_kernel_params="console=ttyS0"),
)


def node(*, interface: str | None = "ipxe", **driver_info: Any) -> Node:
    return Node(uuid="n1", driver="ipmi", driver_info=driver_info, attributes={"boot_interface": interface})


def way(settings: Settings, machine: Node, *, required: bool = False) -> Boot:
    inspector = msgspec.structs.replace(settings.inspector, require_managed_boot=required)
    return node_boot.way(msgspec.structs.replace(settings, inspector=inspector), machine, None, manage_boot=True)


def boot(**changes: Any) -> Settings:
    return msgspec.structs.replace(SETTINGS, boot=msgspec.structs.replace(SETTINGS.boot, **changes))


def test_it_loads_kernel_and_ramdisk_with_the_secret_in_the_callback_url() -> None:
    script = node_boot.boot_script(SETTINGS, node(), "5ec")
    assert script is not None
    lines = script.splitlines()
    assert lines[0] == "#!ipxe"
    (kernel,) = (line for line in lines if line.startswith("kernel "))
    assert kernel.split()[1:6] == ["--timeout", "60000", "--name", "kernel", f"{API}/k"]
    assert f"ipa-inspection-callback-url={API}/v1/continue_inspection?secret=5ec" in kernel
    assert "console=ttyS0" in kernel
    assert "BOOTIF=01-${netX/mac:hexhyp}" in kernel
    assert f"initrd --timeout 60000 --name ramdisk {API}/r || exit 1" in lines


def test_without_a_secret_the_callback_url_has_none() -> None:
    script = node_boot.boot_script(SETTINGS, node(), None)
    assert script is not None
    assert "secret" not in script


def test_a_node_may_have_files_of_its_own() -> None:
    own = node(deploy_kernel="https://192.0.2.9/k2", deploy_ramdisk="tftp://${next-server}/r2")
    script = node_boot.boot_script(SETTINGS, own, None)
    assert script is not None
    assert "--name kernel https://192.0.2.9/k2 " in script
    assert "--name ramdisk tftp://${next-server}/r2 ||" in script


@each("url", ["file:///k", "http://192.0.2.9/k\nshell", "http://h/k x", "http://h/k||shell", 7])
def test_what_ipxe_could_not_load_or_would_take_for_a_command_is_not_used(url: Any) -> None:
    script = node_boot.boot_script(SETTINGS, node(deploy_kernel=url), None)
    assert script is not None
    assert f"--name kernel {API}/k " in script


def test_files_of_boot_hosts_are_loaded_from_the_host_that_answered() -> None:
    settings = boot(hosts=("boot1",), kernel="k", ramdisk="r")
    script = node_boot.boot_script(settings, node(), None)
    assert script is not None
    assert "isset ${next-server} && set base tftp://${next-server}/ ||" in script.splitlines()
    assert "--name kernel ${base}k " in script


def test_a_node_asks_for_it_by_its_boot_interface() -> None:
    assert way(SETTINGS, node()) is Boot.IPXE
    assert node_boot.delivery(SETTINGS, node(), None) is Delivery.BOOT_SCRIPT
    for interface in (None, "pxe"):
        assert way(SETTINGS, node(interface=interface)) is Boot.NETWORK


def test_it_is_how_a_managed_boot_without_virtual_media_is_possible() -> None:
    assert way(SETTINGS, node(interface=None), required=True) is Boot.IPXE


@each(
    "settings",
    [
        boot(machine_script_url=""),
        boot(kernel="only-a-name"),
        msgspec.structs.replace(SETTINGS, inspector=InspectorSettings()),
    ],
)
def test_without_a_url_of_everything_somebody_else_has_to_serve_the_network(settings: Settings) -> None:
    assert way(settings, node()) is Boot.NETWORK


def test_the_script_of_a_machine_only_sets_the_secret() -> None:
    token = callback_secret.agent_token("abc")
    assert node_boot.machine_script("abc") == f"#!ipxe\nset token {token}\nset secret abc\n"
    assert "set " not in node_boot.machine_script(None)
