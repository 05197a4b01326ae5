"""Finds other DHCP servers on a network: it asks like a booting machine, and listens for answers.

It takes no address: an unused offer expires by itself. It does not find a server that answers only known machines, or
one behind a switch that guards DHCP. Needs CAP_NET_RAW.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from ferroscope.contrib.boot import dhcp_message
from ferroscope.contrib.boot.dhcp_message import OFFER, REQUEST, DhcpReply

_IPV4_ETHERTYPE: Final = 0x0800
_PROXY_PORT: Final = 4011
# Some servers ping an address for up to three seconds before they offer it.
PROBE_SECONDS: Final = 5.0
_REPEAT_SECONDS: Final = 1.5
# UEFI on x86-64: servers may answer it differently than an ordinary client.
_FIRMWARE_ARCHITECTURE: Final = 7


class Server(msgspec.Struct, frozen=True):
    """A DHCP server that has answered. ``offers``: an address; a proxy offers only a boot file."""

    address: str
    offers: str = ""
    netmask: str = ""
    router: str = ""
    boot_file: str = ""

    def __str__(self) -> str:
        parts = [f"offers {self.offers}" if self.offers else "assigns no addresses (a proxy)"]
        if self.boot_file:
            parts.append(f"boots {self.boot_file}")
        return f"{self.address} ({', '.join(parts)})"


def random_mac() -> str:
    """Return a locally administered MAC address, which no machine has."""
    return (b"\x02" + os.urandom(5)).hex(":")


def servers(interface: str, *, seconds: float = PROBE_SECONDS) -> list[Server]:
    """Return the servers that answer on this interface, by address; ``OSError``."""
    mac = random_mac()
    questions = {_number(): dhcp_message.message(mac, 0, architecture=kind) for kind in (None, _FIRMWARE_ARCHITECTURE)}
    return merge_replies(list(answers(interface, mac, questions, seconds=seconds)))


def answers(interface: str, mac: str, questions: Mapping[int, bytes], *, seconds: float) -> Iterator[DhcpReply]:
    """Send messages, by transaction number, repeatedly; yield the offers as they arrive."""
    frames = [dhcp_message.frame(dhcp_message.with_number(question, xid), mac) for xid, question in questions.items()]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4_ETHERTYPE)) as link:
        link.bind((interface, _IPV4_ETHERTYPE))
        end, again = time.monotonic() + seconds, 0.0
        while (now := time.monotonic()) < end:
            if now >= again:
                again = now + _REPEAT_SECONDS
                for frame in frames:
                    link.send(frame)
            ready, _, _ = select.select([link], [], [], max(0.0, min(again, end) - now))
            answer = dhcp_message.in_frame(link.recv(4096)) if ready else None
            if answer is not None and answer.xid in questions and answer.mac == mac and answer.kind == OFFER:
                yield answer


def _number() -> int:
    return int.from_bytes(os.urandom(4), "big")


def ask(interface: str, mac: str, question: bytes, *, seconds: float, of: str = "") -> DhcpReply | None:
    """Return the first offer; ``of``: only of the server with this address."""
    for answer in answers(interface, mac, {_number(): question}, seconds=seconds):
        if not of or answer.server == of:
            return answer
    return None


def ask_proxy(server: str, mac: str, own: str, *, architecture: int, seconds: float) -> DhcpReply | None:
    """Ask a proxy on port 4011 for the boot file, as UEFI does once it has the address ``own``."""
    xid = _number()
    question = dhcp_message.message(mac, xid, kind=REQUEST, architecture=architecture, own=own)
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((own, _PROXY_PORT))
        while (left := end - time.monotonic()) > 0:
            client.sendto(question, (server, _PROXY_PORT))
            client.settimeout(min(left, _REPEAT_SECONDS))
            with suppress(OSError):  # nothing yet, or an ICMP error: ask again
                answer = dhcp_message.reply(client.recv(4096))
                if answer is not None and answer.xid == xid:
                    return answer
    return None


def merge_replies(replies: list[DhcpReply]) -> list[Server]:
    """Return the servers of these answers: a server may tell firmware more than an ordinary client."""
    by_address: dict[str, Server] = {}
    for answer in replies:
        before = by_address.get(answer.server, Server(answer.server))
        by_address[answer.server] = Server(
            answer.server,
            offers=before.offers or answer.address,
            netmask=before.netmask or answer.netmask,
            router=before.router or answer.router,
            boot_file=before.boot_file or answer.boot_file,
        )
    return sorted(by_address.values(), key=lambda server: server.address)


def routers(servers_found: Iterable[Server]) -> dict[str, str]:
    """Return the routers that servers tell machines, by an address that they offer."""
    return {server.offers: server.router for server in servers_found if server.offers}
