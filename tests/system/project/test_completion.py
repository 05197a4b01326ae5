"""The completion of the shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fast.docs.test_packaging import share

__all__ = ["share"]


def test_the_completion_of_bash_is_a_valid_script_that_asks_the_command(share: Path) -> None:
    script = share / "bash-completion/completions/ferroscope"
    assert subprocess.run(["bash", "-n", script], capture_output=True, check=False).returncode == 0
    for shell in ("bash-completion/completions/ferroscope", "zsh/site-functions/_ferroscope"):
        assert "_FERROSCOPE_COMPLETE=" in (share / shell).read_text()
