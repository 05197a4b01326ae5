"""How ends add up, and how they are told."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ferroscope.cli.exits import Exit
from ferroscope.cli.lookup import addresses
from ferroscope.cli.watch import ERROR, FINISHED, Ended, Target, Watch, as_data, verdict
from ferroscope.cli.watch_display import failure, outlook, phases
from tests.support.rows import each


def ended(code: Exit) -> Ended:
    return Ended(node="n1", uuid="1", result="finished", code=code)


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


def test_a_failure_is_reported_with_its_reason_and_what_to_do() -> None:
    end = Ended(node="n1", uuid="1", result=ERROR, reason="timeout", error="no callback", hint="Check DHCP.")
    assert failure(end) == "n1: failed: no callback (timeout)\n    Check DHCP."


def test_phases_are_listed_in_the_order_in_which_nodes_pass_through_them() -> None:
    counts = Counter({"finished": 3, "inspecting": 1, "to start": 2, "error": 0})
    assert phases(counts) == [("to start", 2), ("inspecting", 1), ("finished", 3)]


def test_programs_get_the_end_without_our_exit_code() -> None:
    assert as_data(ended(Exit.OK)) == {
        "node": "n1", "uuid": "1", "result": "finished", "reason": None, "error": None, "hint": None, "seconds": None,
    }  # fmt: skip


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
        return {"inspections": [{"entries": [self._step]}], "entries": []} if path.endswith("timeline") else {}

    def put(self, _path: str, _body: object) -> None:
        return


def watching(step: dict[str, object], nodes: int, limit: int | None = None) -> tuple[Watch, list[float]]:
    now = [100.0]
    api: Any = FewSteps(step)
    targets = [Target(str(number), f"n{number}") for number in range(nodes)]
    return Watch(api, targets, limit=limit, clock=lambda: now[0]), now


def finish(watch: Watch, seconds: float, times: int) -> None:
    watch.ended += [
        Ended(node="x", uuid="x", result=FINISHED, seconds=seconds),
    ] * times


def test_what_has_finished_says_how_long_the_others_take() -> None:
    watch, now = watching({}, 5, limit=2)
    watch.start(5)
    assert outlook(watch) == ""
    finish(watch, 60.0, 3)
    now[0] += 20
    assert watch.expected == 40 + 2 * 60  # of three that wait, two come in one turn and one in the next
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
