"""The list of machines: its order, its pages, its counts, and the cause of failures in it."""

from __future__ import annotations

import re

from ferroscope.core.reasons import Reason
from tests.api.browsing import Browser, add, failed, text_of
from tests.api.service import Service

LONG = "the ramdisk reported: " + "lshw could not read the DIMM, " * 8 + "and that is all"


def names_of(page: str) -> list[str]:
    return re.findall(r"<bdi>(m-[a-z0-9]+)</bdi>", page)


def with_hardware(service: Service) -> None:
    for name, gib, serial, owner in (("m-a", 8, "Z", "a"), ("m-b", 32, "Y", "b"), ("m-c", 16, "X", "a")):
        fields = {"owner": owner, "attributes": {"lessee": "a"}} if owner == "b" else {"owner": owner}
        uuid = add(service, name, **fields)
        vendor = {"manufacturer": "ACME", "product_name": f"model {serial}", "serial_number": serial}
        service.learn(uuid, {"memory": {"physical_mb": gib * 1024}, "system_vendor": vendor})


def test_the_list_is_sorted_by_hardware_while_it_is_searched(service: Service) -> None:
    with_hardware(service)
    browser = Browser(service).log_in("reader")
    for query, order in (
        ("sort=memory", ["m-a", "m-c", "m-b"]),
        ("sort=memory&dir=desc&q=acme", ["m-b", "m-c", "m-a"]),
        ("sort=serial", ["m-c", "m-b", "m-a"]),
        ("sort=model", ["m-c", "m-b", "m-a"]),
        ("sort=created_at&q=vendor+%3D%3D+acme", ["m-a", "m-b", "m-c"]),
        ("sort=nonsense", ["m-a", "m-b", "m-c"]),
    ):
        assert names_of(browser.get(f"/ui/machines?{query}").text) == order, query
    page = browser.get("/ui/machines?sort=memory&dir=desc").text
    assert '<th scope="col" class="number" aria-sort="descending">' in page


def test_who_may_not_see_an_inventory_does_not_learn_it_from_the_order(service: Service) -> None:
    with_hardware(service)
    browser = Browser(service).log_in("a-reader")
    # The machine that is only leased is at the end, whatever it has.
    assert names_of(browser.get("/ui/machines?sort=memory&dir=desc").text) == ["m-c", "m-a", "m-b"]
    assert names_of(browser.get("/ui/machines?q=memory_gb+%3E%3D+32").text) == []


def test_pages_and_totals_are_shown(service: Service) -> None:
    for number in range(205):
        add(service, f"m-{number:03}")
    browser = Browser(service).log_in("reader")
    first, last = browser.get("/ui/machines"), browser.get("/ui/machines?page=3")
    assert (len(names_of(first.text)), names_of(last.text)) == (100, ["m-200", "m-201", "m-202", "m-203", "m-204"])
    assert "Machines 205" in text_of(first)
    assert "1 to 100 of 205" in text_of(first)
    assert "201 to 205 of 205" in text_of(last)
    assert names_of(browser.get("/ui/machines?page=999").text) == names_of(last.text)
    assert names_of(browser.get("/ui/machines?page=-1").text) == names_of(first.text)


def test_the_cause_is_whole_in_lists_of_failures_and_in_the_place_of_the_hardware_in_others(service: Service) -> None:
    uuid = failed(service, "m-bad", Reason.RAMDISK_ERROR)
    service.alter(uuid, last_error=f"{LONG} (ramdisk-error). The ramdisk reported a failure.")
    with_hardware(service)
    browser = Browser(service).log_in("root")
    for query in ("reason=ramdisk-error", "state=inspect+failed", "q=reason+%3D%3D+ramdisk-error"):
        cell = re.search(
            r'<td class="cause-cell whole-cause"><bdi>(.*?)</bdi>', browser.get(f"/ui/machines?{query}").text
        )
        assert cell is not None, query
        assert cell[1].lower().startswith(LONG.lower()), query
    page = browser.get("/ui/machines").text
    assert re.search(r'<td class="cause-cell " colspan="\d" title="[^"]+"><bdi>The ramdisk reported: lshw', page)
    assert "(ramdisk-error)" not in re.sub(r'title="[^"]*"', "", page)


def test_what_a_machine_lacks_is_a_dash(service: Service) -> None:
    with_hardware(service)
    add(service, "m-new")
    page = Browser(service).log_in("root").get("/ui/machines").text
    row = page[page.index(">m-new<") :]
    assert row[: row.index("</tr>")].count('<td class="blank">-</td>') >= 2
