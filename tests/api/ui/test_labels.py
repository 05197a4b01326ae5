"""Asset labels: one for each machine that matches, with what is known of it and the way to its page."""

from __future__ import annotations

from ferroscope.contrib.ui.asset_labels import drawn
from tests.api.browsing import Browser, Elements, add, text_of
from tests.api.service import Service


def test_each_machine_that_matches_has_a_label_that_leads_to_its_page(service: Service) -> None:
    uuid = add(service, "one")
    vendor = {"manufacturer": "ACME", "product_name": "Server 9", "serial_number": "S-42"}
    service.learn(uuid, {"memory": {"physical_mb": 1024}, "system_vendor": vendor})
    other = add(service, "other")
    browser = Browser(service).log_in("reader")
    page = browser.get("/ui/machines/labels?q=acme")
    assert ("ACME Server 9" in text_of(page), "S-42" in text_of(page), "other" in text_of(page)) == (True, True, False)
    assert drawn(f"http://localhost:6385/ui/machines/{uuid}")["path"] in page.text
    both = browser.get(f"/ui/machines/labels?node={uuid}&node={other}")
    assert sum(tag[0] == "svg" and tag[1].get("role") == "img" for tag in Elements(both.text).tags) == 2
    assert browser.get("/ui/machines/labels?q=nothing").status_code == 404
    assert browser.get("/ui/machines/labels?q=memory+%3D%3D").status_code == 400


def test_the_label_of_a_machine_that_one_may_not_see_is_missing(service: Service) -> None:
    uuid = add(service, "foreign", owner="b")
    assert Browser(service).log_in("a-reader").get(f"/ui/machines/labels?node={uuid}").status_code == 404
