"""The check of an image that a BMC is about to get, against real web servers."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.options import InspectorSettings, Settings
from ferroscope.doctor import media
from ferroscope.remote.addresses import Networks
from ferroscope.remote.image_check import ImageCheck
from ferroscope_client.core.reasons import Reason
from tests.support import images
from tests.support.certificates import Authority
from tests.support.manual_clock import ManualClock
from tests.support.processes import PATIENCE, free_port

Answer = Callable[[BaseHTTPRequestHandler], None]


class Handler(BaseHTTPRequestHandler):
    """Answers as the server is told to, and counts."""

    server: Any

    def do_GET(self) -> None:
        self.server.asked += 1
        self.server.answer(self)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the overridden method
        pass


@contextmanager
def serving(answer: Answer, *, context: ssl.SSLContext | None = None) -> Iterator[tuple[str, Any]]:
    """Give the URL of an image, and the server."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answer, server.asked = answer, 0
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=partial(server.serve_forever, 0.02), daemon=True)
    thread.start()
    try:
        scheme = "http" if context is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}/ipa.iso", server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


def _send(content: bytes, *, ranges: bool = True, status: int = 200) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range", "")
        if ranges and status == 200:
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            body = content[first : last + 1]
            handler.send_response(206 if body else 416)
        else:
            body = content
            handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        if status == 302:
            handler.send_header("Location", "/elsewhere.iso")
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.parametrize(
    ("answer", "reason", "certain"),
    [
        (_send(images.iso()), None, None),
        (_send(images.iso(), ranges=False), Reason.ISO_INVALID, False),
        (_send(images.iso(boots=False)), Reason.ISO_INVALID, True),
        (_send(b"<html>Log in</html>", ranges=False), Reason.ISO_INVALID, True),
        (_send(b"short"), Reason.ISO_INVALID, True),
        (_send(b"", status=404), Reason.ISO_INVALID, True),
        (_send(b"", status=401), Reason.ISO_INVALID, False),
        (_send(b"", status=503), Reason.ISO_INVALID, False),
        (_send(b"", status=302), Reason.ISO_INVALID, False),
    ],
    ids=["good", "no-ranges", "no-boot", "page-200", "short", "404", "401", "503", "redirect"],
)
def test_each_answer_of_a_server(answer: Answer, reason: Reason | None, certain: bool | None) -> None:
    with serving(answer) as (url, _):
        found = ImageCheck(ManualClock()).flaw(url)
    assert (found.reason, found.certain) == (reason, certain) if found is not None else reason is None


def test_a_server_that_is_not_there_or_silent_is_unreachable_and_perhaps_only_from_here() -> None:
    check = ImageCheck(ManualClock(), seconds=0.5)
    silent = threading.Event()
    with serving(lambda _handler: silent.wait(PATIENCE) and None) as (url, _):
        for one in (f"http://127.0.0.1:{free_port()}/ipa.iso", "http://name.invalid/ipa.iso", url):
            found = check.flaw(one)
            assert found is not None
            assert (found.reason, found.certain) == (Reason.ISO_UNREACHABLE, False)
        silent.set()


def test_a_certificate_that_nobody_knows_is_named(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with serving(_send(images.iso()), context=context) as (url, _):
        found = ImageCheck(ManualClock()).flaw(url)
    assert found is not None
    assert (found.reason, found.certain) == (Reason.ISO_CERTIFICATE, False)


def test_a_server_that_does_not_speak_tls_has_no_certificate_to_trust() -> None:
    with serving(_send(images.iso())) as (url, _):
        found = ImageCheck(ManualClock()).flaw(url.replace("http://", "https://"))
    assert found is not None
    assert (found.reason, found.certain) == (Reason.ISO_UNREACHABLE, False)
    assert "not https" in found.message


def test_doctor_notes_an_image_that_only_this_host_reaches_and_one_that_it_does_not(tmp_path: Path) -> None:
    def noted(image: str, base: str = "") -> str:
        settings = Settings(inspector=InspectorSettings(ramdisk_iso=image, callback_endpoint_override=base))
        (found,) = media.examine_image(settings, ManualClock())
        assert found.verdict == "note"
        return found.summary

    with serving(_send(images.iso())) as (url, server):
        assert "only this host" in noted(url)
        assert server.asked == 0
    file = tmp_path / "ipa.iso"
    file.write_bytes(images.iso())
    assert "only this host" in noted(str(file), "http://localhost:6385")
    assert "cannot be reached" in noted(str(file), "http://name.invalid:6385")
    assert "does not exist" in noted(f"{file}.old", "http://name.invalid:6385")


def test_a_good_image_is_looked_at_once_in_minutes_and_a_bad_one_soon_again() -> None:
    clock = ManualClock()
    check = ImageCheck(clock)
    with serving(_send(b"", status=404)) as (url, server):
        for _ in range(5):
            assert check.flaw(url) is not None
        assert server.asked == 1
        server.answer = _send(images.iso())
        clock.now += 60
        for _ in range(5):
            assert check.flaw(url) is None
        assert server.asked == 2
        clock.now += 600
        assert check.flaw(url) is None
        assert server.asked == 3


def test_secrets_of_the_url_are_not_in_the_message() -> None:
    with serving(_send(b"", status=404)) as (url, _):
        found = ImageCheck(ManualClock()).flaw(f"{url}?token=hush".replace("//", "//user:hush@"))
    assert found is not None
    assert "hush" not in found.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_nobody_learns_by_an_image_what_a_worker_can_reach(host: str) -> None:
    check = ImageCheck(ManualClock(), allowed=Networks(guarded=True))
    with serving(_send(b"", status=404)) as (url, server):
        found = check.flaw(url.replace("127.0.0.1", host))
        other = check.flaw(f"http://{host}:{free_port()}/ipa.iso")
        assert server.asked == 0
    assert (found is None) == (other is None)
    assert found is None or (found.reason, found.certain) == (Reason.ISO_UNREACHABLE, False)


def test_an_image_on_a_host_that_may_be_another_one_is_refused() -> None:
    for url in ["https://10.40.0.041/ipa.iso", "nfs://10.40.34/ipa.iso", "http:///10.40.34/x.iso"]:
        found = ImageCheck(ManualClock()).flaw(url)
        assert found is not None, url
        assert (found.reason, found.certain) == (Reason.ISO_INVALID, True), url


def test_what_is_not_http_is_not_looked_at() -> None:
    assert ImageCheck(ManualClock()).flaw("nfs://192.0.2.1/ipa.iso") is None
