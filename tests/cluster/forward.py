"""Forwards TCP connections, byte by byte: ``python -m tests.cluster.forward LISTEN:PORT TARGET:PORT ...``.

A process that lives in a network namespace reaches the servers on 127.0.0.1 of the host through it.
Where the network between the two is cut, the server's side of a connection stays open and silent, as it does
when a host is lost. Stopped by SIGSTOP it plays a peer that accepts and acknowledges everything, and is mute.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def main(addresses: list[str]) -> None:
    servers = []
    for listen, target in zip(addresses[::2], addresses[1::2], strict=True):
        host, _, port = listen.rpartition(":")
        servers.append(await asyncio.start_server(Forward(target), host, int(port), backlog=256))
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    await asyncio.gather(*(server.serve_forever() for server in servers))


class Forward:
    """Answers a connection by one to ``target``."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()  # as if nobody listened
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with suppress(OSError):
        sink.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
