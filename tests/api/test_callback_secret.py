"""Who may report a machine's data: the attacker of the security review on each way of booting, without the secret.

The attacker is on the provisioning network: it knows the machine's MAC and BMC addresses, and its node's UUID.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferroscope.core import lookup
from ferroscope.core.states import Event
from tests.api.booted import ATTACKER, MACHINE, Site
from tests.api.service import callback_body, caller
from tests.support import examples


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., Site]:
    """Return a function that makes a site."""
    return partial(Site, tmp_path)


def spoofs(site: Site) -> list[tuple[Any, Any]]:
    """Try what the review's script tries, and the same with guessed secrets.

    Return each answer, and the one for the same of a machine that nobody knows.
    """
    unknown, stranger = examples.mac(), "203.0.113.9"
    answers = []
    for secret in (None, "", "x" * 43, "sha256:" + "0" * 64):

        def both(make: Callable[[str], Any], path: str = "/v1/continue_inspection", secret: str | None = secret) -> Any:
            real = site.call(secret, source=ATTACKER, body=make(site.mac), path=path)
            return real, site.call(secret, source=stranger, body=make(unknown), path=path)

        answers += [
            both(lambda mac: callback_body(mac, serial="POISONED")),
            both(lambda _mac: callback_body(unknown, bmc_address="10.99.0.7")),
            both(lambda mac: callback_body(mac, examples.mac())),
            both(lambda mac: callback_body(mac) | {"error": "spoofed failure"}),
            both(callback_body, "/v1/continue"),
        ]
    return answers


@pytest.mark.parametrize("way", ["virtual media", "boot script"])
@pytest.mark.parametrize("state", ["starting", "waiting"])
def test_without_the_secret_an_attacker_achieves_nothing_and_the_machine_is_inspected(
    site: Callable[..., Site], way: str, state: str
) -> None:
    attacked = site(way)
    if state == "waiting":
        attacked.power_on()
    before, ports = attacked.service.node(attacked.node), attacked.service.bare_metal.get("/v1/ports").json
    for real, unknown in spoofs(attacked):
        assert real.status_code in (400, 404, 429)  # 400: Introspection API; 429: too many guesses
        assert real.status_code == 429 or real.text == unknown.text
    by_uuid = f"/v1/continue_inspection?node_uuid={attacked.node}"
    answer = attacked.service.bare_metal.post(by_uuid, callback_body(attacked.mac), remote_addr=ATTACKER)
    assert answer.status_code in (404, 429)
    after = attacked.service.node(attacked.node)
    assert "was refused" in str(after.last_error)
    told = {"last_error": None, "version": before.version, "updated_at": before.updated_at}
    assert msgspec.structs.replace(after, **told) == before
    assert attacked.service.bare_metal.get("/v1/ports").json == ports
    assert [request.event for request in attacked.service.pending(attacked.node)].count(Event.CONTINUE) == 0
    refused = [entry for entry in attacked.timeline() if entry[0] == "callback-refused"]
    assert sorted(str(reason) for _, reason, _ in refused) == ["callback-unproven", "lookup-bmc-alone"]  # once a minute
    assert all(ATTACKER in message for _, _, message in refused)
    if state == "starting":
        attacked.power_on()
    assert attacked.call(attacked.secret, source=MACHINE).status_code == 202
    called = [entry for entry in attacked.timeline() if entry[0] == "callback"]
    assert called == [("callback", None, f"callback received from {MACHINE}")]
    assert attacked.service.node(attacked.node).last_error is None


def test_after_a_restart_the_machine_that_was_booted_before_is_refused(site: Callable[..., Site]) -> None:
    served = site("boot script")
    served.power_on()
    old = served.secret
    assert served.service.introspection.post(f"/v1/introspection/{served.node}").status_code == 202
    new = served.secret
    assert new != old
    assert served.call(old, source=MACHINE).status_code == 404
    assert served.call(old, source=MACHINE, path="/v1/continue").status_code == 400
    assert served.call(new, source=MACHINE).status_code == 202


@pytest.mark.parametrize("way", ["virtual media", "boot script"])
@pytest.mark.parametrize("path", ["/v1/continue_inspection", "/v1/continue"])
def test_the_machine_may_repeat_itself_boot_twice_and_call_late(site: Callable[..., Site], way: str, path: str) -> None:
    served = site(way)
    served.power_on()
    secret = served.secret
    assert served.secret == secret  # a second boot of the same inspection
    body = callback_body(served.mac)
    answers = [served.call(secret, source=MACHINE, body=body, path=path) for _ in range(2)]
    served.service.finish(served.node)
    answers.append(served.call(secret, source=MACHINE, body=body, path=path))  # a repetition that arrives late
    assert {caller(answer) for answer in answers} == {served.node}
    assert len({tuple(answer.json) for answer in answers}) == 1
    refused = served.call(None, source=MACHINE, body=body, path=path)
    assert refused.status_code == (400 if path == "/v1/continue" else 404)
    # The next inspection has another secret; what is kept of this one opens nothing.
    kept = str(served.inspection.secret)
    assert secret not in kept
    served.start()
    served.power_on()
    for old in (secret, kept, kept.removeprefix("sha256:")):
        assert served.call(old, source=MACHINE).status_code == 404
    assert served.call(served.secret, source=MACHINE).status_code == 202


def test_a_callback_before_the_start_was_committed_is_accepted(site: Callable[..., Site]) -> None:
    served = site("boot script")
    assert served.call(served.secret, source=MACHINE).status_code == 202


@pytest.mark.parametrize("way", ["virtual media", "boot script"])
def test_optional_refuses_a_wrong_secret_and_notes_a_missing_one(site: Callable[..., Site], way: str) -> None:
    served = site(way, "optional")
    served.power_on()
    assert served.call("wrong", source=ATTACKER).status_code == 404
    assert served.call(None, source=ATTACKER).status_code == 202
    (called,) = [entry for entry in served.timeline() if entry[0] == "callback"]
    assert called[1] == "callback-unproven"
    assert ATTACKER in called[2]


@pytest.mark.parametrize("way", ["static script", "unmanaged"])
def test_a_machine_that_gets_no_secret_needs_none(site: Callable[..., Site], way: str) -> None:
    served = site(way)
    served.power_on()
    assert served.secret == ""
    assert served.call(None, source=MACHINE).status_code == 202


@pytest.mark.parametrize("way", ["virtual media", "boot script"])
def test_off_means_no_secret_at_all(site: Callable[..., Site], way: str) -> None:
    served = site(way, "off")
    assert served.inspection.secret is None
    served.power_on()
    assert served.call("whatever", source=MACHINE).status_code == 202


def test_the_disk_is_served_for_its_key_only_and_until_the_end(site: Callable[..., Site]) -> None:
    served = site("virtual media")
    served.power_on()
    bare_metal, key = served.service.bare_metal, lookup.disk_key(str(served.inspection.secret))
    for wrong in ("0" * 32, key[:-1], key.upper(), str(served.inspection.secret)):
        assert bare_metal.get(f"/v1/ramdisk_parameters/{served.node}/{wrong}/disk.img").status_code == 404
    plain = bare_metal.get(f"/v1/ramdisk_parameters/{served.node}/disk.img")
    assert plain.status_code == 200
    assert b"secret" not in plain.content
    disk = bare_metal.get(f"/v1/ramdisk_parameters/{served.node}/{key}/disk.img")
    assert f"ipa-agent-token={lookup.agent_token(served.secret)}".encode() in disk.content
    served.service.fail(served.node)
    assert bare_metal.get(f"/v1/ramdisk_parameters/{served.node}/{key}/disk.img").status_code == 404


@pytest.mark.parametrize("way", ["virtual media", "boot script"])
def test_the_agent_gets_its_token_with_the_secret_and_no_lookup_tells_it(site: Callable[..., Site], way: str) -> None:
    served = site(way)
    served.power_on()
    client, token = served.service.bare_metal, lookup.agent_token(served.secret)
    if way == "boot script":
        script = client.get(f"/v1/boot.ipxe?mac={served.mac}", remote_addr=MACHINE).text
        assert re.findall(r"^set token (\S+)$", script, re.MULTILINE) == [token]
    for _ in range(2):
        answer = client.get(f"/v1/lookup?addresses={served.mac}", remote_addr=ATTACKER)
        assert answer.json["config"]["agent_token"] == "******"
        assert answer.json["config"]["agent_token_required"] is True
    beat = {"callback_url": "https://192.0.2.9:9999"}
    assert client.post(f"/v1/heartbeat/{served.node}", beat | {"agent_token": "x" * 64}).status_code == 404
    assert client.post(f"/v1/heartbeat/{served.node}", beat | {"agent_token": token}).status_code == 202
    elsewhere = {"callback_url": "https://198.51.100.66:9999", "agent_token": token}
    assert client.post(f"/v1/heartbeat/{served.node}", elsewhere).status_code == 400
    # A callback that proves to know the secret may have the token, too.
    answer = served.service.client("1.84").post(
        f"/v1/continue_inspection?secret={served.secret}", callback_body(served.mac), remote_addr=MACHINE
    )
    assert answer.json["config"]["agent_token"] == token
    served.service.fail(served.node)
    assert client.post(f"/v1/heartbeat/{served.node}", beat | {"agent_token": token}).status_code == 404


def test_without_the_secret_a_callback_gets_no_token_that_the_boot_delivers(site: Callable[..., Site]) -> None:
    served = site("boot script", "optional")
    served.power_on()
    body = callback_body(served.mac)
    answer = served.service.client("1.84").post("/v1/continue_inspection", body, remote_addr=ATTACKER)
    assert (answer.status_code, answer.json["config"]["agent_token"]) == (202, "******")


def test_a_token_that_an_older_release_issued_beside_the_boot_script_stays_valid(site: Callable[..., Site]) -> None:
    served = site("boot script")
    served.power_on()
    record = {"inspection": served.inspection.uuid, "token_sha256": hashlib.sha256(b"issued").hexdigest()}
    served.service.alter(served.node, internal={"agent": record})
    beat = {"callback_url": "https://192.0.2.9:9999"}
    for token, status in (("issued", 202), (lookup.agent_token(served.secret), 202), ("other", 404)):
        answer = served.service.bare_metal.post(f"/v1/heartbeat/{served.node}", beat | {"agent_token": token})
        assert answer.status_code == status, token


def test_no_answer_and_no_log_line_contains_a_secret(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    served = Site(tmp_path, "virtual media")
    served.power_on()
    secret = served.secret
    key, token = lookup.disk_key(secret), lookup.agent_token(secret)
    served.call("wrong", source=ATTACKER)
    served.call(secret, source=MACHINE)
    client, node = served.service.bare_metal, served.node
    paths = ["", "/states", "/timeline", "/history", "/inspections", "/validate"]
    answers = [client.get(f"/v1/nodes/{node}{path}").text for path in paths]
    answers += [client.get(path).text for path in ("/v1/nodes/detail", "/v1/status", "/metrics", "/v1/search?query=x")]
    answers += [served.service.introspection.get(f"/v1/introspection/{node}").text]
    printed = "".join(capfd.readouterr())
    assert "disk.img" in printed
    assert "callback with a wrong secret" in printed
    for text in [*answers, printed]:
        for canary in (secret, key, token):
            assert canary not in text
