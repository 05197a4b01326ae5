"""Rules that would expand without end, in a process with little memory."""

from __future__ import annotations

import resource
import subprocess
import sys

from tests.fast.rules.test_rule_expansion import BOMBS
from tests.support.processes import PATIENCE


def test_no_bomb_takes_memory() -> None:
    code = (
        "import sys\n"
        "from ferroscope.rules.data import InvalidRuleError\n"
        "from ferroscope.rules.patterns import compile_pattern\n"
        "for pattern in sys.argv[1:]:\n"
        "    try:\n"
        "        compile_pattern(pattern)\n"
        "    except InvalidRuleError:\n"
        "        print('refused')\n"
    )
    deep = ["(" * 400 + ")" * 400]
    done = subprocess.run(
        [sys.executable, "-c", code, *BOMBS, *deep],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=_bounded,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["refused"] * len(BOMBS + deep)


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (400 * 1024**2, 400 * 1024**2))
