"""The scan for published advisories, beside a scanner that finds some, none, or nothing out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import audit
from tools.audit import CLEAN, NOT_CHECKED, VULNERABLE


def _scanner(path: Path, output: str, code: int) -> Path:
    script = path / "scanner"
    (path / "output").write_text(output)
    script.write_text(f"#!/bin/sh\ncat {path}/output\necho 'connection refused' >&2\nexit {code}\n")
    script.chmod(0o755)
    return script


_CLEAN_PACKAGE = {"name": "a", "version": "1", "vulns": []}


_VULNERABLE_PACKAGE = {
    "name": "b",
    "version": "2",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": []}],
}


_SKIPPED_PACKAGE = {"name": "c", "skip_reason": "not found on the index"}


@pytest.mark.parametrize(
    ("packages", "code", "expected"),
    [
        ([_CLEAN_PACKAGE], 0, CLEAN),
        ([_CLEAN_PACKAGE, _VULNERABLE_PACKAGE], 1, VULNERABLE),
        ([_CLEAN_PACKAGE, _SKIPPED_PACKAGE], 0, NOT_CHECKED),
        (None, 1, NOT_CHECKED),
        ([], 0, NOT_CHECKED),
    ],
)
def test_a_scan_that_did_not_happen_is_no_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: list[object] | None, code: int, expected: int
) -> None:
    output = "Traceback" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    monkeypatch.setattr(audit, "SCANNER", _scanner(tmp_path, output, code))
    assert audit.main([]) == expected
