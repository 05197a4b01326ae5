"""Requests that no client would send: none is answered 5xx, none is left without an answer.

Every route, with odd identifiers, queries, headers, methods and bodies, as bytes on a socket. They are made from the
routes table, so a new route takes part by itself. First come some nine thousand with one oddity each, then as many with
several as are wanted (``mixed``).
"""

from __future__ import annotations

import itertools
import re
import socket
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from bench.service import Service, service
from ferroscope.api.http.route import Body, Route
from ferroscope.api.routes import ROUTES

_SECONDS: Final = 60.0
_CONNECTIONS: Final = 4
_ENROLL_EVERY: Final = 50
UUID: Final = "11111111-1111-4111-8111-111111111111"

SEGMENTS: Final = (
    b"%00", b"a%00b", b"%ff", b"%ed%a0%80", b"%f0%9f%92%a9", b"%2e%2e", b"%2f", b"..%2f..%2fetc%2fpasswd", b"a" * 300,
    b"a" * 5000, b"%0d%0aX: y", b"'", b"%27%20OR%201=1--", b"%25", b"%5c", b"{x}", b"$(id)", b"%c3%28", b"\xe9",
    b"%e2%80%ae", b"-1", b"0", b"9" * 30, UUID.encode() + b"%00", UUID.upper().encode(),
    UUID.replace("-", "").encode(),
)  # fmt: skip
VALUES: Final = (
    b"%00", b"%ff", b"%ed%a0%80", b"%f0%9f%92%a9", b"a" * 4097, b"-1", b"0", b"1e9", b"9" * 30, b"%0a", b"",
    b"a&limit=1", b"%", b"%zz", b"true", b"'", b"null", b"[]", b"a,b,,c", b"%2c", b"\xff",
)  # fmt: skip
ASKED: Final = b"X-OpenStack-Ironic-API-Version: "
HEADERS: Final = (
    ASKED + b"\xb2.\xb3", ASKED + b"1.9999999",
    ASKED + b"9" * 400, b"OpenStack-API-Version: baremetal " + b"9" * 400,
    b"Host: \xff\xfe", b"Host: a b", b"Host: x\"<>", b"Content-Length: -1", b"Content-Length: 1e3",
    b"Content-Length: \xb2", b"Content-Length: " + b"9" * 40, b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 2", b"Content-Encoding: gzip", b"Range: bytes=0-0,5-",
    b"If-None-Match: *", b"If-Modified-Since: \xff", b"Accept: \xff", b"Accept: image/png", b"X: " + b"a" * 200_000,
    b"Expect: 200-ok", b"Forwarded: for=\xff;host=evil", b"X-Forwarded-For: \xff,,1.2.3.4",
    b"X-Forwarded-Host: evil, \xff", b"X-Forwarded-Proto: javascript", b"Cookie: \xff=\xff",
    b"Authorization: Basic \xff", b"Connection: upgrade\r\nUpgrade: websocket", b"no colon", b": empty", b" folded",
    b"A\x00: b", b"Origin: null", b"Content-Type: text/\xff; charset=\xff",
)  # fmt: skip
METHODS: Final = (
    b"TRACE", b"OPTIONS", b"PROPFIND", b"get", b"CONNECT", b"M\xe9", b"A" * 300, b"QUERY", b"WEBSOCKET", b"HEAD",
    b"DELETE", b"PUT", b"PATCH",
)  # fmt: skip
TARGETS: Final = (
    b"/", b"*", b"http://evil/v1/nodes", b"//v1/nodes", b"/v1//nodes", b"/v1/nodes?", b"/v1/nodes;x=1",
    b"/v1/nodes#frag", b"http://[::1", b"http://", b"ftp://x/", b"x:1", b"", b"/\x00", b"/v1/nodes/%",
    b"/" + b"a/" * 2000,
)  # fmt: skip
TEXTS: Final = (
    rb"\u0000", rb"\ud800", rb"\udc00\ud800", b"\xf0\x9f\x92\xa9", b"\xed\xa0\x80", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"'", rb"\u2028", b"\x7f", rb"\u202e", b"A" * 70_000, rb"\"", b"%s%n{0}", b"fe80::1%" + b"x" * 5000,
)  # fmt: skip
NUMBERS: Final = (
    b"1e999", b"-1e999", b"1e308", b"1" * 400, b"-" + b"9" * 5000, b"0.1e-400", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"1." + b"0" * 20_000, b"NaN", b"Infinity", b"-0", b"00",
    b"0x1", b"true", b"null", b"[]", b"{}",
)  # fmt: skip
BODIES: Final = (
    b"", b"null", b"[]", b"{}", b'"x"', b"1", b"\xef\xbb\xbf{}", b"{" * 2000, b"[" * 100_000 + b"]" * 100_000,
    b"[]," * 600_000, b"\x00" * 64, b"PK\x03\x04", b"<xml/>", b'{"a":' * 30 + b"1" + b"}" * 30, b'{"":1}',
    b'{"a":1,"a":2}', b"[null]", b'[{"op":"add","path":"","value":1}]', b'[{"op":"add","path":"/extra/-","value":1}]',
    b'[{"op":"remove","path":"/' + b"a/" * 80 + b'"}]', b"x" * 3_000_000,
)  # fmt: skip
_SETTINGS: Final = (
    "[api]\nfailure_rate = 0\n[drivers]\nenabled = fake-hardware\n"
    "[auto_discovery]\nenabled = true\ndriver = fake-hardware\n"
)
_NODE: Final = b'{"uuid":"%s","name":"odd","driver":"fake-hardware","extra":{"a":1}}' % UUID.encode()
_VERSION: Final = ASKED + b"latest\r\n"


