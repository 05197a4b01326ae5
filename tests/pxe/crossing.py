"""Lets a namespace reach a server on 127.0.0.1 of the host: ``python -m tests.pxe.crossing NAME@IP:PORT IP:PORT ...``.

It listens in the namespace and connects from outside; so the two are joined by this process alone, and by no link.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from tests.cluster.forward import Forward
from tests.pxe.netns import entered


def _listener(place: str) -> socket.socket:
    """Return a socket that listens at ``NAME@IP:PORT``."""
    name, _, address = place.partition("@")
    host, _, port = address.rpartition(":")
    with entered(name):
        return socket.create_server((host, int(port)), backlog=256)


async def main(words: list[str]) -> None:
    pairs = zip(words[::2], words[1::2], strict=True)
    servers = [await asyncio.start_server(Forward(target), sock=_listener(place)) for place, target in pairs]
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
