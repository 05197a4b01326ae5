"""The example that mails events: what is signed reaches sendmail, and a failure of it is not confirmed."""

from __future__ import annotations

import email
import email.policy
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ferroscope.config.messaging_options import WebhookTarget
from ferroscope.contracts.remote import SendError
from ferroscope.core.notification import EventType, OutboxEvent
from ferroscope.remote.webhook import Webhook
from tests import ROOT
from tests.support.processes import free_port, until

_EVENT = OutboxEvent(
    target="mail",
    event="0b9d7b1e-6a3f-4a5e-8a55-6d0a1f0e9a11",
    type=EventType.FAILED,
    node="5f2c0e9c-4f0d-4a51-9d1b-3b8d5a3a7c10",
    data={"node": {"name": "räck-1\nBcc: all@example.com"}, "inspection": {"reason": "timeout", "error": "\x1b[2J"}},
    at=1_700_000_000.25,
)


def test_a_signed_event_is_mailed_and_confirmed_when_sendmail_has_it(tmp_path: Path) -> None:
    secret, other, box, port = tmp_path / "secret", tmp_path / "other", tmp_path / "box", free_port()
    secret.write_text("first\n")
    other.write_text("second\n")
    sendmail = tmp_path / "sendmail"
    sendmail.write_text(f"#!/bin/sh\ntest -e {box} || exit 75\ncat >> {box}\n")
    sendmail.chmod(0o755)
    command = [sys.executable, str(ROOT / "examples/mail_events.py"), str(port), str(secret), "ops@example.com"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def sender(key: Path) -> Webhook:
        return Webhook(WebhookTarget(name="mail", url=f"http://127.0.0.1:{port}/", secret=str(key)), source="/test")

    def is_ready() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    with subprocess.Popen(command, env=environment) as receiver:
        try:
            assert until(is_ready)
            with pytest.raises(SendError, match="503"):
                sender(secret).send(_EVENT)
            box.touch()
            with pytest.raises(SendError, match="401"):
                sender(other).send(_EVENT)
            sender(secret).send(_EVENT)
        finally:
            receiver.kill()
    mail = email.message_from_bytes(box.read_bytes(), policy=email.policy.default)
    assert (mail["To"], mail["Bcc"], mail["Message-ID"]) == ("ops@example.com", None, f"<{_EVENT.event}@ferroscope>")
    assert mail["Subject"].startswith("ferroscope.inspection.failed 'r")
    text = mail.get_content()  # type: ignore[attr-defined]
    assert '"reason": "timeout"' in text
    assert "\x1b" not in text
