"""The page that enrols machines from a file: checked row by row, then created; passwords are never sent back."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.contrib.ui import bmc_trials, enroll
from ferroscope.contrib.ui.session import Seal
from ferroscope.core.states import Event
from ferroscope_client.core.states import Provision
from tests.api.browsing import Browser, Elements, text_of
from tests.api.service import Service
from tests.support import examples

PASSWORD = "pw-of-the-bmc"
HEADER = "name,driver,bmc_address,bmc_username,bmc_password,macs,extra/rack\n"


def sheet(number: int, start: int = 0) -> bytes:
    rows = [
        f"r1-u{i:03},fake-hardware,192.0.{2 + i // 250}.{i % 250},admin,{PASSWORD},"
        f"52:54:00:01:{i // 250:02x}:{i % 250:02x},r1\n"
        for i in range(start, start + number)
    ]
    return (HEADER + "".join(rows)).encode()


def confirm(root: Browser, checked: Any) -> Any:
    """Carry out what has been checked, to the end."""
    answer = checked
    while 'name="work"' in answer.text:
        answer = root.upload("/ui/enroll", work=Elements(answer.text).hidden("work"))
        assert answer.status_code == 200, answer.text
    return answer


def names(service: Service) -> list[str]:
    found = service.bare_metal.get("/v1/nodes?fields=name&limit=1000", headers={"X-Auth-Token": "root"}).json["nodes"]
    return sorted(node["name"] for node in found)


def enrolled(root: Browser, file: bytes) -> Any:
    """Check a file, and begin to enroll it with its BMCs tried."""
    checked = root.upload("/ui/enroll", file=("rack.csv", file), verify="yes")
    return look_again(root, checked)


@pytest.fixture(autouse=True)
def unhurried() -> Iterator[None]:
    """Carry out all rows in one request, however slow the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enroll, "_STEP_SECONDS", math.inf)
        yield


def look_again(root: Browser, page: Any) -> Any:
    answer = root.upload("/ui/enroll", work=Elements(page.text).hidden("work"))
    assert answer.status_code == 200, answer.text
    return answer


def answers(service: Service, name: str, *, error: str = "") -> None:
    """Let the trial of the machine's BMC end."""
    assert [request.event for request in service.pending(name)] == [Event.VERIFY]
    end = Provision.ENROLL if error else Provision.MANAGEABLE
    service.alter(service.node(name).uuid, provision_state=end, last_error=error or None)


def test_a_file_is_checked_first_and_its_bmcs_are_tried_before_machines_stay(service: Service, root: Browser) -> None:
    checked = root.upload("/ui/enroll", file=("rack.csv", sheet(3)), verify="yes")
    assert text_of(checked).count("would be created") == 4
    assert names(service) == []
    page = look_again(root, checked)
    assert "3 BMCs are being tried" in text_of(page)
    answers(service, "r1-u000")
    answers(service, "r1-u001", error="the BMC at 192.0.2.1 did not answer")
    page = look_again(root, page)
    text = text_of(page)
    assert "1 created, 1 not created. 1 BMC is being tried" in text
    assert "the BMC at 192.0.2.1 did not answer" in text
    assert "anyway" not in text  # not before all are known
    answers(service, "r1-u002", error="Authentication failed")
    page = look_again(root, page)
    assert "1 created, 2 not created" in text_of(page)
    assert "2 BMCs do not answer" in text_of(page)
    assert names(service) == ["r1-u000"]
    node = service.node("r1-u000")
    assert node.driver_info["bmc_address"] == "192.0.2.0"
    assert (node.driver_info["bmc_username"], node.extra) == ("admin", {"rack": "r1"})
    done = look_again(root, page)
    assert "2 created" in text_of(done)
    assert names(service) == ["r1-u000", "r1-u001", "r1-u002"]
    assert service.node("r1-u002").provision_state == Provision.ENROLL
    assert service.pending("r1-u002") == []
    assert PASSWORD not in page.text + done.text


def test_a_request_never_waits_for_bmcs_and_few_are_tried_at_a_time(service: Service, root: Browser) -> None:
    page = enrolled(root, sheet(bmc_trials.MAX_TRIALS + 10))
    assert len(names(service)) == bmc_trials.MAX_TRIALS
    again = look_again(root, page)
    assert f"{bmc_trials.MAX_TRIALS} BMCs are being tried" in text_of(again)
    for number in range(5):
        answers(service, f"r1-u{number:03}", error="no answer")
    look_again(root, again)
    assert len(names(service)) == bmc_trials.MAX_TRIALS  # five are gone, and five others have begun
    assert "r1-u000" not in names(service)


