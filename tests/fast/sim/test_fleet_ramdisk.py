"""The ramdisk calls back as the real agent does: what it tries again, how often, after how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from ferroscope_sim.outcomes import Counters, Delivery, OutcomeTally
from ferroscope_sim.ramdisk import ApiUnreachableError, NoAnswerError, RamdiskAnswer, RamdiskPlan, RamdiskRun
from tests.support.rows import each

GOOD = RamdiskAnswer(202, b'{"uuid": null}')
BAD = RamdiskAnswer(503, b"")

Script = RamdiskAnswer | Exception


class Line:
    """A poster that answers from a script, the last line of it forever; a call may be watched."""

    def __init__(self, *script: Script) -> None:
        self.script = list(script)
        self.sent: list[tuple[str, bytes, Delivery]] = []
        self.watch: Callable[[], None] = lambda: None
        self.places: AbstractAsyncContextManager[None] = nullcontext()

    async def get(self, url: str) -> RamdiskAnswer:
        return await self.post(url, b"", "whole")

    async def post(self, url: str, body: bytes, delivery: Delivery) -> RamdiskAnswer:
        self.sent.append((url, body, delivery))
        self.watch()
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Boot:
    """One run of a ramdisk: its waits are noted, not waited for; it stops after ``most`` of them."""

    def __init__(self, line: Line, *, bodies: tuple[bytes, ...] = (b"{}",), most: int = 40, **plan: object) -> None:
        self.line = line
        self.counters = Counters()
        self.waits: list[float] = []
        self.most = most
        self.ended = 0
        self.tally = OutcomeTally(self.counters, clock=lambda: 0.0)
        settings = {"boot": 7.0, "bodies": bodies, **plan}
        self.urls = ["http://one/"]
        self.run_ = RamdiskRun(
            RamdiskPlan(**settings),  # type: ignore[arg-type]
            self.urls,
            line,
            self.tally,
            sleep=self.sleep,
            on_end=self.end,
        )
        self.interrupted: bool | None = None
        self.booting: asyncio.Event | None = None

    def end(self, run: RamdiskRun) -> None:
        assert run is self.run_
        self.ended += 1

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self.booting is not None:
            await self.booting.wait()
        if len(self.waits) >= self.most:
            self.interrupted = self.run_.stop()

    def go(self) -> Boot:
        asyncio.run(self.run_.run())
        return self


def test_a_good_answer_settles_it_after_the_boot() -> None:
    boot = Boot(Line(GOOD)).go()
    assert boot.waits == [7.0]
    assert boot.line.sent == [("http://one/", b"{}", "whole")]
    assert (boot.counters.callbacks_sent, boot.counters.callbacks_accepted) == (1, 1)
    assert boot.run_.stop() is False
    assert boot.ended == 1


@each("trouble", [RamdiskAnswer(500, b""), BAD, RamdiskAnswer(409, b""), ApiUnreachableError("gone")])
def test_a_broken_connection_5xx_and_409_are_tried_again(trouble: Script) -> None:
    boot = Boot(Line(trouble, trouble, GOOD)).go()
    assert boot.waits == [7.0, 5.0, 5.0]
    assert (boot.counters.callbacks_failed, boot.counters.callbacks_accepted) == (2, 1)


@each("status", [302, 400, 403, 404, 413])
def test_any_other_answer_is_final(status: int) -> None:
    boot = Boot(Line(RamdiskAnswer(status, b"no"))).go()
    assert boot.waits == [7.0]
    assert (boot.counters.callbacks_sent, boot.counters.callbacks_refused) == (1, 1)
    assert boot.run_.stop() is False


def test_an_agent_whose_tries_are_used_up_is_started_again() -> None:
    boot = Boot(Line(*[BAD] * 5, GOOD)).go()
    assert boot.waits == [7.0, 5.0, 5.0, 6.0, 12.0, 30.0]
    assert (boot.counters.callbacks_failed, boot.counters.agent_restarts) == (5, 1)
    assert boot.counters.callbacks_accepted == 1


def test_an_agent_without_an_answer_is_started_again_without_further_tries() -> None:
    boot = Boot(Line(NoAnswerError("30 s"), GOOD)).go()
    assert boot.waits == [7.0, 30.0]
    assert (boot.counters.callbacks_failed, boot.counters.agent_restarts) == (1, 1)


@each("body", [b"", b"<html>", b"[]", b'"text"', b"\xff"])
def test_a_good_answer_that_is_no_object_kills_the_agent(body: bytes) -> None:
    boot = Boot(Line(RamdiskAnswer(200, body), GOOD)).go()
    assert boot.waits == [7.0, 30.0]
    assert (boot.counters.callbacks_accepted, boot.counters.agent_restarts) == (2, 1)


def test_it_goes_on_until_the_power_is_cut() -> None:
    boot = Boot(Line(ApiUnreachableError("gone")), most=30).go()
    assert len(boot.waits) == 30
    assert boot.interrupted is True
    assert boot.counters.agent_restarts == 5


def test_the_waits_scale_and_the_boot_does_not() -> None:
    boot = Boot(Line(BAD, NoAnswerError(""), GOOD), scale=0.01).go()
    assert boot.waits == [7.0, 0.05, 0.3]


def test_the_next_url_is_tried_at_once_when_a_connection_fails() -> None:
    boot = Boot(Line(ApiUnreachableError("gone"), GOOD))
    boot.urls.append("http://two/")
    boot.go()
    assert [url for url, _, _ in boot.line.sent] == ["http://one/", "http://two/"]
    assert boot.waits == [7.0]


def test_an_answer_of_the_first_url_is_not_taken_to_the_next() -> None:
    boot = Boot(Line(BAD, GOOD))
    boot.urls.append("http://two/")
    boot.go()
    assert [url for url, _, _ in boot.line.sent] == ["http://one/", "http://one/"]


def test_several_bodies_are_posted_each() -> None:
    boot = Boot(Line(GOOD), bodies=(b"{}", b"{}", b"[]")).go()
    assert [body for _, body, _ in boot.line.sent] == [b"{}", b"{}", b"[]"]
    assert boot.counters.callbacks_accepted == 3


def test_a_ramdisk_without_a_body_never_calls_back_nor_settles() -> None:
    boot = Boot(Line(GOOD), bodies=()).go()
    assert boot.line.sent == []
    assert boot.run_.stop() is True


def test_only_the_first_post_is_misdelivered() -> None:
    boot = Boot(Line(ApiUnreachableError("broken"), GOOD), delivery="broken").go()
    assert [delivery for _, _, delivery in boot.line.sent] == ["broken", "whole"]


def test_power_cut_during_the_boot_ends_it_without_a_callback() -> None:
    boot = Boot(Line(GOOD))

    async def scenario() -> None:
        boot.booting = asyncio.Event()
        boot.run_.start()
        await asyncio.sleep(0)
        boot.interrupted = boot.run_.stop()
        assert boot.run_.task is not None
        await boot.run_.task

    asyncio.run(scenario())
    assert boot.interrupted is True
    assert boot.line.sent == []
    assert boot.ended == 1


def test_an_answer_on_the_wire_at_power_cut_is_counted_and_nothing_follows() -> None:
    boot = Boot(Line(BAD))
    boot.line.watch = lambda: setattr(boot, "interrupted", boot.run_.stop())
    boot.go()
    assert boot.interrupted is True
    assert (boot.counters.callbacks_sent, boot.counters.callbacks_failed, boot.counters.agent_restarts) == (1, 1, 0)
    assert boot.waits == [7.0]


def test_a_callback_that_waits_for_a_place_is_not_sent_after_the_power_was_cut() -> None:
    boot = Boot(Line(GOOD), bodies=(b"{}", b"{}"))
    boot.line.places = asyncio.Semaphore(1)
    boot.line.watch = lambda: setattr(boot, "interrupted", boot.run_.stop())
    boot.go()
    assert (boot.counters.callbacks_sent, boot.counters.callbacks_accepted) == (1, 1)
    assert (boot.counters.callbacks_failed, boot.waits) == (0, [7.0])


SCRIPT = "http://api/v1/boot.ipxe?mac=52:54:00:00:00:01"


def test_with_a_script_the_secret_is_loaded_first_and_returned() -> None:
    line = Line(BAD, ApiUnreachableError("x"), RamdiskAnswer(200, b"#!ipxe\nset secret abc-DEF_1\n"), GOOD)
    boot = Boot(line, script=SCRIPT)
    boot.go()
    assert [url for url, _, _ in line.sent] == [SCRIPT] * 3 + ["http://one/?secret=abc-DEF_1"]
    assert boot.waits == [7.0, 3.0, 3.0]


def test_a_machine_that_no_inspection_waits_for_gets_no_secret_and_calls_back_without() -> None:
    line = Line(RamdiskAnswer(200, b"#!ipxe\n# No inspection waits for this machine.\n"), GOOD)
    Boot(line, script=SCRIPT).go()
    assert [url for url, _, _ in line.sent] == [SCRIPT, "http://one/"]


def test_without_an_answer_the_machine_does_not_boot_the_ramdisk() -> None:
    line = Line(BAD)
    boot = Boot(line, script=SCRIPT)
    boot.go()
    assert {url for url, _, _ in line.sent} == {SCRIPT}
    assert len(line.sent) == 10
