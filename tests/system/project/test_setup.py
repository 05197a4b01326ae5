"""What the goals of the Makefile install."""

from __future__ import annotations

import subprocess

import pytest

from tests import ROOT


def _steps(target: str) -> str:
    """Return what ``make`` would run."""
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_what_users_call_installs_no_test_tools() -> None:
    assert "tools/setup.sh venv\n" in _steps("demo")


@pytest.mark.parametrize("target", ["format", "bench", "release"])
def test_what_contributors_call_installs_them_first(target: str) -> None:
    assert _steps(target).startswith("tools/setup.sh dev")


def test_an_environment_that_is_not_there_is_an_error_and_the_others_are_listed() -> None:
    refused = subprocess.run(
        ["tools/setup.sh", "venv", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "nothing" in refused.stderr
    listed = subprocess.run(["tools/setup.sh"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert {line.split()[0] for line in listed.stdout.splitlines()} >= {"venv", "dev", "postgresql"}
