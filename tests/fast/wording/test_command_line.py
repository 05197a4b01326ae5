"""The command line: standard error of a command."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from ferroscope.cli.client import UnreachableError
from ferroscope.cli.exits import Failure
from ferroscope.cli.main import unexpected
from tests.fast.cli.running import run
from tests.fast.wording.table import wrong
from tests.support import misses


def _stderr(*arguments: str) -> Callable[[], str]:
    return lambda: run(*arguments).stderr


def _shown(failure: Failure) -> Callable[[], str]:
    def provoke() -> str:
        stream = io.StringIO()
        failure.show(stream)
        return stream.getvalue()

    return provoke


CLI: Final[tuple[tuple[str, Callable[[], str], str], ...]] = (
    (
        "unreachable",
        _shown(UnreachableError("http://127.0.0.1:6385", "connection refused")),
        "Error: cannot connect to the Bare Metal API at http://127.0.0.1:6385: connection refused\n"
        "  start it with 'ferroscope all', or set --url or FERROSCOPE_URL\n",
    ),
    (
        "internal error",
        _shown(unexpected(KeyError("uuid"))),
        "Error: internal error: KeyError: 'uuid'\n"
        "  run it again with 'ferroscope --debug ...', and report the output\n",
    ),
    (
        "no query",
        lambda: _stderr("search")().splitlines()[-1],
        "Error: missing QUERY; for example: ferroscope search 'memory_gb >= 512'",
    ),
    (
        "no nodes selected",
        lambda: _stderr("node", "manage")().splitlines()[-1],
        "Error: specify nodes, exactly one of --all, --failed and --state, or labels (-l rack=r1). NODE is a name, a "
        "UUID, a MAC address or a BMC address. A pattern such as 'rack1-*' selects all nodes with matching names.",
    ),
    (
        "empty identifier",
        _stderr("node", "show", ""),
        "Error: invalid identifier ''\n  if it comes from a variable in a script, check that the variable is set\n",
    ),
    (
        "not UTF-8",
        _stderr("node", "show", "\udcff"),
        "Error: an argument is not valid UTF-8\n",
    ),
    (
        "unknown command",
        lambda: _stderr("nodes", "list")().splitlines()[-1],
        "Error: No such command 'nodes'. Did you mean 'ferroscope node list' or 'ferroscope node'?",
    ),
    (
        "invalid MAC address of a port",
        lambda: _stderr("node", "create", "n1", "--driver", "sim", "--port", "52-54")().splitlines()[-1],
        "Error: Invalid value for '--port': invalid MAC address '52-54': expected, for example, 52:54:00:12:34:56",
    ),
    (
        "missing configuration file",
        _stderr("api", "-c", "/nonexistent/ferroscope.conf"),
        "Error: invalid configuration: no such configuration file: /nonexistent/ferroscope.conf\n",
    ),
    (
        "invalid URL",
        _stderr("node", "list", "--url", "localhost:6385"),
        'Error: invalid URL "localhost:6385": expected http://HOST[:PORT]\n'
        "  set --url or FERROSCOPE_URL, for example to http://127.0.0.1:6385\n",
    ),
)


def test_command_line() -> None:
    misses.none(wrong(CLI))
