"""DHCP messages as machines send them, and answers as servers and attackers send them."""

from __future__ import annotations

import random
import struct

from ferroscope.contrib.boot import dhcp_message
from ferroscope.contrib.boot.dhcp_message import DhcpReply
from ferroscope.contrib.boot.dhcp_probe import Server, merge_replies

_MAC = "52:54:00:ab:00:01"


def _offer(**options: bytes) -> bytes:
    """Return an offer of 10.0.0.50 by 10.0.0.2, with more options by their number (``o43``)."""
    request = dhcp_message.message(_MAC, 7)
    head = bytearray(request[:240])
    head[0], head[16:20], head[108:117] = 2, bytes([10, 0, 0, 50]), b"boot.file"
    more = b"".join(bytes([int(name[1:]), len(value)]) + value for name, value in options.items())
    return bytes(head) + b"\x35\x01\x02\x36\x04\x0a\x00\x00\x02" + more + b"\xff"


def test_a_discover_is_one_of_a_machine_and_its_frame_is_valid() -> None:
    payload = dhcp_message.message(_MAC, 7, architecture=7)
    assert b"PXEClient:Arch:00007" in payload
    assert b"HTTPClient" in dhcp_message.message(_MAC, 7, architecture=16)
    frame = dhcp_message.frame(payload, _MAC)
    assert frame[:14] == b"\xff" * 6 + bytes.fromhex(_MAC.replace(":", "")) + b"\x08\x00"
    words = struct.unpack("!10H", frame[14:34])
    assert (sum(words) & 0xFFFF) + (sum(words) >> 16) == 0xFFFF  # the checksum of the IP header
    assert dhcp_message.with_number(payload, 9)[4:8] == b"\0\0\0\x09"


def test_an_offer_says_who_offers_what() -> None:
    found = dhcp_message.reply(_offer(o1=b"\xff\xff\xff\x00", o3=bytes([10, 0, 0, 1, 10, 0, 0, 9])))
    assert found == DhcpReply(
        7, _MAC, dhcp_message.OFFER, "10.0.0.2", "10.0.0.50", "255.255.255.0", "10.0.0.1", "", "boot.file"
    )


def test_what_a_server_says_cannot_write_to_a_terminal() -> None:
    found = dhcp_message.reply(_offer(o67=b"\x1b[2Jevil\n"))
    assert found is not None
    assert found.boot_file.isprintable()


def test_damaged_and_foreign_messages_are_no_answers() -> None:
    good = dhcp_message.frame(_offer(), _MAC)
    assert dhcp_message.in_frame(good) is None  # from a client's port
    server = good[:34] + b"\x00\x43\x00\x44" + good[38:]
    assert dhcp_message.in_frame(server) is not None
    chance = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(server[: chance.randrange(len(server))])
        for _ in range(3):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        dhcp_message.in_frame(bytes(damaged))


def test_the_answers_of_one_server_are_one_server() -> None:
    plain = DhcpReply(1, _MAC, 2, "10.0.0.2", "10.0.0.50")
    firmware = DhcpReply(2, _MAC, 2, "10.0.0.2", "10.0.0.51", boot_file="x.efi")
    proxy = DhcpReply(2, _MAC, 2, "10.0.0.3")
    assert merge_replies([proxy, plain, firmware]) == [
        Server("10.0.0.2", "10.0.0.50", boot_file="x.efi"),
        Server("10.0.0.3"),
    ]
