"""The Debian packages in clean Debians: installed, configured, upgraded, removed and purged by dpkg."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import ferroscope
from ferroscope.config.load import CONFIG_FILES, SETUP_FILE
from tests.support.debian import Debian, make
from tests.support.processes import until
from tools.docs.declarations import sample
from tools.packaging import contents, deb

CONF = CONFIG_FILES[0].removeprefix("/")
DROP_IN = SETUP_FILE.removeprefix("/")
SERVICE = "ferroscope-all.service"
UNITS = "usr/lib/systemd/system"
# As bash does when somebody presses Tab after "ferroscope no".
_COMPLETE = """\
source /usr/share/bash-completion/completions/ferroscope
COMP_WORDS=(ferroscope no) COMP_CWORD=1
_ferroscope_completion ferroscope
echo "${COMPREPLY[@]}"
"""
OWNERS = ["root:ferroscope 750", "ferroscope:ferroscope 755"]
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
    """Give the same packages as the next release."""
    return [_as_release(package, "99.0-1", tmp_path_factory.mktemp("newer")) for package in packages]


@pytest.fixture(scope="module")
def older(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the package as it was before: all options were comments in a configuration file of its own."""
    return _as_release(packages[0], "0.9-1", tmp_path_factory.mktemp("older"), configuration=sample())


def _as_release(package: Path, version: str, directory: Path, configuration: str = "") -> Path:
    root = directory / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
    control = root / "DEBIAN/control"
    control.write_text(control.read_text().replace(deb.version(), version))
    if configuration:
        (root / CONF).write_text(configuration)
        (root / "DEBIAN/conffiles").write_text(f"/{CONF}\n")
    target = directory / f"{version}-{package.name}"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, target], check=True)
    return target


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
    assert _owners(debian, SETUP_FILE) == ["root:ferroscope 640"]
    assert debian.run("dpkg", "--verify", "ferroscope", "ferroscope-boot-host") == ""
    debian.run(*AS_USER, "ferroscope", "doctor")
    assert "node" in debian.run("bash", "-c", _COMPLETE).split()

    # The service starts, says when it is ready, and answers.
    debian.run("systemctl", "enable", "--now", SERVICE)
    debian.run("ferroscope", "node", "create", "kept", "--driver", "ipmi", "-d", "ipmi_address=192.0.2.1")
    before = debian.run("systemctl", "show", "--property=MainPID", SERVICE)

    # An upgrade keeps the data and what the operator changed; what runs is the new release.
    conf = debian.root / DROP_IN
    conf.write_text(conf.read_text() + "\n[worker]\ngraceful_timeout = 17\n")
    debian.install(*newer)
    assert "graceful_timeout = 17" in conf.read_text()
    assert debian.run("dpkg", "--verify", "ferroscope", "ferroscope-boot-host") == ""
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


def test_an_upgrade_asks_nothing_about_the_file_of_an_older_package_that_was_edited(
    debian: Debian, older: Path, packages: list[Path]
) -> None:
    """Setup itself edited it, so each host's would differ; ``install`` has no terminal, where dpkg would ask."""
    debian.install(older)
    conf = debian.root / CONF
    conf.write_text(conf.read_text().replace("[worker]\n", "[worker]\ngraceful_timeout = 17\n"))
    edited = conf.read_text()
    debian.install(packages[0])
    assert conf.read_text() == edited
    assert not list(conf.parent.glob("*.dpkg-*"))
    assert "contains settings already" in debian.call("ferroscope", "setup").stdout
    assert f"the configuration is valid (/{CONF})" in debian.call(*AS_USER, "ferroscope", "doctor").stdout
    debian.run("dpkg", "--purge", "ferroscope")
    assert not (debian.root / "etc/ferroscope").exists()


def test_units_that_find_an_older_schema_start_when_it_was_upgraded(debian: Debian, packages: list[Path]) -> None:
    """As after an upgrade of the package, which restarts them before anybody can have upgraded the schema."""
    debian.install(*packages)
    debian.run("systemctl", "start", "--no-block", "ferroscope-api.service")
    assert until(lambda: "ferroscope db upgrade" in debian.run("journalctl", "--unit=ferroscope-api", "--no-pager"))
    debian.run("runuser", "-u", "ferroscope", "--", "ferroscope", "db", "upgrade")
    assert until(lambda: debian.call("systemctl", "is-active", "ferroscope-api").stdout.strip() == "active")


def test_a_boot_host_is_closed_until_its_filter_runs(debian: Debian, packages: list[Path]) -> None:
    debian.install(*packages)
    (debian.root / CONF).write_text("[pxe_filter]\nnetwork = rack\ninterfaces = lo\n")
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
        "usr/share/doc/ferroscope/examples/ferroscope.conf",
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


def _owners(debian: Debian, *paths: str) -> list[str]:
    """Return owner, group and mode of these paths, or of the directories of the configuration and the data."""
    return debian.run("stat", "-c", "%U:%G %a", *(paths or ("/etc/ferroscope", "/var/lib/ferroscope"))).splitlines()


def test_every_file_has_a_checksum_a_license_and_every_unit_its_documentation(
    packages: list[Path], tmp_path: Path
) -> None:
    for package in packages:
        root = tmp_path / package.stem
        subprocess.run(["dpkg-deb", "--raw-extract", package, root], check=True)
        sums = {line.split(None, 1)[1] for line in (root / "DEBIAN/md5sums").read_text().splitlines()}
        present = {name for name in _files(root) if not name.startswith("DEBIAN/") and not (root / name).is_symlink()}
        assert present == sums
        for unit in (root / UNITS).glob("*.service"):
            assert "\nDocumentation=" in unit.read_text(), unit.name
        (name,) = (path.name for path in (root / "usr/share/doc").iterdir())
        paragraphs = (root / f"usr/share/doc/{name}/copyright").read_text().split("\n\n")
        assert paragraphs[0].startswith("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/")
        patterns = {pattern for text in paragraphs if text.startswith("Files: ") for pattern in _patterns(text)}
        site = "usr/lib/ferroscope/lib/python3/site-packages/"
        modules = [path for path in present if path.startswith(site) and "/ferroscope" not in path]
        assert [path for path in modules if not any(fnmatch(path, one) for one in patterns)] == []


def _patterns(paragraph: str) -> list[str]:
    """Return the patterns of files in a paragraph, but for that of Ferroscope's own."""
    return [pattern for pattern in paragraph.partition("\nCopyright:")[0].split()[1:] if pattern != "*"]


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