class Asked(msgspec.Struct, frozen=True):
    """One request as bytes; ``introspection``: by that API's port."""

    data: bytes
    introspection: bool = False

    @property
    def told(self) -> str:
        return repr(self.data[:600])


class Odd(msgspec.Struct):
    """What came of them: how often each status; ``faults`` must be empty."""

    statuses: dict[int, int] = {}
    faults: list[str] = []

    @property
    def asked(self) -> int:
        return sum(self.statuses.values())

    def told(self) -> str:
        answers = ", ".join(f"{count} x {status or 'no answer'}" for status, count in sorted(self.statuses.items()))
        return f"{self.asked} odd requests: {answers}"


def run(directory: Path, database_url: str, *, every: int = 1, number: int = 0, seed: int = 1) -> Odd:
    """Send every ``every``-th of them, up to ``number`` with mixed ones, to a service of its own; return the result."""
    from tests.support.fuzz import mixed

    with service(directory, database_url, extra=_SETTINGS) as running:
        odd = Odd()
        plain = itertools.islice(requests(), 0, None, every)
        everything = itertools.chain(plain, (mixed.request(seed, index) for index in itertools.count()))
        wanted = itertools.islice(everything, number) if number else plain
        lock = threading.Lock()

        def send() -> None:
            while True:
                with lock:
                    asked = next(wanted, None)
                    again = odd.asked % _ENROLL_EVERY == 0
                if asked is None:
                    return
                if again:  # it is often deleted
                    _send(running, _made(b"POST", b"/v1/nodes", _NODE, introspection=False))
                status = _send(running, asked)
                with lock:
                    odd.statuses[status] = odd.statuses.get(status, 0) + 1
                    if not status or status >= 500:
                        odd.faults.append(f"{status or 'no answer'}: {asked.told}")

        threads = [threading.Thread(target=send) for _ in range(_CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        odd.faults += [f"{name} died" for name, role in running.roles.items() if role.process.poll() is not None]
    odd.faults += [line for role in running.roles.values() for line in role.faults()][:20]
    return odd


def requests() -> Iterator[Asked]:
    """Yield all of them, always the same."""
    yield from _paths()
    yield from _queries()
    yield from _frames()
    yield from _bodies()


def _paths() -> Iterator[Asked]:
    for route in ROUTES:
        names = re.findall(r"\{\w+\}", route.path)
        for name, segment in itertools.product(names, SEGMENTS):
            yield _asked(route, route.path.encode().replace(name.encode(), segment))


def _queries() -> Iterator[Asked]:
    for route in ROUTES:
        for name, value in itertools.product(route.query.__struct_fields__, VALUES):
            yield _asked(route, route.path.encode(), name.encode() + b"=" + value)


def _frames() -> Iterator[Asked]:
    for header, path in itertools.product(HEADERS, (b"/", b"/v1/nodes", b"/v1/nodes/" + UUID.encode(), b"/nope")):
        header = header if header.lower().startswith(b"host") else b"Host: localhost\r\n" + header
        end = b"0\r\n\r\n" if b"chunked" in header else b""
        yield Asked(b"GET " + path + b" HTTP/1.1\r\n" + header + b"\r\nConnection: close\r\n\r\n" + end)
        yield Asked(
            b"POST " + path + b" HTTP/1.1\r\nContent-Length: 2\r\n" + header + b"\r\nConnection: close\r\n\r\n{}"
        )
    for method, target in itertools.product((*METHODS, b"GET"), (*TARGETS, b"/v1/nodes", b"/v1/leases/x")):
        yield Asked(method + b" " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    for line in (
        b"",
        b"GET",
        b"GET /",
        b"GET / HTTP/2.0",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.0",
        b"\r\n\r\nGET / HTTP/1.0",
    ):
        yield Asked(line + b"\r\n\r\n" + b"\r\n")


def _bodies() -> Iterator[Asked]:
    for route in ROUTES:
        if route.body_kind is Body.NONE:
            continue
        for body in BODIES:
            yield _asked(route, route.path.encode(), body=body)
        for name, value in itertools.product(fields_of(route), (*(b'"' + text + b'"' for text in TEXTS), *NUMBERS)):
            yield _asked(
                route, route.path.encode(), body=b'{"driver":"fake-hardware","%s":%s}' % (name.encode(), value)
            )
    nic = b'"interfaces":[{"mac_address":"02:0d:d0:00:00:%02x","name":%s}]'
    inventory = b'{"inventory":{' + nic + b',"bmc_address":%s,"memory":%s},"x":%s}'
    for number, value in enumerate((*(b'"' + text + b'"' for text in TEXTS), *NUMBERS)):
        for path in (b"/v1/continue_inspection", b"/v1/continue"):
            body = inventory % (number, value, value, value, value)
            yield _made(b"POST", path, body, introspection=path.endswith(b"/continue"))


def fields_of(route: Route) -> tuple[str, ...]:
    return tuple(getattr(route.body, "__struct_encode_fields__", ()))


def _asked(route: Route, path: bytes, query: bytes = b"", body: bytes = b"") -> Asked:
    path = re.sub(rb"\{\w+\}", UUID.encode(), path)
    by_introspection = "introspection" in str(route.surface)
    return _made(route.method.encode(), path + (b"?" + query if query else b""), body, introspection=by_introspection)


def _made(method: bytes, target: bytes, body: bytes, *, introspection: bool) -> Asked:
    length = b"Content-Length: %d\r\n" % len(body) if body or method != b"GET" else b""
    head = method + b" " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + _VERSION + length
    return Asked(head + b"\r\n" + body, introspection)


def _send(running: Service, asked: Asked) -> int:
    """Return the status of the answer, 0 where there is none."""
    port = _ports(running)[asked.introspection]
    with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
        try:
            connection.sendall(asked.data)
            found = b""
            while b"\r\n" not in found and (part := connection.recv(65536)):
                found += part
        except OSError:
            return 0
    status = re.match(rb"HTTP/1\.1 (\d{3}) ", found)
    return int(status[1]) if status else 0


def _ports(running: Service) -> tuple[int, int]:
    return int(urlsplit(running.url).port or 0), _introspection_port(running.config)


@cache
def _introspection_port(config: Path) -> int:
    found = re.search(r"^introspection_port = (\d+)$", config.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])
