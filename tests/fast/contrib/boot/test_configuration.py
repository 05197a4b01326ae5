"""dnsmasq's configuration and the iPXE script, as text."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.config.options import BootSettings, InspectorSettings, PxeFilterSettings
from ferroscope.contrib.boot import addresses, dnsmasq, ipxe
from tests.support.rows import each

ADDRESSES = tuple(f"boot{number} 10.0.0.{number} fd00::{number}" for number in (1, 2, 3))
INSPECTOR = InspectorSettings()
PXE_FILTER = PxeFilterSettings(interfaces=("eth1",))
SETTINGS = BootSettings(
    hosts=("boot1", "boot2", "boot3"),
    addresses=ADDRESSES,
    ranges=("10.0.0.10-10.0.0.39", "fd00::1000-fd00::3fff", "10.9.0.10-10.9.0.39/24@10.9.0.1"),
    callback_url="http://10.0.0.1:6385/v1/continue_inspection",
)


def test_every_host_gives_its_own_part_of_each_range_and_nothing_else() -> None:
    ranges = [
        [
            line
            for line in dnsmasq.configuration(SETTINGS, PXE_FILTER, host).splitlines()
            if line.startswith("dhcp-range")
        ]
        for host in SETTINGS.hosts
    ]
    assert ranges[0] == [
        "dhcp-range=set:range1,10.0.0.10,10.0.0.19,600s",
        "dhcp-range=set:range2,fd00::1000,fd00::1fff,64,600s",
        "dhcp-range=set:range3,10.9.0.10,10.9.0.19,255.255.255.0,600s",
    ]
    assert ranges[2][0] == "dhcp-range=set:range1,10.0.0.30,10.0.0.39,600s"
    assert len({line for lines in ranges for line in lines}) == 9


def test_addresses_are_sequential_where_that_is_wanted() -> None:
    assert "dhcp-sequential-ip" not in dnsmasq.configuration(SETTINGS, PXE_FILTER, "boot1")
    settings = msgspec.structs.replace(SETTINGS, address_order="sequential")
    assert "dhcp-sequential-ip" in dnsmasq.configuration(settings, PXE_FILTER, "boot1").splitlines()


def test_addresses_are_given_without_a_ping_and_only_relayed_networks_get_a_router() -> None:
    lines = dnsmasq.configuration(SETTINGS, PXE_FILTER, "boot1").splitlines()
    assert {"no-ping", "port=0", "interface=eth1"} <= set(lines)
    assert "dhcp-option=tag:range1,option:router" in lines
    assert "dhcp-option=tag:range3,option:router,10.9.0.1" in lines


def test_firmware_gets_ipxe_and_ipxe_gets_the_script() -> None:
    lines = dnsmasq.configuration(SETTINGS, PXE_FILTER, "boot1").splitlines()
    assert "dhcp-boot=tag:ipxe,boot.ipxe" in lines
    assert "dhcp-boot=tag:bios,tag:!ipxe,undionly.kpxe" in lines
    assert "dhcp-boot=tag:x64,tag:!ipxe,ipxe.efi" in lines
    assert "dhcp-option=tag:ipxe,option6:bootfile-url,tftp://[fd00::1]/boot.ipxe" in lines
    assert "dhcp-option=tag:arm64,tag:!ipxe,option6:bootfile-url,tftp://[fd00::1]/ipxe-arm64.efi" in lines


def test_router_advertisements_name_no_router_on_any_interface() -> None:
    lines = dnsmasq.configuration(SETTINGS, PxeFilterSettings(interfaces=("eth1", "eth2")), "boot1").splitlines()
    assert {"enable-ra", "ra-param=eth1,60,0", "ra-param=eth2,60,0"} <= set(lines)


def test_without_ipv6_ranges_there_is_nothing_of_ipv6() -> None:
    settings = msgspec.structs.replace(SETTINGS, ranges=SETTINGS.ranges[:1])
    text = dnsmasq.configuration(settings, PXE_FILTER, "boot1")
    assert "option6" not in text
    assert "enable-ra" not in text
    assert "ra-param" not in text


def test_a_web_server_serves_script_kernel_and_ramdisk_where_there_is_one() -> None:
    settings = msgspec.structs.replace(SETTINGS, http_url="http://10.0.0.2/boot/")
    assert "dhcp-boot=tag:ipxe,http://10.0.0.2/boot/boot.ipxe" in dnsmasq.configuration(settings, PXE_FILTER, "boot1")
    assert "dhcp-boot=tag:http,tag:!ipxe,http://10.0.0.2/boot/ipxe.efi" in dnsmasq.configuration(
        settings, PXE_FILTER, "boot1"
    )
    assert "kernel --timeout 60000 --name kernel http://10.0.0.2/boot/ipa.kernel " in ipxe.script(
        settings, INSPECTOR, "boot1"
    )


def test_a_web_server_on_every_boot_host_is_the_one_of_the_host_that_answered() -> None:
    settings = msgspec.structs.replace(SETTINGS, http_url="http://{host}:8080/")
    lines = dnsmasq.configuration(settings, PXE_FILTER, "boot3").splitlines()
    assert "dhcp-boot=tag:ipxe,http://10.0.0.3:8080/boot.ipxe" in lines
    assert "dhcp-boot=tag:http,tag:!ipxe,http://10.0.0.3:8080/ipxe.efi" in lines
    assert "dhcp-option=tag:ipxe,option6:bootfile-url,http://[fd00::3]:8080/boot.ipxe" in lines
    assert "dhcp-option=tag:x64,tag:!ipxe,option6:bootfile-url,tftp://[fd00::3]/ipxe.efi" in lines
    script = ipxe.script(settings, INSPECTOR, "boot3")
    assert (
        "isset ${next-server} && set base http://${next-server}:8080/ || set base http://[fd00::3]:8080/"
    ) in script.splitlines()
    assert "kernel --timeout 60000 --name kernel ${base}ipa.kernel " in script


def test_a_kernel_that_has_a_url_is_loaded_from_there() -> None:
    settings = msgspec.structs.replace(SETTINGS, kernel="http://images.example.org/ipa.kernel")
    assert "kernel --timeout 60000 --name kernel http://images.example.org/ipa.kernel " in ipxe.script(
        settings, INSPECTOR, "boot1"
    )


def test_a_host_that_is_not_one_is_refused_with_those_that_are() -> None:
    with pytest.raises(addresses.AddressError, match="boot1, boot2, boot3"):
        dnsmasq.configuration(SETTINGS, PXE_FILTER, "boot4")


def test_the_script_tells_the_ramdisk_where_to_call_back_and_from_which_nic_it_booted() -> None:
    script = ipxe.script(SETTINGS, INSPECTOR, "boot1")
    assert script.startswith("#!ipxe\n")
    assert "ipa-inspection-callback-url=http://10.0.0.1:6385/v1/continue_inspection" in script
    assert "BOOTIF=01-${netX/mac:hexhyp}" in script


def test_the_script_tells_the_ramdisk_what_virtual_media_tells_it() -> None:
    """The site's parameters come before the boot network's; what an operator says is not said twice."""
    inspector = InspectorSettings(extra_kernel_params=" console=ttyS0  ipa-debug=1")
    settings = msgspec.structs.replace(SETTINGS, kernel_options=("quiet", "ipa-collect-lldp=0"))
    told = f"ipa-inspection-callback-url={SETTINGS.callback_url}"
    assert _kernel_line(ipxe.script(SETTINGS, INSPECTOR, "boot1")).endswith(
        f" {told} ipa-collect-lldp=1 || goto failed"
    )
    assert _kernel_line(ipxe.script(settings, inspector, "boot1")) == (
        "kernel --timeout 60000 --name kernel ${base}ipa.kernel initrd=ramdisk BOOTIF=01-${netX/mac:hexhyp} "
        f"console=ttyS0 ipa-debug=1 quiet ipa-collect-lldp=0 {told} || goto failed"
    )
    silent = InspectorSettings(collect_lldp=False)
    assert "lldp" not in ipxe.script(SETTINGS, silent, "boot1")


def test_the_script_asks_for_another_boot_host_where_files_do_not_come() -> None:
    lines = ipxe.script(SETTINGS, INSPECTOR, "boot1").splitlines()
    retry = lines[lines.index(":failed") : lines.index(":give_up")]
    assert "dhcp ||" in retry
    assert retry[-2] == "goto again"
    # Where it loads from is looked up again each time.
    assert lines.index(":again") < next(number for number, line in enumerate(lines) if "${next-server}" in line)


def test_over_ipv6_the_script_loads_from_its_host_and_goes_on_with_the_script_of_the_next_one() -> None:
    lines = ipxe.script(SETTINGS, INSPECTOR, "boot2").splitlines()
    assert "isset ${next-server} && set base tftp://${next-server}/ || set base tftp://[fd00::2]/" in lines
    assert lines[lines.index("dhcp ||") + 1] == "isset ${next-server} || chain --timeout 60000 --replace ${filename} ||"
    # The next script does not begin to count anew.
    assert lines[2] == "isset ${tries} || set tries:int32 0"


def test_without_ipv6_one_script_is_right_for_all_hosts() -> None:
    settings = msgspec.structs.replace(SETTINGS, addresses=(), ranges=SETTINGS.ranges[:1])
    scripts = {ipxe.script(settings, INSPECTOR, host) for host in settings.hosts}
    assert len(scripts) == 1
    assert "chain" not in scripts.pop()


def test_the_pxe_filters_backend_dnsmasq_finds_its_files_read() -> None:
    pxe_filter = msgspec.structs.replace(
        PXE_FILTER, dhcp_hostsdir="/run/ferroscope/hosts", dnsmasq_pid_file="/run/dnsmasq.pid"
    )
    assert "dhcp-hostsdir" not in dnsmasq.configuration(SETTINGS, pxe_filter, "boot1")
    behind = msgspec.structs.replace(pxe_filter, backends=("nftables", "dnsmasq"))
    lines = dnsmasq.configuration(SETTINGS, behind, "boot1").splitlines()
    assert {"dhcp-hostsdir=/run/ferroscope/hosts", "pid-file=/run/dnsmasq.pid"} <= set(lines)


def _kernel_line(script: str) -> str:
    [line] = [line for line in script.splitlines() if line.startswith("kernel ")]
    return line


def test_with_scripts_of_machines_the_secret_joins_the_callback_url() -> None:
    settings = msgspec.structs.replace(SETTINGS, machine_script_url="http://10.0.0.1:6385/v1/boot.ipxe")
    lines = ipxe.script(settings, INSPECTOR, "boot1").splitlines()
    ask = lines.index(":ask")
    cleared = [f"clear {name} ||" for name in ("secret", "query", "token", "agent")]  # left by an earlier round
    assert lines[ask + 1 : ask + 5] == cleared
    asked = "http://10.0.0.1:6385/v1/boot.ipxe?mac=${netX/mac:hexhyp}"
    assert lines[ask + 5] == f"chain --timeout 60000 --autofree {asked} && goto answered ||"
    assert "isset ${secret:hex} && set query ?secret=${secret} ||" in lines
    assert "isset ${token:hex} && set agent ipa-agent-token=${token} ||" in lines
    (kernel,) = [line for line in lines if line.startswith("kernel ")]
    assert kernel.endswith(" ${agent} || goto failed")
    assert f"ipa-inspection-callback-url={SETTINGS.callback_url}${{query}} " in _kernel_line("\n".join(lines))
    assert "secret" not in ipxe.script(SETTINGS, INSPECTOR, "boot1")


def test_network_boot_writes_to_the_consoles_of_the_iso_unless_others_are_configured() -> None:
    """A machine with a serial console only showed nothing of a network boot."""
    lines = ipxe.script(SETTINGS, INSPECTOR, "boot1").splitlines()
    assert "iseq ${buildarch} arm64 || set consoles console=tty0 console=ttyS0,115200n8" in lines
    assert any(line.startswith("kernel ") and " ${consoles} " in line for line in lines)
    settings = msgspec.structs.replace(SETTINGS, kernel_options=("console=ttyS1",))
    assert " ${consoles} " not in ipxe.script(settings, INSPECTOR, "boot1")


@each(
    ("option", "expected"),
    [
        ("log-dhcp", ["dhcp-option=option:ntp-server,0.0.0.0", "dhcp-option=option6:sntp-server,[::]"]),
        ("dhcp-option=tag:range1, option:ntp-server,10.0.0.9", ["dhcp-option=option6:sntp-server,[::]"]),
        ("dhcp-option=42,10.0.0.9", ["dhcp-option=option6:sntp-server,[::]"]),
        (
            "dhcp-option=option:router,42",
            ["dhcp-option=option:ntp-server,0.0.0.0", "dhcp-option=option6:sntp-server,[::]"],
        ),
        ("dhcp-option=option6:56,[fd00::9]", ["dhcp-option=option:ntp-server,0.0.0.0"]),
    ],
)
def test_machines_learn_the_time_from_their_boot_host_unless_another_server_is_named(
    option: str, expected: list[str]
) -> None:
    """A machine whose clock is years behind trusts no certificate: it is not valid yet.

    Reports: https://github.com/netbootxyz/netboot.xyz/issues/1253, https://github.com/coreos/ignition/issues/1484.
    """
    settings = msgspec.structs.replace(SETTINGS, dnsmasq_options=(option,))
    lines = dnsmasq.configuration(settings, PXE_FILTER, "boot1").splitlines()
    assert [line for line in lines if "ntp" in line and line != option] == expected
