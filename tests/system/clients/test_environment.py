"""The clients' environment: what is missing is an error that says what to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.clients import environment
from tests.system.clients.environment import MissingClientsError, check_installed


def test_a_missing_environment_names_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ENVIRONMENT", tmp_path / ".clients-venv")
    with pytest.raises(MissingClientsError, match=r"there is no \.clients-venv.*run: make clients"):
        check_installed()


def test_another_version_than_the_pinned_one_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "some_client-1.0.dist-info").mkdir()
    (packages / "other_client-2.0.dist-info").mkdir()
    pins = tmp_path / "clients.txt"
    pins.write_text("# clients\nsome-client==1.0\nother-client==2.1  # newer\n")
    monkeypatch.setattr(environment, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(environment, "REQUIREMENTS", pins)
    with pytest.raises(MissingClientsError, match=r"\(clients\.txt wants other-client\); run: make clients"):
        check_installed()
