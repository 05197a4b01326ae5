"""The ramdisk of one boot: boots, calls back, and retries like the real agent.

Behavior of ironic-python-agent 13 and the unit file of its image builder: a callback is tried five times, with waits of
5, 5, 6 and 12 s, if the connection fails or the response is 5xx or 409; of several URLs the next one is tried at once
if connecting fails. Any other 4xx is final. If all tries fail, a response times out, or a successful response is not a
JSON object, the agent exits and is restarted 30 s later, until the machine is powered off.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum, auto
from typing import Final, Protocol

import httptools
import msgspec

from ferroscope.core import lookup
from ferroscope_sim.outcomes import Delivery, Effect, OutcomeTally

# Parsing of HTTP/1.1 responses: bytes in, a response out.
#
# httptools (llhttp) parses them; this code determines when a response is complete, and limits its size.

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 1024 * 1024


class MalformedError(Exception):
    """The server's response is not valid HTTP, or is too long."""


class RamdiskAnswer(msgspec.Struct, frozen=True):
    """A complete response; ``seconds`` from the request's first byte to the response's last byte."""

    status: int
    body: bytes
    seconds: float = 0.0


class AnswerReader:
    """Reads one response, after any number of interim ones.

    ``begun``: a byte of a response has arrived. Once it is complete: ``keep_alive`` says whether the connection can be
    reused, and ``more`` whether further bytes followed.
    """

    def __init__(self) -> None:
        self.begun = False
        self.keep_alive = False
        self.more = False
        self._answer: RamdiskAnswer | None = None
        self._head_size = 0
        self._in_body = False
        self._has_end = False
        self._body = bytearray()
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> RamdiskAnswer | None:
        """Process more bytes; return the response once it is complete. ``MalformedError``."""
        self.begun = True
        self._head_size += 0 if self._in_body else len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if self._answer is None:
                raise MalformedError(str(exc.__context__ or f"invalid HTTP response: {exc!r}")) from None
            self.more = True
        if self._head_size > MAX_HEAD_BYTES and not self._in_body and self._answer is None:
            raise MalformedError(f"the response's head is longer than {MAX_HEAD_BYTES} bytes")
        return self._answer

    def end(self) -> RamdiskAnswer | None:
        """The connection was closed; return the response if that completes it."""
        if not self._in_body or self._has_end:
            return None
        return RamdiskAnswer(self._parser.get_status_code(), bytes(self._body))

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self.more = self._answer is not None
        self._has_end = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._has_end = self._has_end or name in (b"content-length", b"transfer-encoding")
        if name == b"content-length" and int(value) > MAX_BODY_BYTES:
            raise MalformedError(f"the response's body is longer than {MAX_BODY_BYTES} bytes")

    def on_headers_complete(self) -> None:
        self._in_body = True
        self.keep_alive = self.keep_alive if self._answer is not None else self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            return
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            raise MalformedError(f"the response's body is longer than {MAX_BODY_BYTES} bytes")

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._in_body = False
        if status >= 200 and self._answer is None:
            self._answer = RamdiskAnswer(status, bytes(self._body))


MAX_ATTEMPTS: Final = 5
RESTART_SECONDS: Final = 30.0
# As in the iPXE script that ``boot_config.ipxe`` generates.
_MAX_SCRIPT_TRIES: Final = 10
_SCRIPT_PAUSE_SECONDS: Final = 3.0
_SET_SECRET: Final = re.compile(rb"^set secret ([\w-]+)$", re.MULTILINE)


class ApiUnreachableError(Exception):
    """Connecting failed, or the connection was lost before the response was complete: may be retried."""


class NoAnswerError(Exception):
    """The request was sent and the response timed out: the agent does not retry that."""


class Poster(Protocol):
    """Sends callbacks; a sender must hold one of the ``places`` to limit concurrency."""

    @property
    def places(self) -> AbstractAsyncContextManager[None]: ...

    async def post(self, url: str, body: bytes, delivery: Delivery) -> RamdiskAnswer:
        """Return the response; ``ApiUnreachableError`` or ``NoAnswerError``."""

    async def get(self, url: str) -> RamdiskAnswer:
        """Return the response of a GET; errors as for ``post``."""


class RamdiskVerdict(Enum):
    """The result of a callback: settled, or the agent exits."""

    ACCEPTED = auto()
    REFUSED = auto()
    DIED = auto()


class RamdiskPlan(msgspec.Struct, frozen=True):
    """What this boot does: seconds to boot, and the bodies to post at once; none: never call back.

    ``delivery`` is that of the first post; ``scale`` multiplies the agent's own waits. ``script``: URL of the machine's
    iPXE script, which is loaded first; "" for none.
    """

    boot: float
    bodies: tuple[bytes, ...]
    delivery: Delivery = "whole"
    scale: float = 1.0
    script: str = ""


def retry_wait(attempt: int) -> float:
    """Return the seconds that the agent waits after failed try number ``attempt``, from 1."""
    return float(min(max(1.5 * 2 ** (attempt - 1), 5.0), 30.0))


