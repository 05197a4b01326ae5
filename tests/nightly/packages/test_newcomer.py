"""A fresh Debian 12 with the packages: ``ferroscope setup`` makes it what the pages promise, also after a restart."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ramdisk
from tests.support.debian import Debian, make
from tests.support.processes import until
from tools.packaging import deb

_ADDRESS = "10.20.0.5"
_BOOT = "var/lib/ferroscope-tftp"
_PASSWORD = "of-alice-123"
_TOKEN = "/etc/ferroscope/token"
_OF_DATABASE = "of-the-database-123"
_ANSWERS = f"--database '' --listen {_ADDRESS},localhost --login http_basic --user alice"
_CABLES = f"""\
[Unit]
Before=network-pre.target
Wants=network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/ip link add eth1 type veth peer rack
ExecStart=/sbin/ip address add {_ADDRESS}/24 dev eth1
ExecStart=/sbin/ip link set eth1 up
ExecStart=/sbin/ip link set rack up
[Install]
WantedBy=multi-user.target
"""
# What apt loads from a mirror for a newcomer: ours come from files.
_FROM_MIRROR = (
    "adduser", "python3", "nftables", "ca-certificates", "ipmitool", "postgresql", "dnsmasq", "ipxe", "nginx-light",
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a Debian that never ran, and the packages."""
    directory = tmp_path_factory.mktemp("newcomer")
    make(directory / "debian", "bookworm", "iproute2", "curl", later=_FROM_MIRROR)
    deb.build(directory / "packages")
    return directory


@pytest.fixture
def fresh(base: Path, tmp_path: Path) -> Iterator[Debian]:
    """Give one that runs, with a network that nobody else is on: eth1, whose other end is in the rack."""
    subprocess.run(["cp", "-a", base / "debian", tmp_path], check=True)
    with Debian(tmp_path / "debian") as booted:
        (booted.root / "etc/systemd/system/cables.service").write_text(_CABLES)
        booted.run("systemctl", "enable", "--now", "cables.service")
        yield booted


@pytest.fixture
def debian(base: Path, fresh: Debian) -> Debian:
    """Give one with the packages."""
    fresh.run("apt-get", "install", "--yes", *fresh.copied(*(base / "packages").glob("*.deb")))
    return fresh


def _setup(debian: Debian, options: str) -> tuple[int, str]:
    done = debian.call("sh", "-c", f"echo {_PASSWORD} | ferroscope setup {options}", patience=1200.0)
    return done.returncode, done.stdout


def _copy_ramdisk(debian: Debian) -> None:
    """Put a ramdisk there, as ``ferroscope ramdisk build`` would."""
    shutil.copytree(ramdisk.cached(), debian.root / _BOOT, dirs_exist_ok=True)


def _active(debian: Debian, *units: str) -> bool:
    return debian.call("systemctl", "is-active", *units).stdout.split() == ["active"] * len(units)


def test_one_command_makes_it_serve_the_image_to_bmcs(debian: Debian) -> None:
    code, said = _setup(debian, f"--boot virtual-media {_ANSWERS}")
    assert code == 0, said
    assert "ferroscope ramdisk build" in said.partition("Next:")[2]
    _copy_ramdisk(debian)
    debian.run("systemctl", "enable", "--now", "ferroscope-all.service")
    size = str((ramdisk.cached() / "ipa.iso").stat().st_size)
    headers = debian.run(
        "curl", "-sSf", "-r", "32768-34815", "-D", "-", "-o", "/dev/null", f"http://{_ADDRESS}:6385/v1/media/ipa.iso"
    )
    assert f"32768-34815/{size}" in headers
    found = debian.call("ferroscope", "doctor").stdout
    assert "the ISO image can be read in parts" in found, found
    debian.run("sh", "-c", "ferroscope token create laptop --role admin >/run/token; chmod 600 /run/token")
    assert "no-worker" not in debian.run("env", "FERROSCOPE_TOKEN_FILE=/run/token", "ferroscope", "status")


def test_the_page_from_zero_with_a_database_server_and_packages_that_setup_installs(base: Path, fresh: Debian) -> None:
    (package,) = (base / "packages").glob("ferroscope_*_amd64.deb")
    fresh.run("apt-get", "install", "--yes", *fresh.copied(package), "postgresql")
    as_postgres = ("runuser", "-u", "postgres", "--")
    twice = [("password for new role", _OF_DATABASE), ("again", _OF_DATABASE)]
    assert fresh.on_terminal(twice, *as_postgres, "createuser", "--pwprompt", "ferroscope")[0] == 0
    kind = ("--owner", "ferroscope", "--encoding", "UTF8", "--template", "template0")
    fresh.run(*as_postgres, "createdb", *kind, "ferroscope")
    answers = [
        ("Password of the database user", _OF_DATABASE), ("Password of alice", _PASSWORD), ("Repeat", _PASSWORD),
        (f"[http://{_ADDRESS}:6385]", ""), ("[/var/lib/ferroscope-tftp/ipa.iso]", ""),
    ]  # fmt: skip
    words = (
        f"--database postgresql://ferroscope@localhost/ferroscope --listen {_ADDRESS},localhost --login http_basic "
        "--user alice --boot virtual-media"
    )
    code, said = fresh.on_terminal(answers, "ferroscope", "setup", *words.split())
    assert code == 0, said
    assert "connected to postgresql ferroscope at localhost" in said
    assert _OF_DATABASE not in said
    fresh.run("systemctl", "enable", "--now", "ferroscope-api.service", "ferroscope-worker.service")
    fresh.run("sh", "-c", f"umask 077; ferroscope token create alice-laptop --role admin >{_TOKEN}")
    assert until(lambda: _status(fresh) == 0)
    # BMCs without virtual media: the same host boots machines from the network, too.
    code, said = _setup(fresh, "--boot network --interface eth1 --install-packages")
    assert (code, "ferroscope-boot-host_" in said, "installing" in said) == (1, True, False), said
    (package,) = (base / "packages").glob("ferroscope-boot-host_*.deb")
    fresh.run("apt-get", "install", "--yes", "--no-install-recommends", *fresh.copied(package))
    _copy_ramdisk(fresh)
    code, said = _setup(fresh, "--boot network --interface eth1 --install-packages")
    assert (code, "WRONG" in said) == (0, False), said
    assert "installing " in said
    assert "ipa.initramfs" in said.partition("from the outside")[2]
    fresh.stop()
    fresh.start()
    parts = ("postgresql", "ferroscope-api", "ferroscope-worker", "ferroscope-pxe-filter", "dnsmasq", "nginx")
    assert until(lambda: _active(fresh, *parts))
    assert until(lambda: _status(fresh) == 0)


def _status(debian: Debian) -> int:
    return debian.call("env", f"FERROSCOPE_TOKEN_FILE={_TOKEN}", "ferroscope", "status").returncode
