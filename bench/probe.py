"""One tree's api and worker in one process, driven by one thread, for ``gate``: only their own work is measured.

What other threads of the process do counts, too: work does not become cheaper by being handed to one of them.

Run as ``python -m bench.probe DIRECTORY`` by the interpreter of the tree that is measured; this file is that of the
tree that compares. It answers each command with what one inspection, callback and list cost: CPU milliseconds, or
thousands of instructions of Python's interpreter, whose number depends neither on the machine nor on its other work.
"""

from __future__ import annotations

import io
import itertools
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final
from wsgiref.util import setup_testing_defaults

import msgspec
import structlog

from ferroscope.bmc.fake import FakeBmc
from ferroscope.config.load import load
from ferroscope.core.model import Member
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime import wiring
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope_sim.inventory import generate, pxe_mac

NODES: Final = 50
_MEMBER: Final = "probe"
_SIZE_BYTES: Final = 36_000
_FOREVER_SECONDS: Final = 86_400.0
_MAX_REQUESTS: Final = 4
_WARM_TIMES: Final = 5  # inspections before counting, for what is computed once


class _SameThread:
    """A place for what follows; another commit may have its own elsewhere."""

    def take(self, locked: Any) -> Any:
        return locked

    def release(self) -> None: ...


class WrongAnswerError(Exception):
    """The service did not do what is to be measured."""


class Probe:
    """A service on a new SQLite database in ``directory``, with ``NODES`` nodes that can be inspected."""

    def __init__(self, directory: Path) -> None:
        config = directory / "ferroscope.conf"
        database = f"sqlite:///{directory / 'ferroscope.db'}"
        config.write_text(f"[database]\nconnection = {database}\n[drivers]\nenabled = fake-hardware\n")
        settings, clock, stop = load([str(config)]), SystemClock(), threading.Event()
        ensure_schema(settings, upgrade=True)
        backend = open_backend(settings, clock=clock, stop=stop, listen=False)
        # Polls would be part of what is measured, the more the slower the machine is. Older trees have the other name.
        for name in ("_poll_seconds", "_poll_interval"):
            setattr(backend.queue, name, 3600.0)
        backend.queue._looked_at = -3600.0
        drivers = {"fake-hardware": FakeBmc()}
        self._app = wiring.build_app(settings, backend, drivers, process=_MEMBER, stop=stop)
        pool = wiring.build_pool(
            settings,
            backend,
            drivers,
            clock=clock,
            stop=stop,
            member=_MEMBER,
            process=_MEMBER,
            claim_valid_for=lambda _confirmed: _FOREVER_SECONDS,
        )
        self._worker = pool._worker  # the threads of the pool would only add noise
        setattr(self._worker, "reserve", lambda _event, _request: _SameThread())  # noqa: B010  # a method since then
        member = Member(id=_MEMBER, host="localhost", pid=1, role="worker", started_at=clock.time())
        backend.store.write(lambda tx: tx.members.beat(member, _FOREVER_SECONDS))
        self._bodies = {self._enroll(number): generate(number, size=_SIZE_BYTES) for number in range(1, NODES + 1)}
        self._uuids = itertools.cycle(self._bodies)

    def cpu(self, times: int) -> dict[str, float]:
        """Return the milliseconds of one inspection, of its callback with what that leads to, and of one list."""
        return self.measure(times, time.process_time)

    def measure(self, times: int, clock: Callable[[], float]) -> dict[str, float]:
        inspections = callbacks = 0.0
        for _ in range(times):
            uuid = next(self._uuids)
            began = clock()
            self._start(uuid)
            called = clock()
            self._call_back(uuid)
            ended = clock()
            inspections, callbacks = inspections + ended - began, callbacks + ended - called
        began = clock()
        for _ in range(times):
            found = self._call("GET", "/v1/nodes", 200, query="limit=50&fields=uuid,name,provision_state,driver_info")
            if len(found["nodes"]) != NODES:
                raise WrongAnswerError(f"the list has {len(found['nodes'])} nodes")
        spent = {"inspection": inspections, "callback": callbacks, "list": clock() - began}
        return {what: seconds * 1000 / times for what, seconds in spent.items()}

    def _start(self, uuid: str) -> None:
        self._call("PUT", f"/v1/nodes/{uuid}/states/provision", 202, {"target": "inspect"})
        self._work_until(uuid, "inspect wait")

    def _call_back(self, uuid: str) -> None:
        self._call("POST", "/v1/continue_inspection", 202, msgspec.Raw(self._bodies[uuid]))
        self._work_until(uuid, "manageable")

    def _enroll(self, number: int) -> str:
        made = self._call("POST", "/v1/nodes", 201, {"name": f"node-{number}", "driver": "fake-hardware"})
        uuid: str = made["uuid"]
        self._call("POST", "/v1/ports", 201, {"node_uuid": uuid, "address": pxe_mac(number)})
        self._call("PUT", f"/v1/nodes/{uuid}/states/provision", 202, {"target": "manage"})
        self._work_until(uuid, "manageable")
        return uuid

    def _work_until(self, uuid: str, state: str) -> None:
        for _ in range(_MAX_REQUESTS):
            self._worker.step()
            found = self._call("GET", f"/v1/nodes/{uuid}", 200, query="fields=provision_state,last_error")
            if found["provision_state"] == state:
                return
        raise WrongAnswerError(f"a node is {found['provision_state']}, not {state}: {found['last_error']}")

    def _call(self, method: str, path: str, status: int, body: object = None, query: str = "") -> Any:
        content = b"" if body is None else msgspec.json.encode(body)
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": "localhost:6385",
            "HTTP_X_OPENSTACK_IRONIC_API_VERSION": "1.84",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content),
        }
        setup_testing_defaults(environ)
        said: list[str] = []

        def start_response(line: str, _headers: object, _exc: object = None) -> Callable[[bytes], object]:
            said.append(line)
            return lambda _chunk: None

        answer = b"".join(self._app(environ, start_response))
        if int(said[-1][:3]) != status:
            raise WrongAnswerError(f"{method} {path}: {said[-1]} {answer[:300].decode(errors='replace')}")
        return msgspec.json.decode(answer) if answer else None


def count_instructions(directory: Path, times: int) -> dict[str, float]:
    """Return what ``Probe.cpu`` does, in thousands of instructions.

    A thread can only be traced from its start, so this is a new service.
    """
    executed: Counter[int] = Counter()  # by thread: an addition may be interrupted by other threads

    def count(_frame: FrameType, event: str, _what: object) -> Any:
        executed[threading.get_ident()] += event == "opcode"
        return count

    def begin(frame: FrameType, _event: str, _what: object) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return count

    threading.settrace(begin)
    try:
        probe = Probe(directory)
        probe.cpu(_WARM_TIMES)
        sys.settrace(begin)
        return probe.measure(times, lambda: executed.total() / 1e6)
    finally:
        sys.settrace(None)
        threading.settrace(None)


def main(directory: Path) -> None:
    """Serve commands until the input ends."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    (traced := directory / "traced").mkdir()
    probe = Probe(directory)
    verbs: dict[str, Callable[..., dict[str, float]]] = {
        "cpu": probe.cpu,
        "instructions": partial(count_instructions, traced),
    }
    for line in sys.stdin:
        command = msgspec.json.decode(line)
        found = verbs[command["do"]](times=command["times"])
        print(msgspec.json.encode(found).decode(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
