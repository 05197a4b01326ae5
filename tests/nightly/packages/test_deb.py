"""The Debian package in a clean Debian: installed, configured, upgraded, removed and purged by dpkg."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import ferroscope
from tests.support.speed import slowness
from tools.packaging import contents, deb

CONF = "etc/ferroscope/ferroscope.conf"
# As bash does when somebody presses Tab after "ferroscope no".
_COMPLETE = """\
source /usr/share/bash-completion/completions/ferroscope
COMP_WORDS=(ferroscope no) COMP_CWORD=1
_ferroscope_completion ferroscope
echo "${COMPREPLY[@]}"
"""


class Root:
    """A Debian in a directory: only what dpkg and the package itself need."""

    def __init__(self, path: Path) -> None:
        self.path = path
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include=adduser,python{contents.PYTHON},ca-certificates",
        ]
        subprocess.run([*command, contents.SUITE, str(path)], check=True, timeout=1500 * slowness())

    def run(self, *words: str) -> str:
        """Run a program in it, with a loopback interface and no other network; return what it said."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        inside = ["sh", "-c", 'ip link set lo up && exec chroot "$0" "$@"', str(self.path), *words]
        done = subprocess.run(
            ["unshare", "--net", "--pid", "--fork", "--kill-child", *inside],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment,
            timeout=600 * slowness(),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    def install(self, package: Path, *options: str) -> None:
        (self.path / "tmp" / package.name).write_bytes(package.read_bytes())
        self.run("dpkg", *options, "--install", f"/tmp/{package.name}")

    def owner(self, path: str) -> str:
        return self.run("stat", "-c", "%U:%G %a", f"/{path}").strip()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("deb") / "ferroscope.deb"
    deb.build(target)
    return target


@pytest.fixture(scope="module")
def newer(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the same package as the next release, whose configuration file has one option more."""
    directory = tmp_path_factory.mktemp("newer")
    subprocess.run(["dpkg-deb", "--raw-extract", package, directory / "root"], check=True)
    control = directory / "root/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {deb.version()}", "Version: 99.0-1"))
    with (directory / "root" / CONF).open("a") as file:
        file.write("\n#option_of_the_future = 1\n")
    target = directory / "newer.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", directory / "root", target], check=True)
    return target


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return Root(tmp_path_factory.mktemp("root") / "debian")


def test_it_is_installed_upgraded_removed_and_purged(root: Root, package: Path, newer: Path) -> None:
    root.install(package)
    assert root.run("ferroscope", "--version").split()[-1] == ferroscope.__version__
    # The user, who may read the configuration and write the data, and nobody else may either.
    assert root.run("getent", "passwd", "ferroscope").split(":")[5] == "/var/lib/ferroscope"
    assert root.owner("etc/ferroscope") == "root:ferroscope 750"
    assert root.owner(CONF) == "root:ferroscope 640"
    assert root.owner("var/lib/ferroscope") == "ferroscope:ferroscope 750"

    # It works as that user, out of the box: a machine is inspected.
    as_user = (
        "setpriv",
        "--reuid=ferroscope",
        "--regid=ferroscope",
        "--init-groups",
        "env",
        "HOME=/var/lib/ferroscope",
    )
    root.run(*as_user, "ferroscope", "db", "upgrade")
    assert (root.path / "var/lib/ferroscope/ferroscope.db").exists()
    assert "All 1 finished" in root.run(*as_user, "ferroscope", "demo", "--nodes", "1")

    # Without a terminal, the defaults of the five questions hold; doctor approves them.
    root.run("ferroscope", "setup")
    assert root.owner(CONF) == "root:ferroscope 640"
    assert "#bare_metal_port = 6385" in (root.path / CONF).read_text()
    root.run(*as_user, "ferroscope", "doctor")
    assert "node" in root.run("bash", "-c", _COMPLETE).split()

    # An upgrade keeps the data and what the operator changed.
    conf = root.path / CONF
    conf.write_text(conf.read_text() + "\n[worker]\ngraceful_timeout = 17\n")
    root.install(newer, "--force-confold")
    assert "graceful_timeout = 17" in conf.read_text()
    assert "option_of_the_future" not in conf.read_text()
    assert (root.path / "var/lib/ferroscope/ferroscope.db").exists()
    assert root.owner(CONF) == "root:ferroscope 640"
    assert "99.0-1" in root.run("dpkg-query", "--show", "ferroscope")

    # Removal leaves configuration and data; purging removes them, and nothing of the package remains.
    root.run("dpkg", "--remove", "ferroscope")
    assert not (root.path / "usr/bin/ferroscope").is_symlink()
    assert not (root.path / "usr/lib/ferroscope").exists()
    assert conf.exists()
    assert (root.path / "var/lib/ferroscope/ferroscope.db").exists()
    root.run("dpkg", "--purge", "ferroscope")
    left = [name for name in _files(root.path) if "ferroscope" in name and not name.startswith("tmp/")]
    assert left == []


def test_units_and_documents_are_where_debian_looks_for_them(package: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    paths = {line.split()[5].removeprefix("./") for line in listed.splitlines()}
    for expected in (
        "lib/systemd/system/ferroscope-worker.service",
        "usr/lib/tmpfiles.d/ferroscope-xtables.conf",
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
    owners = {line.split()[1] for line in listed.splitlines()}
    assert owners == {"root/root"}
    unit = subprocess.run(
        f"dpkg-deb --fsys-tarfile {package} | tar -xO ./lib/systemd/system/ferroscope-worker.service",
        shell=True, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "ExecStart=/usr/bin/ferroscope worker\n" in unit


def _files(root: Path) -> list[str]:
    found = []
    for directory, _, files in os.walk(root):
        found += [str(Path(directory, name).relative_to(root)) for name in files]
    return found
