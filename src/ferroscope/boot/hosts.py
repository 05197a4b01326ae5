"""Which of the boot hosts this one is."""

from __future__ import annotations

import socket
from collections.abc import Collection


def own_name(hosts: Collection[str]) -> str:
    """Return this host's name as ``hosts`` has it: with its domain, or without; with it where it is none of them."""
    name = socket.gethostname()
    short = name.partition(".")[0]
    return short if short in hosts and name not in hosts else name
