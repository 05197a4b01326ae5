"""The digest of a day, from a worker to a real mail server: STARTTLS, a login, and what a reader sees."""

from __future__ import annotations

import email
import email.policy
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ferroscope.config.load import load
from ferroscope.core.digest import Digest, in_words
from ferroscope.core.notification import EventData, Kind
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.support.certificates import Authority
from tests.support.installation import Played
from tests.support.processes import free_port, run, until

PASSWORD = "correct horse"  # of a server that ends with the test
# Debian's, which has aiosmtpd.
PYTHON = "/usr/bin/python3"
DAY = Digest(since="2026-11-26T07:00:00Z", until="2026-11-27T07:00:00Z", finished=120, failures={"timeout": 3})


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_digest_reaches_people_and_a_wrong_password_does_not_lose_it(ending: ExitStack, tmp_path: Path) -> None:
    authority, port, box = Authority(tmp_path), free_port(), tmp_path / "box"
    box.mkdir()
    pair, secret = authority.issue("mail"), tmp_path / "secret"
    arguments = [str(port), str(pair.certificate), str(pair.key), "ferroscope", PASSWORD, str(box)]
    server = Played("mail", tmp_path, [PYTHON, str(Path(__file__).with_name("server.py")), *arguments])
    ending.callback(server.end)
    server.wait_ready()
    secret.write_text("wrong")
    target = {
        "name": "team", "url": f"smtp://localhost:{port}", "from": "ferroscope@example.com", "to": ["ops@example.com"],
        "user": "ferroscope", "secret": str(secret), "ca_file": str(authority.ca),
    }  # fmt: skip
    config = tmp_path / "f.conf"
    config.write_text(
        f"[database]\nconnection = sqlite:///{tmp_path}/f.db\n[drivers]\nenabled = sim\n"
        f"[notifications]\nmax_retry_delay = 1\ndigest_at = 07:00\ntarget = {json.dumps(target)}\n"
    )
    program = [sys.executable, "-m", "ferroscope"]
    run([*program, "db", "upgrade", "-c", "f.conf"], user=None, directory=tmp_path)
    backend = open_backend(load([str(config)]), clock=SystemClock(), stop=threading.Event(), listen=False)
    try:
        digest = EventData(digest=Digest(since=DAY.since, until=DAY.until, finished=120, text=in_words(DAY)))
        assert backend.store.write(lambda tx: tx.outbox.add_general(Kind.DIGEST, digest)) == 1
        worker = Played("worker", tmp_path, [*program, "worker", "-c", "f.conf"])
        ending.callback(worker.end)

        def error() -> str:
            (event,) = backend.store.read(lambda tx: tx.outbox.list(limit=10))
            return event.error or ""

        assert until(lambda: "the login is refused" in error())
        assert list(box.iterdir()) == []
        secret.write_text(PASSWORD)
        assert until(lambda: [one.suffix for one in box.iterdir()] == [".eml"])
        assert until(lambda: backend.store.read(lambda tx: tx.outbox.list(limit=10))[0].state == "delivered")
    finally:
        backend.close()
    (path,) = box.iterdir()
    found = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert found["Subject"] == "Ferroscope 2026-11-27: 120 inspections finished, 3 failed"
    assert "3 failed: timeout" in str(found.get_content())  # type: ignore[attr-defined]
    for log in tmp_path.glob("*.log"):
        assert PASSWORD not in log.read_text()
    run([*program, "events", "test", "team", "-c", "f.conf"], user=None, directory=tmp_path)
    assert until(lambda: len(list(box.glob("*.eml"))) == 2)
