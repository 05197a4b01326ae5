"""The wheel and the source distribution are complete, and the wheel works in an empty environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import ferroscope
from ferroscope_client.errors import Exit
from tests import ROOT
from tests.support.follower import steps
from tests.support.speed import slowness
from tools.packaging import contents, dist

# What each extra brings.
EXTRAS = (
    "psycopg", "pymysql", "keystoneauth1", "keystonemiddleware", "openstack", "amqp", "kombu", "lightkube", "pyarrow",
    "jinja2", "opentelemetry.sdk", "tooz", "redis",
)  # fmt: skip
# The pages that ferroscope docs shows.
KINDS = ("tutorial", "how-to", "explanation", "reference")
SHARED = f"ferroscope-{ferroscope.__version__}.data/data/share"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return source distribution and wheel of the service, and those of the client."""
    return dist.build(tmp_path_factory.mktemp("dist"))


def test_they_are_the_same_whatever_the_umask_of_the_builder_is(built: list[Path], tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        again = dist.build(tmp_path)
    finally:
        os.umask(before)
    assert [one.read_bytes() for one in again] == [one.read_bytes() for one in built]


def _tracked(*directories: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *directories], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def test_the_wheel_has_every_file_of_the_package_and_of_deploy(built: list[Path]) -> None:
    names = set(zipfile.ZipFile(built[1]).namelist())
    assert {name.removeprefix("src/") for name in _tracked("src")} <= names
    assert {f"{SHARED}/ferroscope/{name}" for name in _tracked("deploy")} <= names
    pages = {name for name in _tracked(*(f"docs/{kind}" for kind in KINDS)) if name.endswith(".md")}
    assert {f"{SHARED}/doc/ferroscope/{name.removeprefix('docs/')}" for name in pages} <= names
    for page in ("man/man1/ferroscope.1", "man/man1/ferroscope-node.1", "bash-completion/completions/ferroscope"):
        assert f"{SHARED}/{page}" in names
    assert {name.split("/")[0] for name in names} == {
        "ferroscope", "ferroscope_sim", SHARED.split("/")[0],
        f"ferroscope-{ferroscope.__version__}.dist-info",
    }  # fmt: skip


def test_its_metadata_has_the_license_as_pep_639_says(built: list[Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        directory = f"ferroscope-{ferroscope.__version__}.dist-info"
        metadata = Parser().parsestr(wheel.read(f"{directory}/METADATA").decode())
        assert f"{directory}/licenses/LICENSE" in wheel.namelist()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert not [line for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    # "all" has all of the others.
    (others,) = (
        line for line in metadata.get_all("Requires-Dist", []) if line.startswith("ferroscope[") and '"all"' in line
    )
    assert {*others.partition("[")[2].partition("]")[0].split(","), "all"} == set(
        metadata.get_all("Provides-Extra", [])
    )


def test_its_description_has_absolute_links_and_the_projects_addresses(built: list[Path]) -> None:
    """A package index shows it without the files beside it."""
    with zipfile.ZipFile(built[1]) as wheel:
        directory = f"ferroscope-{ferroscope.__version__}.dist-info"
        metadata = Parser().parsestr(wheel.read(f"{directory}/METADATA").decode())
    addresses = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Source", "Changelog", "Issues"} == set(addresses)
    links = re.findall(r"\]\(([^)#][^)]*)\)", str(metadata.get_payload()))
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    paths = [link.partition("/main/")[2].partition("#")[0] for link in links if link.startswith(addresses["Source"])]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert "dev" not in metadata.get_all("Provides-Extra", [])


def test_the_source_distribution_has_what_building_and_reading_it_needs(built: list[Path]) -> None:
    top = f"ferroscope-{ferroscope.__version__}/"
    with tarfile.open(built[0]) as archive:
        names = {name.removeprefix(top) for name in archive.getnames()}
    assert (
        _tracked("src", "client", "deploy", "docs", "examples", "tools", "LICENSE", "README.md", "requirements.txt")
        <= names
    )


def test_the_client_alone_has_five_dependencies_and_says_which_commands_it_lacks(
    built: list[Path], tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python, command = tmp_path / "venv/bin/python", tmp_path / "venv/bin/ferroscope"

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=alone, cwd=tmp_path)

    assert run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", built[3]).returncode == 0
    listed = run(python, "-m", "pip", "list", "--format=freeze").stdout.splitlines()
    needed = {"click", "msgspec", "PyYAML", "rich", "urllib3"}
    names = {line.partition("==")[0] for line in listed}
    assert names - {"pip", "setuptools"} == {"ferroscope-client", *needed, "markdown-it-py", "mdurl", "Pygments"}
    refused = run(command, "worker")
    assert (refused.returncode, refused.stdout) == (Exit.USAGE, "")
    assert "pipx inject ferroscope-client ferroscope" in refused.stderr


def test_the_wheel_works_in_an_empty_environment(built: list[Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    # The pinned versions, and nothing else: what the wheel needs and they lack would be an error.
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / "requirements.txt"], check=True)
    subprocess.run([*pip, "--no-index", built[3], f"{built[1]}[postgresql,mysql,openstack,kubernetes]"], check=True)

    def run(*words: str) -> str:
        command = [tmp_path / "venv/bin/ferroscope", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300 * slowness()
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("--version").split()[-1] == ferroscope.__version__
    assert "All 2 finished" in run("demo", "--nodes", "2")
    installed = tmp_path / f"venv/lib/python{contents.PYTHON}/site-packages/ferroscope/contrib/ui"
    assert {one.suffix for one in (installed / "static").iterdir()} >= {".css", ".js"}
    assert list((installed / "templates").glob("*.html"))
    assert (tmp_path / "venv/share/man/man1/ferroscope.1").exists()
    assert (tmp_path / "venv/share/ferroscope/deploy/kubernetes/base/api.yaml").exists()


def test_pipx_installs_it_with_all_extras(built: list[Path], tmp_path: Path) -> None:
    pinned = tmp_path / "constraints.txt"
    pins = [line.partition(" \\")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    pinned.write_text("\n".join(pins))
    places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "PATH": os.environ["PATH"]}
    constraint = ["--pip-args", f"--quiet --constraint={pinned}"]
    command = ["pipx", "install", "--python", sys.executable, *constraint]
    inject = ["pipx", "inject", *constraint, "ferroscope-client"]
    for words in ([*command, built[3]], [*inject, f"{built[1]}[all]"]):
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=1500 * slowness(),
            env={**places, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def run(*words: str) -> str:
        environment = {**places, "HOME": str(tmp_path)}
        done = subprocess.run(
            [tmp_path / "bin/ferroscope", *words], capture_output=True, text=True, check=False, env=environment,
            timeout=300 * slowness(), cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("--version").split()[-1] == ferroscope.__version__
    assert "All 2 finished" in run("demo", "--nodes", "2")
    python = tmp_path / "pipx/venvs/ferroscope-client/bin/python"
    subprocess.run([python, "-c", f"import {', '.join(EXTRAS)}"], check=True)
    # The line of the page that leads man to its pages: pipx before 1.3 does not.
    (line,) = [one for one in steps("docs/how-to/install-a-package.md") if one.startswith("export MANPATH=")]
    where = places | {"PATH": f"{tmp_path / 'bin'}:{places['PATH']}"}
    subprocess.run(["bash", "-c", f'{line}; test -e "${{MANPATH%:}}/man1/ferroscope-node.1"'], check=True, env=where)
