"""What collectors of the ramdisk printed: read as data, noted, and reached by rules and expected hardware."""

from __future__ import annotations

from typing import Any

from ferroscope.core.model import Severity
from ferroscope.hardware import diff, expectations, search_index
from ferroscope_client.core.expectation import Expectation
from tests.fast.hooks.runs import machine, run
from tests.fast.rules.running import Site, holds
from tests.support import examples
from tests.support.rows import each


def make_result(output: object = "", code: object = 0, error: object = "") -> dict[str, Any]:
    """Return a result as the program in the ramdisk reports it."""
    return {"exit_code": code, "seconds": 0.1, "output": output, "error": error}


def read_results(**results: Any) -> dict[str, Any]:
    """Return the plugin data after the hook."""
    return run(["ramdisk-error"], machine(), {"collectors": results}).plugin_data


@each(
    ("output", "data"),
    [
        ('{"fans": 4}', {"fans": 4}),
        ('["a", 1.5, null]\n', ["a", 1.5, None]),
        ('{"name": "padded\\u0000"}', {"name": "padded"}),
        ("", None),
        ("4 fans", None),
        ("{} {}", None),
        ('{"fans": NaN}', None),
        ("1e999", None),
        ("[" * 30 + "]" * 30, None),
        ("[" * 60_000, None),
        ("[" + "[]," * 20_000 + "1]", None),
        (None, None),
        ({"fans": 4}, None),
    ],
)
def test_only_json_that_everybody_can_read_becomes_data(output: object, data: object) -> None:
    result = read_results(fans=make_result(output))["collectors"]["fans"]
    assert result["data"] == data
    assert bool(result["error"]) is (data is None)


def test_the_timeline_says_which_collectors_failed_and_why() -> None:
    results = {
        "fans": make_result("{}"),
        "disks": make_result('{"sda": "failed"}', 1, "sda has failed"),
        "slow": make_result("", None, "it did not end within 60 seconds"),
        "mute": make_result("{}", 3),
    }
    done = run(["ramdisk-error"], machine(), {"collectors": results})
    succeeded, failed = done.notes
    assert (succeeded.severity, failed.severity) == (Severity.INFO, Severity.WARNING)
    assert "fans" in succeeded.message
    for words in ("disks: sda has failed", "slow: it did not end", "mute: exit code 3"):
        assert words in failed.message
    assert done.plugin_data["collectors"]["disks"]["data"] == {"sda": "failed"}


@each(
    "reported",
    [
        *(None, "x", [1], {"a": None}, {"a": []}, {"a": {}}, {"a": make_result(code={}, error=[1])}),
        *({"a" * 999: make_result(code="x")}, {f"a{number}": make_result("[]") for number in range(1000)}),
    ],
)
def test_results_of_any_form_do_no_harm(reported: object) -> None:
    plugin_data = run(["ramdisk-error"], machine(), {"collectors": reported}).plugin_data
    assert len(plugin_data["collectors"]) <= 16
    search_index.learn(machine(), plugin_data)
    search_index.learn(machine(), {"collectors": reported})


def test_a_rule_reaches_the_data_and_the_exit_code() -> None:
    site = Site(read_results(fans=make_result('{"slow": [2, 5]}', 1)))
    assert holds("eq", {"values": ["{plugin_data[collectors][fans][exit_code]}", 1]}, site)
    assert holds("gt", {"values": ["{plugin_data[collectors][fans][data][slow][1]}", 4]}, site)


@each(
    ("condition", "deviation"),
    [
        ("result[collector == fans and exit_code == 0]", None),
        ("result[collector == fans and name == rpm and number >= 3000]", None),
        ("count(result[collector == smart and value == passed]) == 2", "1 of 6 fit"),
        ("not result.value == failed", "result.value: 3 x unknown, true, passed, failed"),
        ("not has result.error", "result.error: 3 x unknown, 2 x sdb has failed, exit code 2"),
    ],
)
def test_hardware_can_be_expected_of_what_collectors_found(condition: str, deviation: str | None) -> None:
    data = read_results(
        fans=make_result('{"rpm": 4200, "redundant": true, "more": [1]}'),
        smart=make_result('{"sda": "passed", "sdb": "failed"}', 1, "sdb has failed"),
        empty=make_result("[]"),
        broken=make_result("[]", 2),
    )
    rows = search_index.learn(machine(), data).rows
    expected = expectations.check([Expectation(name="all", expect=[condition])])
    deviations = expectations.deviations(expected, rows, examples.node())
    assert [item.found.partition(";")[0] for item in deviations] == ([deviation] if deviation else [])


def test_another_result_is_no_change_of_the_hardware() -> None:
    before, after = (read_results(fans=make_result(f'{{"rpm": {rpm}}}')) for rpm in (4200, 4300))
    assert diff.compare((machine(), before), (machine(), after)) == []
