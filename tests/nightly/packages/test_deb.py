"""The Debian packages in clean Debians: installed, configured, upgraded, removed and purged by dpkg."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ferroscope
from tests.support.debian import Debian, make
from tests.support.processes import until
from tools.packaging import contents, deb

CONF = "etc/ferroscope/ferroscope.conf"
SERVICE = "ferroscope-all.service"
UNITS = "usr/lib/systemd/system"
# As bash does when somebody presses Tab after "ferroscope no".
_COMPLETE = """\
source /usr/share/bash-completion/completions/ferroscope
COMP_WORDS=(ferroscope no) COMP_CWORD=1
_ferroscope_completion ferroscope
echo "${COMPREPLY[@]}"
"""
OWNERS = ["root:ferroscope 750", "root:ferroscope 640", "ferroscope:ferroscope 755"]
# It works as that user, out of the box.
AS_USER = (
    "setpriv", "--reuid=ferroscope", "--regid=ferroscope", "--init-groups", "env", "HOME=/var/lib/ferroscope",
)  # fmt: skip


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Give the package, and that for boot hosts."""
    return deb.build(tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="module")
def newer(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Give the same packages as the next release, whose configuration file has one option more."""
    directory = tmp_path_factory.mktemp("newer")
    made = []
    for package in packages:
        root = directory / package.stem
        subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
        control = root / "DEBIAN/control"
        control.write_text(control.read_text().replace(deb.version(), "99.0-1"))
        if (root / CONF).exists():
            with (root / CONF).open("a") as file:
                file.write("\n#option_of_the_future = 1\n")
        made.append(directory / f"newer-{package.name}")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, made[-1]], check=True)
    return made


@pytest.fixture(scope="module", params=list(contents.PYTHONS))
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a Debian that has nothing but what the packages depend on; it is copied, not changed."""
    made = tmp_path_factory.mktemp("base") / request.param
    make(made, request.param, "adduser", "python3", "nftables", "ca-certificates")
    return made


@pytest.fixture
def debian(base: Path, tmp_path: Path) -> Iterator[Debian]:
    """Give one of its own, which runs."""
    subprocess.run(["cp", "--archive", "--reflink=auto", base, tmp_path / "debian"], check=True)
    with Debian(tmp_path / "debian") as booted:
        yield booted


def test_they_are_installed_upgraded_removed_and_purged(
    debian: Debian, packages: list[Path], newer: list[Path]
) -> None:
    debian.install(*packages)
    assert debian.run("ferroscope", "--version").split()[-1] == ferroscope.__version__
    assert debian.run("dpkg", "--verify", "ferroscope", "ferroscope-boot-host") == ""
    # The user, who may read the configuration and write the data, and nobody else may either.
    assert debian.run("getent", "passwd", "ferroscope").split(":")[5] == "/var/lib/ferroscope"
    assert _owners(debian) == OWNERS
    assert "All 1 finished" in debian.run(*AS_USER, "ferroscope", "demo", "--nodes", "1")
    # They start nothing: the operator chooses what the host does.
    assert debian.run("systemctl", "list-units", "--no-legend", "ferroscope*") == ""

    # Without a terminal, the defaults of the five questions hold; doctor approves them.
    debian.run("ferroscope", "setup")
    assert "#bare_metal_port = 6385" in (debian.root / CONF).read_text()
    debian.run(*AS_USER, "ferroscope", "doctor")
    assert "node" in debian.run("bash", "-c", _COMPLETE).split()

    # The service starts, says when it is ready, and answers.
    debian.run("systemctl", "enable", "--now", SERVICE)
    debian.run("ferroscope", "node", "create", "kept", "--driver", "ipmi", "-d", "ipmi_address=192.0.2.1")
    before = debian.run("systemctl", "show", "--property=MainPID", SERVICE)

    # An upgrade keeps the data and what the operator changed; what runs is the new release.
    conf = debian.root / CONF
    conf.write_text(conf.read_text() + "\n[worker]\ngraceful_timeout = 17\n")
    debian.install(*newer)
    assert "graceful_timeout = 17" in conf.read_text()
    assert "option_of_the_future" not in conf.read_text()
    assert _owners(debian) == OWNERS
    assert "99.0-1" in debian.run("dpkg-query", "--show", "ferroscope")
    assert debian.run("systemctl", "show", "--property=MainPID", SERVICE) != before
    assert until(lambda: "kept" in debian.call("ferroscope", "node", "list").stdout)

    # It is there again after the system has started again.
    debian.stop()
    debian.start()
    assert debian.run("systemctl", "is-active", SERVICE).strip() == "active"
    assert "kept" in debian.run("ferroscope", "node", "list")

    # Removal ends the service and leaves configuration and data; purging leaves nothing.
    debian.run("dpkg", "--remove", "ferroscope-boot-host", "ferroscope")
    assert debian.call("systemctl", "is-active", SERVICE).stdout.strip() != "active"
    assert not (debian.root / "usr/bin/ferroscope").is_symlink()
    assert not (debian.root / "usr/lib/ferroscope").exists()
    assert conf.exists()
    assert (debian.root / "var/lib/ferroscope/ferroscope.db").exists()
    debian.run("dpkg", "--purge", "ferroscope-boot-host", "ferroscope")
    left = [name for name in _files(debian.root) if "ferroscope" in name]
    assert [name for name in left if not name.startswith(("var/tmp/", "var/log/", "proc/", "sys/", "run/"))] == []


def test_units_that_find_an_older_schema_start_when_it_was_upgraded(debian: Debian, packages: list[Path]) -> None:
    """As after an upgrade of the package, which restarts them before anybody can have upgraded the schema."""
    debian.install(*packages)
    debian.run("systemctl", "start", "--no-block", "ferroscope-api.service")
    assert until(lambda: "ferroscope db upgrade" in debian.run("journalctl", "--unit=ferroscope-api", "--no-pager"))
    debian.run("runuser", "-u", "ferroscope", "--", "ferroscope", "db", "upgrade")
    assert until(lambda: debian.call("systemctl", "is-active", "ferroscope-api").stdout.strip() == "active")


def test_a_boot_host_is_closed_until_its_filter_runs(debian: Debian, packages: list[Path]) -> None:
    debian.install(*packages)
    conf = debian.root / CONF
    conf.write_text(conf.read_text() + "\n[pxe_filter]\nnetwork = rack\ninterfaces = lo\n")
    debian.run("runuser", "-u", "ferroscope", "--", "ferroscope", "db", "upgrade")
    assert debian.call("systemctl", "start", "ferroscope-pxe-closed.service").returncode != 0, "there is no ruleset"
    debian.run("ferroscope", "pxe", "ruleset", "-o", "/etc/ferroscope/pxe-closed.nft")
    debian.run("systemctl", "start", "ferroscope-pxe-closed.service")
    assert "ferroscope_pxe_rack" in debian.run("nft", "list", "tables")
    debian.run("systemctl", "start", "ferroscope-pxe-filter.service")
    assert until(lambda: "expires" in debian.run("nft", "list", "set", "inet", "ferroscope_pxe_rack", "open"))
    debian.run("dpkg", "--remove", "ferroscope-boot-host")
    assert debian.call("systemctl", "is-active", "ferroscope-pxe-filter.service").stdout.strip() != "active"
    assert until(lambda: "expires" not in debian.run("nft", "list", "set", "inet", "ferroscope_pxe_rack", "open"))
    assert "ferroscope_pxe_rack" in debian.run("nft", "list", "tables"), "the host stays closed"


def test_lintian_has_nothing_to_say(packages: list[Path]) -> None:
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", *packages],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_second_build_is_the_same(packages: list[Path], tmp_path: Path) -> None:
    for one, again in zip(packages, deb.build(tmp_path), strict=True):
        assert one.read_bytes() == again.read_bytes(), one.name


def test_units_and_documents_are_where_debian_looks_for_them(packages: list[Path]) -> None:
    service, boot_host = packages
    paths, owners = _listed(service)
    for expected in (
        f"{UNITS}/ferroscope-worker.service",
        "usr/share/bash-completion/completions/ferroscope",
        "usr/share/zsh/vendor-completions/_ferroscope",
        "usr/share/fish/vendor_completions.d/ferroscope.fish",
        "usr/share/man/man1/ferroscope.1.gz",
        "usr/share/man/man1/ferroscope-node.1.gz",
        "usr/share/doc/ferroscope/copyright",
        "usr/share/doc/ferroscope/how-to/serve-https.md",
        "usr/share/doc/ferroscope/examples/kubernetes/base/api.yaml",
        "usr/share/doc/ferroscope/examples/helm/ferroscope/values.yaml",
    ):
        assert expected in paths
    assert owners == {"root/root"}
    unit = subprocess.run(
        f"dpkg-deb --fsys-tarfile {service} | tar -xO ./{UNITS}/ferroscope-worker.service",
        shell=True, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "ExecStart=/usr/bin/ferroscope worker\n" in unit
    theirs, _ = _listed(boot_host)
    assert {f"{UNITS}/ferroscope-pxe-filter.service", "usr/lib/tmpfiles.d/ferroscope-xtables.conf"} <= theirs
    shared = {path for path in paths & theirs if path and not path.endswith("/")}
    assert shared == set()


def _owners(debian: Debian) -> list[str]:
    """Return owner, group and mode of the directory of the configuration, the configuration, and the data."""
    return debian.run("stat", "-c", "%U:%G %a", "/etc/ferroscope", f"/{CONF}", "/var/lib/ferroscope").splitlines()


def _listed(package: Path) -> tuple[set[str], set[str]]:
    """Return the paths in a package, and their owners."""
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in listed.splitlines()]
    return {line[5].removeprefix("./") for line in lines}, {line[1] for line in lines}


def _files(root: Path) -> list[str]:
    found = []
    for directory, _, files in os.walk(root):
        found += [str(Path(directory, name).relative_to(root)) for name in files]
    return found
