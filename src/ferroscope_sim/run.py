"""Runs a fleet: in the foreground until a signal, or in a separate thread.

It prints nothing; ``ready`` is called with the BMCs' addresses once they answer.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ferroscope_sim.fleet import SimFleet
from ferroscope_sim.model import FleetSettings
from ferroscope_sim.outcomes import Counters
from ferroscope_sim.server import BmcAddresses, BmcServer

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(settings: FleetSettings, *, ready: Callable[[BmcAddresses], None] | None = None) -> Counters:
    """Run the fleet until SIGTERM or SIGINT; return its counters.

    Call it from the main thread, which receives signals. ``ValueError`` for invalid settings, ``OSError`` if a port is
    in use or the inventory file cannot be read.
    """
    return asyncio.run(_until_signal(settings, ready))


async def _until_signal(settings: FleetSettings, ready: Callable[[BmcAddresses], None] | None) -> Counters:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    return await serve(settings, stop, lambda _, places: ready(places) if ready else None)


async def serve(
    settings: FleetSettings, stop: asyncio.Event, ready: Callable[[SimFleet, BmcAddresses], None]
) -> Counters:
    """Run the fleet in the current event loop until ``stop`` is set; return its counters."""
    fleet = SimFleet(settings)
    server = BmcServer(fleet)
    try:
        ready(fleet, await server.start())
        await stop.wait()
    finally:
        await server.stop()
        await fleet.close()
    return fleet.totals


class FleetThread:
    """A fleet in a separate thread: ``with FleetThread(settings) as running: running.bmcs``.

    ``bmcs`` has each BMC's ``IP:PORT`` by machine name; ``address`` answers for all of them.

    ``fleet`` may be read from other threads, but changed only through ``client`` or the port.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        self._up = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="fleet", daemon=True)
        self.address = ""
        self.bmcs: dict[str, str] = {}
        self.fleet: SimFleet

    def __enter__(self) -> FleetThread:
        """Start; return once the BMCs answer. Raises the error that prevented the start."""
        self._thread.start()
        self._up.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for the end."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits for the start
            self._failure = error
        finally:
            self._up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await serve(self._settings, self._stop, self._ready)

    def _ready(self, fleet: SimFleet, places: BmcAddresses) -> None:
        self.fleet, self.address, self.bmcs = fleet, places.control, places.bmcs
        self._up.set()


class Beside:
    """Something that goes on in a thread of its own while a block runs, such as watching the fleet.

    ``_run`` returns when ``_stop`` is set, at the end of the block at the latest.
    """

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
