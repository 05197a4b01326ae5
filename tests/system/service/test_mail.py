"""Mails to people: what they say, what counts as delivered, and that nothing secret is sent in the clear."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferroscope.config.messaging_options import MailTarget
from ferroscope.contracts.events import SendError
from ferroscope.contracts.secrets import SecretSourceError
from ferroscope.core.digest import Digest, HardwareChange, in_words
from ferroscope.core.notification import Kind, OutboxEvent
from ferroscope.remote.addresses import Networks
from ferroscope.remote.mail import Mail, message_of
from tests.support.bad_server import a_server_that
from tests.support.certificates import Authority
from tests.support.smtp_server import SmtpServer

DAY = Digest(
    since="2026-11-26T07:00:00.000000Z",
    until="2026-11-27T07:00:00.000000Z",
    finished=120,
    failures={"timeout": 3},
    changed=1,
    changes=[HardwareChange(node="5f2c0e9c", name="räck-1", text="memory: 64 GiB, was 128 GiB")],
)


def event(kind: str = Kind.DIGEST, **data: Any) -> OutboxEvent:
    data = data or {"digest": msgspec.to_builtins(msgspec.structs.replace(DAY, text=in_words(DAY)))}
    node = "5f2c0e9c-4f0d-4a51-9d1b-3b8d5a3a7c10" if data.get("node") else ""
    ident = "0b9d7b1e-6a3f-4a5e-8a55-6d0a1f0e9a11"
    return OutboxEvent(target="team", event=ident, type=kind, node=node, data=data, at=1_700_000_000.25)


def mail(url: str, networks: tuple[str, ...] = (), to: tuple[str, ...] = ("ops@example.com",), **fields: Any) -> Mail:
    target = MailTarget(name="team", url=url, to=to, sender="ferroscope@example.com", **fields)
    return Mail(target, source="https://ferroscope.example.com", networks=Networks(networks))


def failure(sender: Mail) -> SendError:
    with pytest.raises(SendError) as error:
        sender.send(event())
    return error.value


def parsed(text: str) -> EmailMessage:
    found = email.message_from_string(text, policy=email.policy.default)
    assert isinstance(found, EmailMessage)
    return found


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_digest_arrives_as_text_that_people_read() -> None:
    with SmtpServer() as server:
        mail(f"smtp://127.0.0.1:{server.port}", to=("ops@example.com", "boss@example.com"), starttls=False).send(
            event()
        )
    (found,) = map(parsed, server.mails)
    assert found["Subject"] == "Ferroscope 2026-11-27: 120 inspections finished, 3 failed"
    assert (found["From"], found["To"]) == ("ferroscope@example.com", "ops@example.com, boss@example.com")
    assert found["Message-ID"] == "<0b9d7b1e-6a3f-4a5e-8a55-6d0a1f0e9a11@example.com>"
    assert (found["Auto-Submitted"], found["Date"]) == ("auto-generated", "Tue, 14 Nov 2023 22:13:20 +0000")
    text = found.get_content()
    assert text.startswith("Between 2026-11-26 07:00 and 2026-11-27 07:00 UTC:")
    assert "3 failed: timeout" in text
    assert "räck-1: memory: 64 GiB, was 128 GiB" in text
    assert "https://ferroscope.example.com/ui" in text


def test_what_a_machine_says_adds_no_header_and_misleads_nobody() -> None:
    hostile = "m-1\r\nBcc: all@example.com\u202e"
    node = {"uuid": "5f2c0e9c-4f0d-4a51-9d1b-3b8d5a3a7c10", "name": hostile}
    inspection = {"reason": "timeout", "error": "no callback\x1b[2J within 100 s"}
    failed = event(Kind.FAILED, node=node, inspection=inspection)
    target = MailTarget(name="team", url="smtp://h", to=("ops@example.com",), sender="f@example.com")
    found = parsed(message_of(failed, target, "/ferroscope").as_string())
    assert found["Bcc"] is None
    assert found["Subject"].startswith("Ferroscope: inspection failed m-1")
    assert "Reason: timeout" in found.get_content()
    assert not {"\x1b", "\u202e"} & set(found.get_content())


@pytest.mark.parametrize("tls", [False, True])
def test_a_login_is_sent_over_tls_only(authority: Authority, tmp_path: Path, *, tls: bool) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    with SmtpServer(authority.issue("mail"), tls=tls, login=True) as server:
        url = f"{'smtps' if tls else 'smtp'}://localhost:{server.port}"
        sender = mail(url, user="ferroscope", secret=str(secret), ca_file=str(authority.ca))
        sender.send(event())
        secret.write_text("second")
        sender.send(event())
    assert server.logins == [("ferroscope", "first", True), ("ferroscope", "second", True)]
    assert len(server.mails) == 2


def test_without_starttls_or_with_a_wrong_certificate_nothing_is_sent(authority: Authority, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    stranger = Authority(tmp_path, "stranger").issue("wrong")
    for pair, said in ((None, "offers no STARTTLS"), (stranger, "certificate is not valid")):
        with SmtpServer(pair, login=True) as server:
            url = f"smtp://127.0.0.1:{server.port}"
            error = failure(mail(url, user="u", secret=str(secret), ca_file=str(authority.ca)))
        assert said in str(error)
        assert (error.unreachable, server.logins, server.mails) == (True, [], [])


def test_a_new_ca_counts_from_the_next_mail_on_and_a_half_written_one_is_said(
    authority: Authority, tmp_path: Path
) -> None:
    old = tmp_path / "used.pem"
    old.write_bytes(Authority(tmp_path, "old").ca.read_bytes())
    with SmtpServer(authority.issue("mail"), tls=True) as server:
        sender = mail(f"smtps://localhost:{server.port}", ca_file=str(old))
        assert "certificate is not valid" in str(failure(sender))
        for content in (b"", authority.ca.read_bytes()[:-40]):
            old.write_bytes(content)
            assert "cannot read its CA file" in str(failure(sender))
        old.write_bytes(authority.ca.read_bytes())
        sender.send(event())
    assert len(server.mails) == 1


def test_a_refused_login_waits_for_a_correction_and_quotes_nothing(authority: Authority, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    with SmtpServer(authority.issue("mail"), login=True, answers={"AUTH": "535 wrong: hunter2"}) as server:
        url = f"smtp://127.0.0.1:{server.port}"
        error = failure(mail(url, user="u", secret=str(secret), ca_file=str(authority.ca)))
    assert str(error) == "the login is refused (535); correct user or secret"
    assert (error.unreachable, error.refused, server.mails) == (True, False, [])
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("answers", "refused", "unreachable", "said"),
    [
        ({"RCPT": "550 no such user"}, True, False, "no recipient is accepted: 550 no such user"),
        ({"RCPT": "451 try later"}, False, False, "451 try later"),
        ({"MAIL": "550 not from you"}, False, True, "the sender is refused: 550 not from you"),
        ({"DATA": "451 busy"}, False, False, "the mail is refused: 451 busy"),
        ({".": "554 spam"}, True, False, "the mail is refused: 554 spam"),
        ({".": "452 disk \x1b full"}, False, False, "452 disk \ufffd full"),
    ],
)
def test_a_refusal_is_for_good_for_now_or_of_the_configuration(
    answers: dict[str, str], said: str, *, refused: bool, unreachable: bool
) -> None:
    with SmtpServer(answers=answers) as server:
        error = failure(mail(f"smtp://127.0.0.1:{server.port}", starttls=False))
    assert said in str(error)
    assert (error.refused, error.unreachable, server.mails) == (refused, unreachable, [])


def test_some_recipients_are_refused() -> None:
    to = ("ops@example.com", "gone@example.com")
    with SmtpServer(answers={"gone@example.com": "550 gone"}) as server:
        mail(f"smtp://127.0.0.1:{server.port}", to=to, starttls=False).send(event())
        assert len(server.mails) == 1
        server.answers["gone@example.com"] = "450 greylisted"
        error = failure(mail(f"smtp://127.0.0.1:{server.port}", to=to, starttls=False))
        assert "gone@example.com is refused for now" in str(error)
        assert (error.refused, error.unreachable) == (False, False)


def test_a_server_that_is_silent_gone_or_elsewhere_is_unreachable() -> None:
    with a_server_that([], reads=False) as port:
        error = failure(mail(f"smtp://127.0.0.1:{port}", timeout=0.3))
        assert (str(error), error.unreachable) == ("no answer within 0.3 s", True)
    error = failure(mail(f"smtp://127.0.0.1:{port}"))
    assert ("ConnectionRefusedError" in str(error), error.unreachable) == (True, True)
    error = failure(mail("smtp://127.0.0.1:1", networks=("192.0.2.0/24",)))
    assert str(error) == "its address is not in [notifications] networks"


def test_files_are_checked_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mail("smtp://h", user="u", secret=str(tmp_path / "missing"))
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(SecretSourceError, match="empty"):
        mail("smtp://h", user="u", secret=str(empty))
    empty.write_text("no certificate")
    with pytest.raises(SecretSourceError, match="PEM"):
        mail("smtp://h", ca_file=str(empty))
