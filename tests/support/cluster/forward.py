"""Forwards TCP connections: ``python -m tests.support.cluster.forward [NAMESPACE@]LISTEN:PORT TARGET:PORT ...``.

Through it, a process in a network namespace reaches the servers on 127.0.0.1 of the host: either over a link to the
host, or without one, as the forwarder listens in NAMESPACE and connects outside of it. ``NAMESPACE@TARGET:PORT`` is a
server in a namespace. If the network in between is partitioned, the server's side of a connection stays open and
silent, as it does when a host is lost. Stopped by SIGSTOP, the forwarder behaves like a peer that accepts and
acknowledges everything but never answers.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import nullcontext, suppress

from tests.support.pxe.netns import entered


async def main(addresses: list[str]) -> None:
    servers = []
    for listen, target in zip(addresses[::2], addresses[1::2], strict=True):
        servers.append(await asyncio.start_server(Forward(target), sock=_listener(listen)))
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    await asyncio.gather(*(server.serve_forever() for server in servers))


def _listener(place: str) -> socket.socket:
    """Return a socket that listens at ``[NAMESPACE@]IP:PORT``."""
    namespace, _, address = place.rpartition("@")
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with entered(namespace) if namespace else nullcontext():
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=256)


class Forward:
    """Connects each client to ``target``."""

    def __init__(self, target: str) -> None:
        self._namespace, _, address = target.rpartition("@")
        self._host, _, port = address.rpartition(":")
        self._port = int(port)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(sock=await self._connected())
        except OSError:
            writer.transport.abort()  # as if the port were closed
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async def _connected(self) -> socket.socket:
        with entered(self._namespace) if self._namespace else nullcontext():
            client = socket.socket()
        client.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(client, (self._host, self._port))
        except OSError:
            client.close()
            raise
        return client


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with suppress(OSError):
        sink.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
