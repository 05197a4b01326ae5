"""The program as a process of its own: how it starts, and what it says where it cannot write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit

HEAVY = ("rich", "urllib3", "yaml", "sqlalchemy", "falcon", "alembic", "oslo_config", "structlog", "asyncio")


LIGHT = ([], ["node"], ["node", "list"], ["node", "create"], ["inspect"], ["status"], ["sim"], ["demo"])


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from ferroscope_client.cli.main import main\n"
        f"for arguments in {LIGHT!r}:\n"
        "    try: main([*arguments, '--help'])\n"
        "    except SystemExit: pass\n"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit(', '.join(found) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"imported: {done.stderr}"
    assert done.stdout.count("Usage: ") == len(LIGHT)


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "ferroscope", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ferroscope, version ")


PRINTS = ("search --fields -o json", "--help", "explain")


@pytest.mark.parametrize("arguments", PRINTS)
def test_output_that_cannot_be_written_is_one_line(arguments: str) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        command = [sys.executable, "-m", "ferroscope", *arguments.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (Exit.FAILURE, "Error: No space left on device\n")


@pytest.mark.parametrize("target", [">/dev/full", "| true"])
def test_a_completion_that_cannot_be_written_is_no_traceback(target: str) -> None:
    script = f'_FERROSCOPE_COMPLETE=bash_source "$1"/ferroscope {target}'
    where = str(Path(sys.executable).parent)
    done = subprocess.run(["sh", "-c", script, "-", where], stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", PRINTS)
def test_output_that_nobody_reads_is_silence(arguments: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "ferroscope", *arguments.split()]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (Exit.FAILURE, "")


def test_a_command_whose_output_is_closed_does_its_work_in_silence() -> None:
    script = '"$1" -m ferroscope search --fields >&-'
    done = subprocess.run(["sh", "-c", script, "-", sys.executable], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("fmt", "text"), [("table", "\\xe4"), ("json", '"\\u00e4"'), ("yaml", '"\\xE4"')])
def test_a_terminal_that_lacks_a_letter_gets_its_number(fmt: str, text: str) -> None:
    code = (
        "from ferroscope_client.cli.main import main\nfrom ferroscope_client.cli import inventory\n"
        "inventory._list_fields = lambda out: out.show({'name': 'ä'}, lambda screen: screen.print('ä'))\n"
        f"main(['search', '--fields', '-o', '{fmt}'])"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", code]
    assert text in subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
