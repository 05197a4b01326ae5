"""The ramdisk of one boot: wait for the boot, call back, and persist as the real agent does.

Facts of ironic-python-agent 13 and the unit file of its image builder: a callback is tried five
times, after waits of 5, 5, 6 and 12 s, when the connection fails or the answer is 5xx or 409; of
several URLs the next is tried at once when a connection fails. Any other 4xx is final. When the tries
are used up, no answer comes in time, or a good answer is not a JSON object, the agent dies and is
started again 30 s later, until the power is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum, auto
from typing import Final, Protocol

import httptools
import msgspec

from ferroscope_sim.outcomes import Delivery, Effect, Tally

# The answers of an HTTP/1.1 server, read piece by piece: bytes go in, an answer comes out.
#
# httptools (llhttp) reads them; what is here is when an answer is whole, and the bounds of what is kept.

MAX_HEAD: Final = 64 * 1024
MAX_BODY: Final = 1024 * 1024


class MalformedError(Exception):
    """What the server sent is no HTTP answer, or is too long."""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer; ``seconds`` from the request's first byte out to the answer's last byte in."""

    status: int
    body: bytes
    seconds: float = 0.0


class AnswerReader:
    """Reads one answer, after any number of interim ones.

    ``begun``: a byte of an answer has come. Once it is whole: ``keep_alive`` says whether the connection may be used
    again, and ``more`` whether something has come after it.
    """

    def __init__(self) -> None:
        self.begun = False
        self.keep_alive = False
        self.more = False
        self._answer: Answer | None = None
        self._head_size = 0
        self._in_body = False
        self._has_end = False
        self._body = bytearray()
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> Answer | None:
        """Take more bytes; return the answer once it is whole. Raises ``MalformedError``."""
        self.begun = True
        self._head_size += 0 if self._in_body else len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if self._answer is None:
                raise MalformedError(str(exc.__context__ or f"this is not an HTTP answer: {exc!r}")) from None
            self.more = True
        if self._head_size > MAX_HEAD and not self._in_body and self._answer is None:
            raise MalformedError(f"the answer's head is longer than {MAX_HEAD} bytes")
        return self._answer

    def end(self) -> Answer | None:
        """The connection has ended; return the answer where that completes it."""
        if not self._in_body or self._has_end:
            return None
        return Answer(self._parser.get_status_code(), bytes(self._body))

    # What follows is called by the parser.

    def on_message_begin(self) -> None:
        self.more = self._answer is not None
        self._has_end = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._has_end = self._has_end or name in (b"content-length", b"transfer-encoding")
        if name == b"content-length" and int(value) > MAX_BODY:
            raise MalformedError(f"the answer's body is longer than {MAX_BODY} bytes")

    def on_headers_complete(self) -> None:
        self._in_body = True
        self.keep_alive = self.keep_alive if self._answer is not None else self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            return
        self._body += data
        if len(self._body) > MAX_BODY:
            raise MalformedError(f"the answer's body is longer than {MAX_BODY} bytes")

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._in_body = False
        if status >= 200 and self._answer is None:
            self._answer = Answer(status, bytes(self._body))


ATTEMPTS: Final = 5
RESTART_WAIT: Final = 30.0


class UnreachableError(Exception):
    """The connection could not be made or broke before the answer was whole: worth another try."""


class NoAnswerError(Exception):
    """The request was sent and no answer came in time: the agent does not try that again itself."""


class Poster(Protocol):
    """Sends callbacks; whoever wants to send one takes one of the ``places`` on the wire first."""

    @property
    def places(self) -> AbstractAsyncContextManager[None]: ...

    async def post(self, url: str, body: bytes, delivery: Delivery) -> Answer:
        """Return the answer; raise ``UnreachableError`` or ``NoAnswerError``."""


class Verdict(Enum):
    """What became of a callback: settled either way, or the agent died of it."""

    ACCEPTED = auto()
    REFUSED = auto()
    DIED = auto()


class Plan(msgspec.Struct, frozen=True):
    """What this boot will do: seconds to boot, and the bodies to post at once; none: never call back.

    ``delivery`` is that of the first post; ``scale`` multiplies the agent's own waits.
    """

    boot: float
    bodies: tuple[bytes, ...]
    delivery: Delivery = "whole"
    scale: float = 1.0


def retry_wait(attempt: int) -> float:
    """Return the seconds that the agent waits after its failed try number ``attempt``, from 1."""
    return float(min(max(1.5 * 2 ** (attempt - 1), 5.0), 30.0))


class RamdiskRun:
    """One boot. ``stop`` cuts the power: what is on the wire is still counted, nothing follows."""

    def __init__(
        self,
        plan: Plan,
        urls: Sequence[str],
        poster: Poster,
        tally: Tally,
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
        """Run in the present event loop."""
        self.task = asyncio.get_running_loop().create_task(self.run())
        return self

    def stop(self) -> bool:
        """Cut the power; True when the callback was not settled yet."""
        interrupted = not (self._stopped or self._settled)
        self._stopped = True
        if self.task is not None and not self._posting:
            self.task.cancel()
        return interrupted

    async def run(self) -> None:
        """Boot, call back as planned, then idle."""
        try:
            await self._sleep(self._plan.boot)
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

    async def _persist(self, body: bytes) -> None:
        """Call back until it is settled, the agent being started again each time that it dies."""
        while await self._call_back(body) is Verdict.DIED and not self._stopped:
            self._tally.note(Effect.AGENT_RESTARTS)
            await self._sleep(RESTART_WAIT * self._plan.scale)

    async def _call_back(self, body: bytes) -> Verdict:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = await self._post_in_turn(body)
            except NoAnswerError:
                return Verdict.DIED
            except UnreachableError:
                answer = None
            if answer is not None and not (answer.status >= 500 or answer.status == 409):
                return self._judge(answer)
            if self._stopped:
                break
            if attempt < ATTEMPTS:
                await self._sleep(retry_wait(attempt) * self._plan.scale)
        return Verdict.DIED

    async def _post_in_turn(self, body: bytes) -> Answer:
        """Post to the URLs in turn until one takes the connection."""
        for url in self._urls[:-1]:
            try:
                return await self._post(url, body)
            except UnreachableError:
                continue
        return await self._post(self._urls[-1], body)

    async def _post(self, url: str, body: bytes) -> Answer:
        async with self._poster.places:
            if self._stopped:
                raise UnreachableError("the power was cut before there was a place on the wire")
            self._posting += 1
            try:
                answer = await self._send(url, body)
            finally:
                self._posting -= 1
        self._tally.note(_effect(answer.status), f"{answer.status} after {answer.seconds * 1000:.1f} ms")
        return answer

    async def _send(self, url: str, body: bytes) -> Answer:
        self._tally.count(Effect.CALLBACKS_SENT)
        delivery, self._delivery = self._delivery, "whole"
        try:
            return await self._poster.post(url, body, delivery)
        except (UnreachableError, NoAnswerError) as error:
            self._tally.note(Effect.CALLBACKS_FAILED, str(error))
            raise

    def _judge(self, answer: Answer) -> Verdict:
        if answer.status >= 300:
            return Verdict.REFUSED
        try:
            msgspec.json.decode(answer.body, type=dict)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Verdict.DIED
        return Verdict.ACCEPTED


def _effect(status: int) -> Effect:
    if status < 300:
        return Effect.CALLBACKS_ACCEPTED
    if status >= 500 or status == 409:
        return Effect.CALLBACKS_FAILED
    return Effect.CALLBACKS_REFUSED