class RamdiskRun:
    """One boot. ``stop`` cuts the power: callbacks in flight are still counted, nothing follows."""

    def __init__(
        self,
        plan: RamdiskPlan,
        urls: Sequence[str],
        poster: Poster,
        tally: OutcomeTally,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        on_end: Callable[[RamdiskRun], None] | None = None,
    ) -> None:
        self._plan = plan
        self._urls = urls
        self._poster = poster
        self._tally = tally
        self._sleep = sleep
        self._on_end = on_end
        self._delivery: Delivery = plan.delivery
        self._stopped = False
        self._settled = False
        self._posting = 0
        self.task: asyncio.Task[None] | None = None

    def start(self) -> RamdiskRun:
        """Start in the current event loop."""
        self.task = asyncio.get_running_loop().create_task(self.run())
        return self

    def stop(self) -> bool:
        """Cut the power; True if the callback was not settled yet."""
        interrupted = not (self._stopped or self._settled)
        self._stopped = True
        if self.task is not None and not self._posting:
            self.task.cancel()
        return interrupted

    async def run(self) -> None:
        """Boot, call back as planned, then idle."""
        try:
            await self._sleep(self._plan.boot)
            if self._plan.script and not await self._load_secret():
                return  # the machine tries its next boot device
            if len(self._plan.bodies) == 1:
                await self._persist(self._plan.bodies[0])
            else:
                await asyncio.gather(*map(self._persist, self._plan.bodies))
            self._settled = bool(self._plan.bodies)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        finally:
            if self._on_end is not None:
                self._on_end(self)

    async def _load_secret(self) -> bool:
        """Run the machine's iPXE script, as the script of a boot host does; False if it cannot be loaded."""
        for _ in range(_MAX_SCRIPT_TRIES):
            try:
                async with self._poster.places:
                    answer = await self._poster.get(self._plan.script)
            except (ApiUnreachableError, NoAnswerError):
                answer = None
            if answer is not None and answer.status == 200:
                secret = _SET_SECRET.search(answer.body)
                if secret is not None:
                    self._urls = [lookup.add_secret_to_url(url, secret[1].decode()) for url in self._urls]
                return True
            if self._stopped:
                break
            await self._sleep(_SCRIPT_PAUSE_SECONDS * self._plan.scale)
        return False

    async def _persist(self, body: bytes) -> None:
        """Call back until it is settled; restart the agent each time it exits."""
        while await self._call_back(body) is RamdiskVerdict.DIED and not self._stopped:
            self._tally.note(Effect.AGENT_RESTARTS)
            await self._sleep(RESTART_SECONDS * self._plan.scale)

    async def _call_back(self, body: bytes) -> RamdiskVerdict:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                answer = await self._post_in_turn(body)
            except NoAnswerError:
                return RamdiskVerdict.DIED
            except ApiUnreachableError:
                answer = None
            if answer is not None and not (answer.status >= 500 or answer.status == 409):
                return self._judge(answer)
            if self._stopped:
                break
            if attempt < MAX_ATTEMPTS:
                await self._sleep(retry_wait(attempt) * self._plan.scale)
        return RamdiskVerdict.DIED

    async def _post_in_turn(self, body: bytes) -> RamdiskAnswer:
        """Post to the URLs in turn until one accepts the connection."""
        for url in self._urls[:-1]:
            try:
                return await self._post(url, body)
            except ApiUnreachableError:
                continue
        return await self._post(self._urls[-1], body)

    async def _post(self, url: str, body: bytes) -> RamdiskAnswer:
        async with self._poster.places:
            if self._stopped:
                raise ApiUnreachableError("the power was cut before the callback could be sent")
            self._posting += 1
            try:
                answer = await self._send(url, body)
            finally:
                self._posting -= 1
        self._tally.note(_effect(answer.status), f"{answer.status} after {answer.seconds * 1000:.1f} ms")
        return answer

    async def _send(self, url: str, body: bytes) -> RamdiskAnswer:
        self._tally.count(Effect.CALLBACKS_SENT)
        delivery, self._delivery = self._delivery, "whole"
        try:
            return await self._poster.post(url, body, delivery)
        except (ApiUnreachableError, NoAnswerError) as error:
            self._tally.note(Effect.CALLBACKS_FAILED, str(error))
            raise

    def _judge(self, answer: RamdiskAnswer) -> RamdiskVerdict:
        if answer.status >= 300:
            return RamdiskVerdict.REFUSED
        try:
            msgspec.json.decode(answer.body, type=dict)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return RamdiskVerdict.DIED
        return RamdiskVerdict.ACCEPTED


def _effect(status: int) -> Effect:
    if status < 300:
        return Effect.CALLBACKS_ACCEPTED
    if status >= 500 or status == 409:
        return Effect.CALLBACKS_FAILED
    return Effect.CALLBACKS_REFUSED
