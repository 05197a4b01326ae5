"""``ferroscope pxe config`` makes what dnsmasq takes; ``ferroscope doctor`` finds what is wrong with it on a host."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from ferroscope.config.load import load
from ferroscope.contrib.boot import host_facts
from ferroscope.contrib.boot.boot_host_checks import examine_boot
from ferroscope_client.cli.main import main
from ferroscope_client.client import Client
from ferroscope_client.core.finding import Finding
from ferroscope_client.errors import Exit


def _examine(file: str, host: str) -> list[Finding]:
    settings = load([file])
    return list(examine_boot(settings, host))


class Site:
    """A boot host's files, in a directory of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.dnsmasq = directory / "dnsmasq.conf"
        self.root = directory / "tftp"
        self.file = directory / "ferroscope.conf"
        self.interfaces = "lo"
        self.options = {
            "hosts": "boot1,boot2",
            "addresses": "boot1 127.0.0.1 ::1, boot2 127.0.0.2 fd00::2",
            "ranges": "127.0.0.10-127.0.0.19,fd00::1000-fd00::1fff",
            "callback_url": "http://127.0.0.1:1/v1/continue_inspection",
            "tftp_root": str(self.root),
            "dnsmasq_config": str(self.dnsmasq),
        }

    def write(self, **options: str) -> str:
        self.options.update(options)
        self.file.write_text("[boot]\n" + "".join(f"{name} = {value}\n" for name, value in self.options.items()))
        with self.file.open("a") as file:
            file.write(f"[pxe_filter]\ninterfaces = {self.interfaces}\n")
        return str(self.file)

    def config(self, *words: str, check: int = 0) -> str:
        result = CliRunner().invoke(main, ["pxe", "config", "-c", self.write(), *words])
        assert result.exit_code == check, result.output
        return result.output

    def examine(self) -> dict[str, Finding]:
        """Return the checks that are not ok, by name."""
        found = _examine(self.write(), "boot1")
        return {check.code: check for check in found if check.verdict != "ok"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Return a site that has nothing yet."""
    return Site(tmp_path)


@pytest.fixture
def ready(site: Site, api: Client, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a site on which everything is in place; who runs the host makes no difference."""
    monkeypatch.setattr(host_facts, "SYSTEMD", site.root / "nowhere")
    site.options["callback_url"] = f"{api.url}/v1/continue_inspection"
    site.config("--host", "boot1", "--install")
    for name in ("ipa.kernel", "ipa.initramfs", "undionly.kpxe", "ipxe.efi", "ipxe-arm64.efi"):
        (site.root / name).write_bytes(b"\0")
    return site


def test_dnsmasq_takes_what_is_made_for_each_host(site: Site, tmp_path: Path) -> None:
    for host in ("boot1", "boot2"):
        site.config("--host", host, "--directory", str(tmp_path / host))
        done = subprocess.run(
            ["/usr/sbin/dnsmasq", "--test", f"--conf-file={tmp_path / host / 'dnsmasq.conf'}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (tmp_path / host / "boot.ipxe").read_text().startswith("#!ipxe")
    assert (tmp_path / "boot1" / "dnsmasq.conf").read_text() != (tmp_path / "boot2" / "dnsmasq.conf").read_text()


def test_dnsmasq_takes_more_options_that_have_commas(site: Site) -> None:
    site.options["dnsmasq_options"] = "\n  log-dhcp\n  dhcp-option=option:ntp-server,127.0.0.1,127.0.0.2"
    site.config("--host", "boot1", "--install")
    assert site.dnsmasq.read_text().endswith("log-dhcp\ndhcp-option=option:ntp-server,127.0.0.1,127.0.0.2\n")
    done = subprocess.run(
        ["/usr/sbin/dnsmasq", "--test", f"--conf-file={site.dnsmasq}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "host", "why"),
    [
        ({}, "boot9", "boot9"),
        ({"hosts": ""}, "boot1", "[boot] hosts"),
        ({"ranges": ""}, "boot1", "[boot] ranges"),
        ({"callback_url": ""}, "boot1", "[boot] callback_url"),
    ],
)
def test_a_configuration_that_cannot_be_made_says_why(site: Site, options: dict[str, str], host: str, why: str) -> None:
    site.options.update(options)
    assert why in site.config("--host", host, check=Exit.FAILURE)


def test_addresses_that_this_host_has_not_or_that_are_missing_are_found(ready: Site) -> None:
    ready.options["addresses"] = "boot1 192.0.2.1 fd00::1, boot2 fd00::2"
    assert "192.0.2.1, fd00::1" in ready.examine()["boot-addresses"].summary
    ready.options["addresses"] = "boot1 ::1"
    assert "boot2" in ready.examine()["boot-addresses"].summary


def test_a_web_server_on_boot_hosts_whose_port_is_not_guarded_is_noted(ready: Site) -> None:
    ready.options["http_url"] = "http://{host}:8080/"
    ready.config("--host", "boot1", "--install")
    found = ready.examine()["boot-files"]
    assert (found.verdict, "8080" in found.summary) == ("note", True)
    assert "[pxe_filter] http_ports" in found.advice
    ready.interfaces = "lo\nhttp_ports = 8080"
    assert ready.examine() == {}


def test_a_dnsmasq_without_a_service_is_noted_where_systemd_runs_the_host(
    ready: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = tmp_path / "dnsmasq.service"
    monkeypatch.setattr(host_facts, "UNIT_DIRECTORIES", (unit.parent,))
    monkeypatch.setattr(host_facts, "SYSTEMD", tmp_path / "nowhere")
    assert ready.examine() == {}
    monkeypatch.setattr(host_facts, "SYSTEMD", tmp_path)
    assert "dnsmasq.service" in ready.examine()["dnsmasq"].summary
    unit.touch()
    assert ready.examine() == {}


def test_addresses_of_another_host_in_the_file_of_this_one_are_found(ready: Site) -> None:
    ready.config("--host", "boot2", "--directory", str(ready.dnsmasq.parent))
    found = ready.examine()
    assert found["boot-pools"].verdict == "wrong"
    assert "127.0.0.15-127.0.0.19 of boot2" in found["boot-pools"].summary


def test_a_file_that_dnsmasq_does_not_take_is_found_with_its_words(ready: Site) -> None:
    ready.dnsmasq.write_text(ready.dnsmasq.read_text() + "dhcp-rage=1\n")
    wrong = [check for check in _examine(ready.write(), "boot1") if (check.code, check.verdict) == ("dnsmasq", "wrong")]
    assert any("bad option" in check.summary for check in wrong)


def test_a_file_of_an_older_configuration_is_noted(ready: Site) -> None:
    ready.options["address_order"] = "sequential"
    assert ready.examine()["dnsmasq"].verdict == "note"


def test_files_that_machines_would_ask_for_in_vain_are_found(ready: Site) -> None:
    (ready.root / "ipa.kernel").unlink()
    found = ready.examine()["boot-files"]
    assert (found.verdict, "ipa.kernel" in found.summary) == ("wrong", True)
    (ready.root / "ipa.kernel").touch()
    (ready.root / "ipxe.efi").unlink()
    found = ready.examine()["boot-files"]
    assert (found.verdict, "ipxe.efi" in found.summary) == ("note", True)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://127.0.0.1:1/v1/continue_inspection", "127.0.0.1:1"),
        ("http://127.0.0.1:6385/", '"http://127.0.0.1:6385/"'),
    ],
)
def test_a_callback_that_cannot_arrive_is_found(ready: Site, url: str, named: str) -> None:
    ready.options["callback_url"] = url
    found = ready.examine()["callback"]
    assert (found.verdict, named in found.summary) == ("wrong", True)


def test_a_host_that_is_no_boot_host_is_told_so_and_no_more(ready: Site) -> None:
    *_, last = _examine(ready.write(), "api1")
    assert (last.code, last.verdict) == ("boot-host", "note")


def test_an_interface_that_is_not_there_is_found(ready: Site) -> None:
    ready.interfaces = "lo,nowhere0"
    assert "nowhere0" in ready.examine()["boot-host"].summary


@pytest.mark.parametrize(
    ("host", "url", "warned"),
    [
        ("localhost", "http://127.0.0.1:6385", True),
        ("localhost", "http://{own}:6385", True),
        ("{own}", "http://{own}:6385", False),
        ("localhost", "http://{own}:80", False),
        ("localhost", "http://192.0.2.1:6385", False),
    ],
)
def test_a_callback_url_that_machines_cannot_reach_is_warned_of(ready: Site, host: str, url: str, warned: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        own = probe.getsockname()[0]
    ready.options["callback_url"] = url.format(own=own) + "/v1/continue_inspection"
    file = ready.write()
    with Path(file).open("a") as more:
        more.write(f"[api]\nhost = {host.format(own=own)}\n")
    result = CliRunner().invoke(main, ["pxe", "config", "-c", file, "--host", "boot1"])
    assert result.exit_code == 0
    assert ("Warning: " in result.stderr) is warned
