"""Delivers events to people, as mails over SMTP.

The server's certificate is verified, and a login is sent over TLS only. What machines say, such as names and errors,
is text for display: control characters are replaced. The Message-ID follows from the event, so that a mail which is
sent again after a lost answer is recognized. Sources: RFC 5321, RFC 3207 (STARTTLS), RFC 3834 (automatic messages).
"""

from __future__ import annotations

import contextlib
import re
import smtplib
import socket
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from ferroscope.config.messaging_options import MailTarget
from ferroscope.contracts.events import SendError
from ferroscope.contracts.secrets import SecretSourceError
from ferroscope.core.notification import MEANINGS, Kind, OutboxEvent
from ferroscope.remote import target_secret
from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope.remote.resolver import ForbiddenAddressError, UnresolvedError, connect
from ferroscope.remote.target_secret import Resolve

_PORTS: Final = {"smtp": 587, "smtps": 465}
_HARMFUL: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_LONGEST_SUBJECT: Final = 120
_QUOTED: Final = 200

_log = structlog.get_logger(__name__)


def message_of(event: OutboxEvent, target: MailTarget, source: str) -> EmailMessage:
    """Return the mail about the event; ``source``: the service, as a URI."""
    message = EmailMessage()
    subject = _cleaned(_subject(event)).replace("\n", " ")
    message["Subject"] = subject if len(subject) <= _LONGEST_SUBJECT else f"{subject[: _LONGEST_SUBJECT - 1]}…"
    message["From"] = target.sender
    message["To"] = ", ".join(target.to)
    message["Date"] = format_datetime(datetime.fromtimestamp(event.at, UTC))
    message["Message-ID"] = f"<{event.event}@{target.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    link = [f"{source.rstrip('/')}/ui"] if source.startswith(("https://", "http://")) else []
    text = "\n".join([*map(_cleaned, _lines(event)), "", "-- ", f"Ferroscope {source}", *link]) + "\n"
    # Not every server accepts eight bits, or long lines.
    message.set_content(text, cte="quoted-printable")
    return message


def _subject(event: OutboxEvent) -> str:
    if event.type == Kind.DIGEST:
        digest = event.data["digest"]
        return f"Ferroscope {digest['until'][:10]}: {digest['text'].partition('.')[0]}"
    return f"Ferroscope: {event.type.replace('.', ' ').replace('_', ' ')} {_name(event)}".rstrip()


def _name(event: OutboxEvent) -> str:
    return str((event.data.get("node") or {}).get("name") or event.node)


def _lines(event: OutboxEvent) -> Iterator[str]:
    """Yield what the mail says."""
    if event.type == Kind.DIGEST:
        digest = event.data["digest"]
        yield f"Between {digest['since'][:16].replace('T', ' ')} and {digest['until'][:16].replace('T', ' ')} UTC:"
        yield ""
        yield digest["text"]
        return
    yield MEANINGS[Kind(event.type)].replace("`", "")
    if event.node:
        yield ""
        yield f"Machine: {_name(event)} ({event.node})"
    inspection: Mapping[str, Any] = event.data.get("inspection") or {}
    for title, name in (("Reason", "reason"), ("Error", "error")):
        if inspection.get(name):
            yield f"{title}: {inspection[name]}"
    for change in event.data.get("changes") or ():
        yield f"  {change['text']}"


def _cleaned(text: str) -> str:
    return _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", text)


class _Smtp(smtplib.SMTP):
    """A session on a connection under a deadline, in allowed networks."""

    def __init__(self, host: str, port: int, deadline: Deadline, allowed: Networks) -> None:
        self._deadline, self._allowed = deadline, allowed
        # Without a name, smtplib asks the resolver for one, for which there is no time limit.
        name = socket.gethostname()
        local = name if "." in name else "[127.0.0.1]"
        super().__init__(host, port, local_hostname=local, timeout=deadline.left())

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        opened = connect(host, port, self._deadline, self._allowed)
        opened.settimeout(timeout)
        return opened


