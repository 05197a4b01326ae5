"""How ends add up, and how they are told."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope_client.cli.lookup import addresses
from ferroscope_client.cli.watch import FINISHED, InspectionResult, Watch, WatchedNode, verdict
from ferroscope_client.cli.watch_display import outlook
from ferroscope_client.core.finding import Finding
from ferroscope_client.errors import Exit
from tests.support.rows import each


def ended(code: Exit) -> InspectionResult:
    return InspectionResult(node="n1", uuid="1", result="finished", code=code)


@each(
    ("codes", "sum_of_them"),
    [
        ([], Exit.OK),
        ([Exit.OK, Exit.OK], Exit.OK),
        ([Exit.OK, Exit.FAILURE], Exit.FAILURE),
        ([Exit.OK, Exit.CONFLICT, Exit.CONFLICT], Exit.CONFLICT),
        ([Exit.NOT_FOUND, Exit.CONFLICT], Exit.FAILURE),
        ([Exit.FAILURE, Exit.TIMED_OUT], Exit.TIMED_OUT),
    ],
)
def test_the_exit_code_is_that_of_the_worst_end(codes: list[Exit], sum_of_them: Exit) -> None:
    assert verdict([ended(code) for code in codes]) is sum_of_them


@each(
    ("driver_info", "found"),
    [
        ({"redfish_address": "https://10.0.0.5/redfish"}, {"https://10.0.0.5/redfish", "10.0.0.5"}),
        ({"redfish_address": "https://BMC.example:8443"}, {"bmc.example:8443", "bmc.example"}),
        ({"ipmi_address": "10.0.0.5"}, {"10.0.0.5"}),
        ({"sim_address": "127.0.0.1:6390"}, {"127.0.0.1:6390", "127.0.0.1"}),
        ({"ipmi_address": "fd00::5"}, {"fd00::5"}),
        ({"redfish_address": "https://[fd00::5]:443/"}, {"[fd00::5]:443", "fd00::5"}),
    ],
)
def test_a_bmc_address_is_known_in_every_spelling(driver_info: dict[str, str], found: set[str]) -> None:
    assert found <= addresses(driver_info)


@each("driver_info", [{}, {"ipmi_address": 7}, {"username": "10.0.0.5"}, {"a_address": "http://["}])
def test_what_is_no_bmc_address_is_none(driver_info: dict[str, object]) -> None:
    assert "10.0.0.5" not in addresses(driver_info)


class FewSteps:
    """An API with nodes whose inspections go on, and whose timelines have one step."""

    def __init__(self, step: dict[str, object]) -> None:
        self._step = step

    def get(self, path: str, **_query: object) -> dict[str, object]:
        if path == "/v1/status":
            worker = Finding("no-worker", "wrong", "no worker is alive", "start one: ferroscope worker")
            return {"problems": [msgspec.to_builtins(worker)], "members": []}
        return {"inspections": [{"entries": [self._step]}], "entries": []} if path.endswith("timeline") else {}

    def put(self, _path: str, _body: object) -> None:
        return


def watching(step: dict[str, object], nodes: int, limit: int | None = None) -> tuple[Watch, list[float]]:
    now = [100.0]
    api: Any = FewSteps(step)
    targets = [WatchedNode(str(number), f"n{number}") for number in range(nodes)]
    return Watch(api, targets, limit=limit, clock=lambda: now[0]), now


def finish(watch: Watch, seconds: float, times: int) -> None:
    watch.ended += [
        InspectionResult(node="x", uuid="x", result=FINISHED, seconds=seconds),
    ] * times


def test_what_has_finished_says_how_long_the_others_take() -> None:
    watch, now = watching({}, 5, limit=2)
    watch.start(5)
    assert outlook(watch) == ""
    finish(watch, 60.0, 3)
    now[0] += 20
    assert watch.expected_seconds == 40 + 2 * 60  # of three that wait, two come in one turn and one in the next
    assert outlook(watch) == "about 3 min left"
    watch.seconds_left = 12.0
    assert outlook(watch) == "about 3 min left  gives up in 12 s"


def test_the_last_ones_are_named_with_what_keeps_them() -> None:
    watch, now = watching({"at": "", "step": "retry", "message": "the BMC did not respond"}, 1)
    watch.start(1)
    finish(watch, 10.0, 3)
    watch.look()
    assert outlook(watch) == "about 10 s left"
    now[0] += 30
    watch.look()
    assert outlook(watch) == "n0: the BMC did not respond"
    watch.give_up()
    assert (len(watch.ended), watch.completed) == (4, 3), "it still runs"
    assert watch.ended[-1].hint == "It is waiting: no worker is alive. Start one: ferroscope worker."