def test_a_trial_that_no_worker_begins_is_not_waited_for(
    service: Service, root: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = enrolled(root, sheet(1))
    monkeypatch.setattr(bmc_trials, "_MIN_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(bmc_trials, "_WAITED_TIMEOUTS", 0)
    page = look_again(root, page)
    assert "its BMC has not been tried yet" in text_of(page)
    assert 'name="work"' not in page.text
    assert names(service) == ["r1-u000"]


def test_a_machine_that_was_deleted_during_its_trial_is_not_created_again(service: Service, root: Browser) -> None:
    page = enrolled(root, sheet(1))
    service.bare_metal.delete(f"/v1/nodes/{service.node('r1-u000').uuid}", headers={"X-Auth-Token": "root"})
    assert "deleted meanwhile" in text_of(look_again(root, page))
    assert names(service) == []


def test_it_can_be_repeated_and_changes_only_what_differs(service: Service, root: Browser) -> None:
    confirm(root, root.upload("/ui/enroll", file=("rack.csv", sheet(3))))
    again = root.upload("/ui/enroll", file=("rack.csv", sheet(3)))
    assert "3 unchanged" in text_of(again)
    assert 'name="work"' not in again.text
    other = sheet(4).replace(b"192.0.2.2,", b"192.0.2.77,")
    checked = root.upload("/ui/enroll", file=("rack.csv", other))
    assert "1 would be changed, 1 would be created" in text_of(checked)
    before = service.node("r1-u000")
    assert "1 changed, 1 created, 2 unchanged" in text_of(confirm(root, checked))
    assert service.node("r1-u002").driver_info["bmc_address"] == "192.0.2.77"
    assert service.node("r1-u000") == before
    assert service.pending("r1-u003") == []


def test_a_form_that_is_sent_twice_enrols_once(service: Service, root: Browser) -> None:
    work = Elements(root.upload("/ui/enroll", file=("rack.csv", sheet(2))).text).hidden("work")
    assert "2 created" in text_of(root.upload("/ui/enroll", work=work))
    assert "2 unchanged" in text_of(root.upload("/ui/enroll", work=work))
    assert len(names(service)) == 2


def test_a_text_is_taken_too_in_each_format(service: Service, root: Browser) -> None:
    entry = {"name": "one", "driver": "fake-hardware", "ports": [{"address": "52:54:00:00:00:01"}]}
    texts = {
        "csv": "name,driver\ntwo,fake-hardware\n",
        "json": json.dumps({"nodes": [entry]}),
        "yaml": "nodes:\n- name: three\n  driver: fake-hardware\n",
    }
    for text in texts.values():
        assert "1 created" in text_of(confirm(root, root.upload("/ui/enroll", text=text)))
    assert names(service) == ["one", "three", "two"]
    assert "1 created" in text_of(confirm(root, root.post("/ui/enroll", text="name\nfour\n", driver="sim")))


def test_an_invalid_file_changes_nothing_and_is_explained(service: Service, root: Browser) -> None:
    for text, expected in [
        ("", "choose a file"),
        ("name,divrer\none,sim\n", "did you mean driver"),
        ("nodes:\n- &a {name: one}\n- *a\n", "line 3: aliases"),
        ("name\n" + "".join(f"n{i}\n" for i in range(501)), "at most 500 are allowed"),
    ]:
        answer = root.upload("/ui/enroll", text=text)
        assert answer.status_code == 400, text
        assert expected in text_of(answer), text
        assert names(service) == [], text


def test_what_is_right_is_enrolled_and_what_is_wrong_has_its_line_and_reason(service: Service, root: Browser) -> None:
    rows = {
        "one,sim,52:54,": "invalid MAC address",
        "two,nonsense,,": "driver 'nonsense' is not enabled",
        "three,,,": "a driver is required",
        "bad name!,sim,,": "invalid name",
        "a,sim,,h:1": "the BMC h:1 is also in line 7",
        "b,sim,,H:1": "the BMC h:1 is also in line 6",
        "c,sim,,": "the name c is also in line 9",
        "c,sim,,h:3": "the name c is also in line 8",
        "fine,sim,,h:2": "would be created",
    }
    checked = root.upload("/ui/enroll", text="\n".join(["name,driver,macs,bmc_address", *rows]))
    told = re.findall(r"<tr><td>line (\d+)</td>(.*?)</tr>", checked.text)
    assert [int(line) for line, _ in told] == list(range(2, 11))
    for (_, row), reason in zip(told, rows.values(), strict=True):
        assert reason in html.unescape(row)
    assert "1 created, 8 failed" in text_of(confirm(root, checked))
    assert names(service) == ["fine"]


def test_a_row_that_fails_fails_alone(service: Service, root: Browser) -> None:
    confirm(root, root.upload("/ui/enroll", text=f"name,driver,macs\nold,sim,{(mac := examples.mac())}\n"))
    text = f"name,driver,macs,owner\nnew,sim,,\nold,,,ops\nbad name!,sim,,\nunknown,,,\nr9,sim,{mac},\n"
    checked = root.upload("/ui/enroll", text=text)
    assert "a driver is required" in text_of(checked)
    done = text_of(confirm(root, checked))
    assert "1 changed, 1 created, 3 failed" in done
    assert "bad name!" in done
    assert names(service) == ["new", "old"]  # the MAC address alone does not rename the machine


def test_what_was_pasted_comes_back_without_its_passwords(root: Browser) -> None:
    text = f"name,divrer,bmc_address,bmc_password\none,sim,192.0.2.1,{PASSWORD}\n"
    answer = root.upload("/ui/enroll", text=text)
    assert answer.status_code == 400
    assert "one,sim,192.0.2.1,\n</textarea>" in answer.text
    assert PASSWORD not in answer.text
    unclear = root.upload("/ui/enroll", text=f"- name: one\n  bmc_password: {PASSWORD}\n  driver: [\n")
    assert (unclear.status_code, PASSWORD in unclear.text) == (400, False)
    assert "paste it again" in text_of(unclear)


def test_passwords_are_never_sent_back(service: Service, root: Browser) -> None:
    checked = root.upload("/ui/enroll", file=("rack.csv", sheet(2)))
    done = confirm(root, checked)
    wrong = root.upload("/ui/enroll", file=("rack.csv", sheet(1).replace(b"fake-hardware", b"nonsense")))
    for answer in (checked, done, wrong):
        assert PASSWORD not in answer.text
        assert answer.headers["Cache-Control"] == "no-store"


def test_only_the_browser_that_checked_a_file_can_carry_it_out(service: Service, root: Browser) -> None:
    work = Elements(root.upload("/ui/enroll", file=("rack.csv", sheet(1))).text).hidden("work")
    other = Browser(service).log_in("root")
    for stolen in (work, work[:-8] + "AAAAAAA=", "x", "é", ""):
        assert other.upload("/ui/enroll", work=stolen).status_code == 400, stolen
    assert names(service) == []


def test_a_sealed_document_lasts_an_hour() -> None:
    now = [1000.0]
    seal = Seal("s" * 43, lambda: now[0])
    text = seal.close({"a": 1})
    now[0] += 3599
    assert seal.open(text) == {"a": 1}
    now[0] += 1
    with pytest.raises(Exception, match="expired"):
        seal.open(text)


def test_five_hundred_rows_go_on_page_by_page(service: Service, root: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enroll, "_STEP_SECONDS", 0.0)
    page = root.upload(
        "/ui/enroll", work=Elements(root.upload("/ui/enroll", file=("a.csv", sheet(3))).text).hidden("work")
    )
    assert "Go on with 2 machines" in text_of(page)
    assert "data-continue" in page.text
    assert names(service) == ["r1-u000"]
    monkeypatch.undo()
    assert "3 created" in text_of(confirm(root, page))
    checked = root.upload("/ui/enroll", file=("rack.csv", sheet(500)))
    assert "3 unchanged, 497 would be created" in text_of(checked)
    assert "497 created, 3 unchanged" in text_of(confirm(root, checked))
    assert len(names(service)) == 500


def test_a_form_with_a_file_is_bounded_and_protected(service: Service, root: Browser) -> None:
    assert root.upload("/ui/enroll", file=("big.csv", b"x" * (1024 * 1024 + 1))).status_code == 413
    assert root.send("POST", "/ui/enroll", "csrf=" + "x" * (4 * 1024 * 1024)).status_code == 413
    assert Browser(service).send("POST", "/ui/enroll", "csrf=" + "x" * 200_000).status_code == 413
    assert root.upload("/ui/machines/act", file=("a.csv", b"x" * 200_000)).status_code == 413
    assert root.upload("/ui/enroll", csrf="0" * 63, file=("rack.csv", sheet(1))).status_code == 403
    assert root.upload("/ui/enroll", csrf="0" * 64, file=("rack.csv", sheet(1))).status_code == 409  # kept, to be asked
    assert (
        root.upload("/ui/enroll", file=("a.csv", sheet(1)), headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    )
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    assert root.send("POST", "/ui/enroll", b"--x\r\nnonsense", broken).status_code in (400, 403)
    assert root.send("POST", "/ui/enroll", b"", {"Content-Type": "multipart/form-data"}).status_code == 400
    assert names(service) == []


def test_who_may_not_enrol_has_no_page_to_do_it_and_is_refused(service: Service) -> None:
    for who in ("reader", "a-reader", "a-member"):
        browser = Browser(service).log_in(who)
        assert "/ui/enroll" not in browser.get("/ui").text
        assert browser.get("/ui/enroll").status_code == 403
        assert browser.upload("/ui/enroll", file=("rack.csv", sheet(1))).status_code == 403
    assert names(service) == []


def test_machines_of_another_project_are_neither_changed_nor_shown(service: Service) -> None:
    mac = examples.mac()
    node = examples.node(name="theirs", owner="b")
    service.store.write(lambda tx: (tx.nodes.add(node), tx.ports.add([examples.port(node, address=mac)])))
    before = service.node(node.uuid)
    owner = Browser(service).log_in("a-admin")
    text = f"name,driver,macs\ntheirs,sim,\nmine,sim,{mac}\nfree,sim,\n"
    checked = owner.upload("/ui/enroll", text=text)
    assert node.uuid not in checked.text
    done = text_of(confirm(owner, checked))
    assert "1 created, 2 failed" in done
    assert service.node(node.uuid) == before
    assert service.node("free").owner == "a"
    taken = confirm(owner, owner.upload("/ui/enroll", text=f"name,driver,macs\nfree,sim,{mac}\n"))
    assert "1 failed" in text_of(taken)  # and not "unchanged": the port is not a port of this node
