"""Secrets of nodes at rest: encrypted by every writer, decrypted for BMC calls only, on each database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.config.options import SecretSettings, Settings
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import SecretKeyError
from ferroscope.core.driver_info import count_plain, encrypted_values
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope.db.rekey import Rekeyed, census, rekey
from ferroscope.doctor.database import secret_findings
from ferroscope.runtime import wiring
from ferroscope.runtime.backend import open_for_command
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import new_key
from ferroscope.telemetry.key_check import missing_keys
from tests.api.service import Service, fault

SECRET = "Canary-5f1c"
INFO = {"sim_address": "127.0.0.1:1", "bmc_password": SECRET, "accounts": [{"user": "a", "password": f"{SECRET}-2"}]}


class Recorder(FakeBmc):
    """Knows what it was given. ``meanwhile`` is what happens after its first call, while the attempt goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Any] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def validate(self, node: Node) -> str | None:
        self.given.append(node.driver_info)
        self.meanwhile()
        return None

    def get_power(self, node: Node) -> Power:
        self.given.append(node.driver_info)
        return Power.ON


class Site:
    """A service with a key file, and workers that are run one step at a time."""

    def __init__(self, url: str, file: Path) -> None:
        self.url, self.file, self.driver = url, file, Recorder()
        self.keys(new_key())
        self.service = Service(url, sections={"secrets": SecretSettings(key_file=str(file))})

    @property
    def settings(self) -> Settings:
        return self.service.settings

    def keys(self, *lines: str) -> None:
        self.file.write_text("".join(f"{line}\n" for line in lines))
        self.file.chmod(0o600)

    def lines(self) -> list[str]:
        return self.file.read_text().split()

    def enrol(self, **info: Any) -> str:
        return self.service.enrol(driver="sim", driver_info=INFO | info)

    def row(self, uuid: str) -> str:
        """Return what the database has, as a dump of it would."""
        with self.service.backend.engine.connect() as connection:
            query = text("SELECT driver_info, instance_info FROM nodes WHERE uuid = :uuid")
            return " ".join(connection.execute(query, {"uuid": uuid}).one())

    def verify(self, uuid: str) -> Node:
        """Let a worker verify the node."""
        answer = self.service.bare_metal.put(f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
        assert answer.status_code == 202, answer.text
        return self.work(uuid)

    def age(self, uuid: str, *, seconds: float = 0.0, due: bool = False) -> None:
        """Make the node's requests older, or ``due`` now."""
        changed = "created_at = created_at - :seconds" + (", due_at = 0" if due else "")
        with self.service.backend.engine.begin() as connection:
            connection.execute(
                text(f"UPDATE requests SET {changed} WHERE node = :uuid"), {"uuid": uuid, "seconds": seconds}
            )

    def work(self, uuid: str) -> Node:
        """Let a worker carry out what is due."""
        backend, stop = self.service.backend, threading.Event()
        drivers = {"sim": self.driver}
        pool = wiring.build_pool(
            self.settings, backend, drivers, clock=SystemClock(), stop=stop, member="m", process="worker",
            claim_valid_for=lambda _at: 60.0,
        )  # fmt: skip
        pool._worker.step()
        return self.service.node(uuid)

    def patch(self, uuid: str, path: str, value: Any) -> Any:
        return self.service.bare_metal.patch(f"/v1/nodes/{uuid}", {"op": "add", "path": path, "value": value})

    def rekey(self, *lost: str) -> Rekeyed:
        with open_for_command(self.settings) as backend:
            return rekey(backend.store, backend.keys, lambda _text: None, lambda _count: None, lost)


@pytest.fixture
def site(sqlite_url: str, tmp_path: Path) -> Site:
    return Site(sqlite_url, tmp_path / "keys")


@pytest.fixture
def site_everywhere(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path / "keys")


def test_the_database_has_ciphertext_and_only_the_driver_gets_the_password(site_everywhere: Site) -> None:
    site = site_everywhere
    uuid = site.enrol()
    assert SECRET not in site.row(uuid)
    shown = site.service.bare_metal.get(f"/v1/nodes/{uuid}")
    assert shown.json["driver_info"] == INFO | {
        "bmc_password": "******", "accounts": [{"user": "a", "password": "******"}]
    }  # fmt: skip
    assert site.verify(uuid).power_state == "power on"
    assert site.driver.given == [INFO, INFO]
    assert SECRET not in site.row(uuid)


def test_what_was_shown_can_be_written_back_and_a_new_password_replaces_the_old(site: Site) -> None:
    uuid = site.enrol()
    shown = site.service.bare_metal.get(f"/v1/nodes/{uuid}").json["driver_info"]
    before = site.row(uuid)
    assert site.patch(uuid, "/driver_info", shown).status_code == 200
    assert site.row(uuid) == before
    assert site.patch(uuid, "/driver_info/bmc_password", f"{SECRET}-new").status_code == 200
    assert SECRET not in site.row(uuid)
    site.verify(uuid)
    assert site.driver.given[-1] == INFO | {"bmc_password": f"{SECRET}-new"}


def test_encrypted_values_of_another_node_are_refused(site: Site) -> None:
    uuid, other = site.enrol(), site.enrol()
    value = site.service.node(other).driver_info["bmc_password"]
    assert site.patch(uuid, "/driver_info/bmc_password", value).status_code == 400
    # Written to the database directly, it is of no use either.
    with site.service.backend.engine.connect() as connection:
        row = connection.execute(text("SELECT driver_info FROM nodes WHERE uuid = :u"), {"u": other}).scalar_one()
        connection.execute(text("UPDATE nodes SET driver_info = :i WHERE uuid = :u"), {"i": row, "u": uuid})
    assert "decryption-failed" in (site.verify(uuid).last_error or "")
    assert site.driver.given == []


def test_a_worker_without_the_key_leaves_the_request_to_one_that_has_it(site: Site) -> None:
    """It would be the fastest, and fail those of the whole fleet."""
    uuid, lines = site.enrol(), site.lines()
    site.keys(new_key())
    assert site.verify(uuid).last_error is None
    (request,) = site.service.pending(uuid)
    assert (request.event, request.attempt) == (Event.VERIFY, 0)
    timeline = site.service.bare_metal.get(f"/v1/nodes/{uuid}/timeline").json["entries"]
    assert "encryption-key-missing" in [entry["reason"] for entry in timeline]
    site.keys(*lines)
    site.age(uuid, due=True)
    assert site.work(uuid).last_error is None
    assert site.driver.given == [INFO, INFO]


def test_a_changed_address_needs_the_encrypted_password_again(site: Site) -> None:
    uuid = site.enrol()
    assert site.patch(uuid, "/driver_info/sim_address", "192.0.2.1:1").status_code == 400
    changed = {"op": "add", "path": "/driver_info/sim_address", "value": "192.0.2.1:1"}
    given = {"op": "add", "path": "/driver_info/bmc_password", "value": "other"}
    accounts = {"op": "remove", "path": "/driver_info/accounts"}
    assert site.service.bare_metal.patch(f"/v1/nodes/{uuid}", changed, given, accounts).status_code == 200


def test_without_the_key_the_bmc_call_fails_with_its_id_and_nothing_is_written_or_lost(site: Site) -> None:
    uuid, lines = site.enrol(), site.lines()
    before = site.row(uuid)
    used = site.service.store.read(lambda tx: tx.secret_keys.used())
    site.keys(new_key())
    site.verify(uuid)
    site.age(uuid, seconds=301.0, due=True)
    error = site.work(uuid).last_error or ""
    assert "encryption-key-missing" in error
    assert used[0] in error
    assert site.driver.given == []
    refused = site.patch(uuid, "/driver_info/bmc_password", "other")
    assert refused.status_code == 503
    assert used[0] in fault(refused)
    assert site.row(uuid) == before
    assert site.service.bare_metal.post("/v1/nodes", {"driver": "sim", "driver_info": INFO}).status_code == 503
    found = missing_keys(site.service.store, site.service.backend.keys)
    assert found is not None
    assert used[0] in found.summary
    site.keys(*lines)
    assert missing_keys(site.service.store, site.service.backend.keys) is None
    assert site.verify(uuid).power_state == "power on"


def test_a_process_without_a_key_file_writes_no_plain_secret_beside_encrypted_ones(site: Site) -> None:
    uuid = site.enrol()
    other = Service(site.url)
    body = {"op": "add", "path": "/driver_info/bmc_password", "value": "other"}
    assert other.bare_metal.patch(f"/v1/nodes/{uuid}", body).status_code == 503
    assert other.bare_metal.patch(f"/v1/nodes/{uuid}", body | {"path": "/extra/note"}).status_code == 200


def test_rekey_encrypts_what_is_plain_and_what_has_another_key_and_repeats_nothing(site: Site) -> None:
    encrypting, old = site.lines()[0], new_key()
    site.keys("identity")
    plain = [site.enrol() for _ in range(30)]
    assert SECRET in site.row(plain[0])
    site.keys(old)
    uuid = site.enrol()
    site.keys(encrypting, old)
    done = site.rekey()
    assert (done.nodes, done.changed, done.failed) == (31, 31, 0)
    found = census(site.service.store)
    assert found.plain == 0
    assert list(found.by_key.values()) == [62]
    assert SECRET not in "".join(map(site.row, plain))
    assert site.rekey().changed == 0
    site.keys(encrypting)  # the old key is not needed any more
    assert [one.code for one in secret_findings(site.service.store, site.service.backend.keys)] == ["secrets"]
    site.verify(uuid)
    assert site.driver.given[-1] == INFO


def test_rekey_changes_nothing_that_it_cannot_decrypt_and_says_so(site: Site) -> None:
    lost, kept = site.enrol(), site.enrol()
    new = new_key()
    with site.service.backend.engine.connect() as connection:
        row = site.service.node(kept).driver_info
        damaged = site.row(lost).split(" ")[0].replace('"v1.', '"v7.')
        connection.execute(text("UPDATE nodes SET driver_info = :i WHERE uuid = :u"), {"i": damaged, "u": lost})
    before = site.row(lost)
    site.keys(new, *site.lines())
    done = site.rekey()
    assert (done.changed, done.failed) == (1, 1)
    assert site.row(lost) == before
    assert site.service.node(kept).driver_info != row
    assert len(site.service.store.read(lambda tx: tx.secret_keys.used())) == 2


@pytest.mark.parametrize("first", ["", "identity"])
def test_an_attempt_that_began_before_the_keys_were_changed_goes_on(site: Site, first: str) -> None:
    uuid, old = site.enrol(), site.lines()
    new = [first or new_key()]

    def change_the_key() -> None:
        site.keys(*new, *old)
        assert site.rekey().changed == 1
        site.keys(*new, new_key())

    site.driver.meanwhile = change_the_key
    assert site.verify(uuid).last_error is None
    assert site.driver.given == [INFO, INFO]


def test_an_attempt_whose_bmc_was_replaced_while_the_keys_were_changed_begins_again(site: Site) -> None:
    uuid, old = site.enrol(), site.lines()
    new, moved = new_key(), INFO | {"sim_address": "127.0.0.1:2"}

    def move_the_bmc() -> None:
        site.driver.meanwhile = lambda: None
        site.keys(new, *old)
        assert site.patch(uuid, "/driver_info", moved).status_code == 200
        site.rekey()
        site.keys(new)

    site.driver.meanwhile = move_the_bmc
    assert site.verify(uuid).last_error is None
    assert site.driver.given == [INFO]
    assert [request.event for request in site.service.pending(uuid)] == [Event.VERIFY]


def test_a_key_that_is_lost_for_good_is_declared_lost(site: Site) -> None:
    uuid, other = site.enrol(), site.enrol()
    used = site.service.store.read(lambda tx: tx.secret_keys.used())
    site.keys(new_key())
    with pytest.raises(SecretKeyError):
        site.rekey()
    done = site.rekey(*used)
    assert (done.changed, done.failed) == (0, 2)
    assert site.patch(uuid, "/driver_info", INFO).status_code == 200
    site.verify(uuid)
    assert site.driver.given[-1] == INFO
    site.verify(other)
    site.age(other, seconds=301.0, due=True)
    assert "encryption-key-missing" in (site.work(other).last_error or "")


def test_rekey_with_identity_decrypts_before_a_downgrade(site: Site) -> None:
    uuid = site.enrol()
    site.keys("identity", *site.lines())
    assert site.rekey().changed == 1
    info = site.service.node(uuid).driver_info
    assert info == INFO
    assert (count_plain(info), list(encrypted_values(info))) == (2, [])
    assert list(site.service.store.read(lambda tx: tx.secret_keys.used())) == []


def test_a_rule_that_sets_a_password_stores_it_encrypted(site: Site) -> None:
    node = site.service.node(site.enrol())
    changed = {**node.driver_info, "ipmi_password": f"{SECRET}-rule"}
    site.service.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, driver_info=changed)))
    assert SECRET not in site.row(node.uuid)
    assert len(list(encrypted_values(site.service.node(node.uuid).driver_info))) == 3


def test_an_earlier_release_rejects_an_encrypted_password_instead_of_sending_it(site: Site) -> None:
    redfish = {"redfish_address": "https://192.0.2.1", "redfish_username": "root", "redfish_password": SECRET}
    ipmi = {"ipmi_address": "192.0.2.2", "ipmi_password": SECRET, "ipmi_hex_kg_key": "00ff"}
    for info, driver in ((redfish, RedfishBmc()), (ipmi, IpmiBmc())):
        stored = site.service.node(site.service.enrol(driver="sim", driver_info=info))
        assert driver.validate(stored) is not None
