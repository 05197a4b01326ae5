"""Runs the published clients for the tests: every run is a process, as from a shell.

It lives in the clients' environment, imports them once (that takes longer than most runs) and
forks for each request that comes in on its Unix socket; so any number may run at the same time. It
ends when its standard input is closed. A request names either a command, with its words, or a function
of a module beside this file, with its arguments; the answer has the exit code and the output.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, BinaryIO

COMMANDS = ("baremetal", "openstack")
HERE = Path(__file__).parent
_LAZY = (
    "ironicclient.v1.client",
    "ironicclient.osc.v1.baremetal_chassis",
    "ironicclient.osc.v1.baremetal_conductor",
    "ironicclient.osc.v1.baremetal_inspection_rule",
    "ironicclient.osc.v1.baremetal_node",
    "ironicclient.osc.v1.baremetal_port",
    "ironicclient.osc.v1.baremetal_portgroup",
)


def main(listener: socket.socket) -> None:
    """Serve requests until standard input is closed."""
    _import_clients()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who serve one request
    print("ready", flush=True)
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in ready.select()):
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _serve(connection)
                os._exit(0)
            connection.close()


def _import_clients() -> None:
    for name in COMMANDS:
        _entry_point(name)
    for module in _LAZY:
        importlib.import_module(module)
    for file in HERE.glob("*.py"):
        if file.stem != Path(__file__).stem:
            importlib.import_module(file.stem)


def _serve(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rw") as stream:
        request = json.loads(stream.readline())
        stream.write(json.dumps(_run(request)) + "\n")


def _run(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os._exit(_perform(request, out, err))
        _, status = os.waitpid(child, 0)
        texts = [os.pread(file.fileno(), 1 << 26, 0).decode(errors="replace") for file in (out, err)]
        return {"code": os.waitstatus_to_exitcode(status), "out": texts[0], "err": texts[1]}


def _perform(request: dict[str, Any], out: BinaryIO, err: BinaryIO) -> int:
    """Return the exit code."""
    signal.alarm(int(request["seconds"]))
    with Path(os.devnull).open() as nothing:
        for number, file in enumerate((nothing, out, err)):
            os.dup2(file.fileno(), number)
    try:
        if "command" in request:
            return _command(request["command"], request["words"])
        return _function(request["function"], request["arguments"])
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001  # as the interpreter does it where nobody else does
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _command(name: str, words: list[str]) -> int:
    entry_point = _entry_point(name)
    sys.argv = [str(Path(sys.prefix) / "bin" / name), *words]
    return int(entry_point(words) or 0)


def _function(name: str, arguments: dict[str, Any]) -> int:
    """Print what the function returns, or what it raises, as JSON; whatever else it prints goes to stderr."""
    module, _, attribute = name.partition(".")
    answer = sys.stdout
    sys.stdout = sys.stderr
    try:
        outcome = {"value": getattr(importlib.import_module(module), attribute)(**arguments)}
    except Exception as exc:  # noqa: BLE001  # the test raises it
        traceback.print_exc()
        outcome = {"raised": type(exc).__name__, "message": str(exc)}
    print(json.dumps(outcome, default=str), file=answer, flush=True)
    return 0


def _entry_point(name: str) -> Any:
    (found,) = importlib.metadata.entry_points(group="console_scripts", name=name)
    return found.load()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