class _Smtps(_Smtp):
    """The same, with TLS from the first byte on."""

    def __init__(self, host: str, port: int, deadline: Deadline, allowed: Networks, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(host, port, deadline, allowed)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._context.wrap_socket(super()._get_socket(host, port, timeout), server_hostname=host)


class Mail:
    """A ``contracts.events.Sender``.

    ``resolve`` returns the password of a reference. ``OSError`` or ``SecretSourceError`` if the file of the password or
    the CA file cannot be used.
    """

    connections = 1

    def __init__(
        self, target: MailTarget, *, source: str, networks: Networks = ANYWHERE, resolve: Resolve | None = None
    ) -> None:
        self._target = target
        self._source = source
        self._networks = networks
        self._resolve = resolve
        if target.secret.startswith("/"):
            target_secret.read(target.secret, None)  # a mistake is reported at the start
        self._tls()  # as well
        url = urlsplit(target.url)
        self._scheme, self._host = url.scheme, url.hostname or ""
        self._port = url.port or _PORTS[url.scheme]

    def send(self, event: OutboxEvent) -> None:
        message = message_of(event, self._target, self._source)
        with Deadline(self._target.timeout) as deadline:
            try:
                self._hand_over(message, deadline)
            except SendError:
                raise
            except ForbiddenAddressError:
                raise SendError("its address is not in [notifications] networks", unreachable=True) from None
            except UnresolvedError as exc:
                raise SendError(str(exc), unreachable=True) from None
            except ssl.SSLCertVerificationError as exc:
                raise SendError(f"its certificate is not valid: {exc.verify_message}", unreachable=True) from None
            except (smtplib.SMTPException, OSError, DeadlineError, ValueError) as exc:
                if deadline.expired:
                    message_text = f"no answer within {self._target.timeout:g} s"
                else:
                    message_text = f"the connection failed: {type(exc).__name__}"
                # Not from it: what a server says at the login may repeat the credentials.
                raise SendError(message_text, unreachable=True) from None

    def close(self) -> None:
        """There is nothing to close: each mail has a connection of its own."""

    def _hand_over(self, message: EmailMessage, deadline: Deadline) -> None:
        session = self._connected(deadline)
        try:
            self._log_in(session)
            try:
                refused = session.send_message(message, self._target.sender, list(self._target.to))
            except smtplib.SMTPRecipientsRefused as exc:
                refused = exc.recipients
                if all(code >= 500 for code, _ in refused.values()):
                    raise SendError(
                        f"no recipient is accepted: {_reply(*next(iter(refused.values())))}", refused=True
                    ) from None
            except smtplib.SMTPSenderRefused as exc:
                raise SendError(
                    f"the sender is refused: {_reply(exc.smtp_code, exc.smtp_error)}", unreachable=True
                ) from None
            except smtplib.SMTPDataError as exc:
                raise SendError(
                    f"the mail is refused: {_reply(exc.smtp_code, exc.smtp_error)}", refused=exc.smtp_code >= 500
                ) from None
            self._look_at(refused)
            with contextlib.suppress(smtplib.SMTPException, OSError):
                session.quit()
        finally:
            session.close()

    def _tls(self) -> ssl.SSLContext:
        """Return how to verify the server: the CA file may have been replaced since the last mail."""
        try:
            return ssl.create_default_context(cafile=self._target.ca_file or None)
        except ssl.SSLError:
            raise SecretSourceError(f"{self._target.ca_file} is not a PEM file of certificates") from None

    def _connected(self, deadline: Deadline) -> _Smtp:
        try:
            context = self._tls()
        except (OSError, SecretSourceError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise SendError(f"cannot read its CA file: {reason}", unreachable=True) from None
        if self._scheme == "smtps":
            return _Smtps(self._host, self._port, deadline, self._networks, context)
        session = _Smtp(self._host, self._port, deadline, self._networks)
        if self._target.starttls:
            try:
                session.starttls(context=context)
            except smtplib.SMTPNotSupportedError:
                session.close()
                raise SendError("it offers no STARTTLS; nothing is sent without TLS", unreachable=True) from None
            except BaseException:
                session.close()
                raise
        return session

    def _log_in(self, session: _Smtp) -> None:
        if not self._target.user:
            return
        try:
            password = target_secret.read(self._target.secret, self._resolve)
        except (OSError, SecretSourceError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise SendError(f"cannot read its secret: {reason}", unreachable=True) from None
        try:
            session.login(self._target.user, password)
        except smtplib.SMTPAuthenticationError as exc:
            raise SendError(
                f"the login is refused ({exc.smtp_code}); correct user or secret", unreachable=True
            ) from None
        except smtplib.SMTPNotSupportedError:
            raise SendError("it offers no login that is known; remove user and secret?", unreachable=True) from None

    def _look_at(self, refused: Mapping[str, tuple[int, bytes]]) -> None:
        """Log who is refused for good; ``SendError`` if somebody is for now: then all get the mail again."""
        for address, (code, text) in refused.items():
            if code < 500:
                raise SendError(f"{address} is refused for now: {_reply(code, text)}")
            _log.warning("mail recipient refused", target=self._target.name, recipient=address, why=_reply(code, text))


def _reply(code: int, text: bytes | str) -> str:
    """Return what the server has reply, for display."""
    reply = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"{code} {_cleaned(reply).replace(chr(10), ' ')[:_QUOTED]}".rstrip()
