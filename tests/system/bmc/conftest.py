"""A rack of emulated Redfish machines for these tests, and a proxy before it that makes faults to order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from tests.support import images
from tests.support.faulty_proxy import FaultyProxy, proxy_to
from tests.support.processes import PATIENCE
from tests.support.redfish import Emulator, emulator
from tests.support.speed import slowness

MACHINES = 48

# The emulators speak http, and tests make their own CA files.
LAX = BmcLimits(http_passwords=True, ca_directory="/")
MakeBmc = Callable[..., RedfishBmc]


class Images(BaseHTTPRequestHandler):
    """A web server with the ramdisk's image on it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(images.iso())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the overridden method
        pass


@pytest.fixture(scope="package")
def iso() -> Iterator[str]:
    """Give the URL of a ramdisk's image."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Images)
    thread = Thread(target=partial(server.serve_forever, 0.02), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/ramdisk.iso"
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


@pytest.fixture(scope="package")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Give an emulator with dozens of machines, whose power state follows at once."""
    with emulator(tmp_path_factory.mktemp("rack"), machines=MACHINES) as running:
        yield running


@pytest.fixture
def proxy(rack: Emulator) -> Iterator[FaultyProxy]:
    """Give the proxy before the rack."""
    with proxy_to(rack.url) as running:
        yield running


@pytest.fixture
def session_proxy(rack: Emulator) -> Iterator[FaultyProxy]:
    """Give a proxy that has a session service too."""
    with proxy_to(rack.url, sessions=True) as running:
        yield running


@pytest.fixture
def make_bmc() -> Iterator[MakeBmc]:
    """Return a function that makes drivers, which log out after the test."""
    with ExitStack() as stack:

        def make(*, timeout: float = 5.0, inventory_timeout: float = 10.0, limits: BmcLimits = LAX) -> RedfishBmc:
            longest = {"command_timeout": timeout * slowness(), "inventory_timeout": inventory_timeout * slowness()}
            bmc = RedfishBmc(DriverOptions(**longest, limits=limits))
            return stack.enter_context(closing(bmc))

        yield make
