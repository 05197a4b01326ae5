"""The list of machines: its order, its pages, its counts, and the cause of failures in it."""

from __future__ import annotations

import html
import re
from typing import Any

from ferroscope_client.core.reasons import Reason
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
    service.alter(uuid, last_error=f"{LONG} (ramdisk-error). Read the ramdisk's error in the message.")
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


def test_a_value_leads_to_all_machines_that_have_it_too(service: Service) -> None:
    products = {"m-a": "R650 (SKU=1;ModelName=R650)", "m-b": "R650 (SKU=2)", "m-c": "R650xs", "m-d": "it's 5\""}
    for name, product in products.items():
        uuid = add(service, name, owner="o'1" if name == "m-a" else "p", labels={"rack": "r1"})
        found = {"system_vendor": {"manufacturer": "Dell Inc.", "product_name": product, "serial_number": "SN"}}
        nic = {"name": "eth0", "mac_address": "02:00:00:00:00:01", "lldp": [[5, "7377" + name[-1].encode().hex()]]}
        service.learn(uuid, found | {"interfaces": [nic]})
    browser = Browser(service).log_in("root")

    def links(path: str, text: str) -> list[str]:
        page = browser.get(path).text
        found = re.findall(r'<a class="alike" href="([^"]*)"><bdi>([^<]*)</bdi>', page)
        return [html.unescape(link) for link, shown in found if html.unescape(shown) == text]

    (link, other) = links("/ui/machines", "Dell Inc. R650")
    assert link == other
    assert names_of(browser.get(link).text) == ["m-a", "m-b"]
    (narrowed, _) = links("/ui/machines?q=label.rack%20==%20r1&c=model&c=owner", "Dell Inc. R650")
    assert "label.rack" in narrowed
    assert names_of(browser.get(narrowed).text) == ["m-a", "m-b"]
    assert len(links("/ui/machines?c=owner", "p")) == 3
    assert names_of(browser.get(links("/ui/machines?c=owner", "o'1")[0]).text) == ["m-a"]
    assert links("/ui/machines", "Dell Inc. it's 5\"") == []  # no query can say both marks


def test_columns_and_page_size_are_kept_by_the_browser_for_all_lists_but_those_of_failures(service: Service) -> None:
    for number in range(30):
        add(service, f"m-{number}", driver="fake-hardware")
    failed(service, "m-bad", Reason.TIMEOUT)
    one, other = (Browser(service).log_in("root") for _ in range(2))

    def heads(browser: Browser, path: str) -> list[str]:
        return [re.sub("<[^>]*>", "", head) for head in re.findall(r'<th scope="col".*?</th>', browser.get(path).text)]

    usual = heads(one, "/ui/machines")
    answer = one.get("/ui/machines?q=m&c=state&c=driver&c=nonsense&size=25&keep=yes&sort=driver")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/machines?q=m&sort=driver")
    page = one.get("/ui/machines")
    assert heads(one, "/ui/machines") == ["Name ▲", "State", "Driver"]
    assert (len(names_of(page.text)), "1 to 25 of 31" in text_of(page)) == (25, True)
    assert "c=driver" not in page.text  # links need not say what the browser remembers
    assert "Cause" in heads(one, "/ui/machines?reason=timeout")
    assert heads(one, "/ui/machines?c=uuid") == ["Name ▲", "UUID"]
    assert heads(other, "/ui/machines") == usual
    one.get("/ui/machines?keep=usual&c=state&size=100")
    assert heads(one, "/ui/machines") == usual
    for wrong in ("x", "state~7", "~", "state.nonsense~100", "a" * 5000):
        one.view = f"ferroscope-list={wrong}"
        assert one.get("/ui/machines").status_code == 200
    assert heads(one, "/ui/machines") == usual


def test_a_filter_that_does_not_exist_finds_nothing_and_chooses_no_machine(service: Service) -> None:
    uuid = add(service, "m-a")
    browser = Browser(service).log_in("root")
    for query in ("state=nosuch", "maintenance=true", "inbox=1", "reason=nosuch"):
        page = browser.get(f"/ui/machines?{query}")
        assert (names_of(page.text), "Unknown " in page.text) == ([], True), query
        name, _, value = query.partition("=")
        given: dict[str, Any] = {name: value}
        refused = browser.post("/ui/machines/act", action="delete", all="yes", **given)
        assert (refused.status_code, uuid in refused.text) == (400, False), query
    # As the API, the command line and bookmarks spell it.
    failed(service, "m-b", Reason.TIMEOUT)
    assert names_of(browser.get("/ui/machines?state=inspect-failed").text) == ["m-b"]
