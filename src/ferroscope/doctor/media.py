"""Checks of the ISO image that BMCs boot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ferroscope.config.options import Settings, is_loopback
from ferroscope.contracts.store import Clock
from ferroscope.remote.image_check import ImageCheck
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import without_secrets

_CODE: Final = "ramdisk-iso"


def examine_image(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Yield the problems of a configured ``[inspector] ramdisk_iso``: of its file, and of its URL."""
    image = settings.inspector.ramdisk_iso
    if not image:
        return
    served = image.startswith("/")
    url = f"{settings.callback_base.rstrip('/')}/v1/media/{Path(image).name}" if served else image
    if served and (finding := _file(Path(image))) is not None:
        yield finding
        return
    option = "callback_endpoint_override" if served else "ramdisk_iso"
    parts = urlsplit(url)
    if is_loopback(parts.hostname or ""):
        summary = f"BMCs read the ISO image from {without_secrets(url)}, an address that only this host can reach"
        yield Finding(_CODE, "note", summary, f"set [inspector] {option} to an address that BMCs can reach")
        return
    flaw = ImageCheck(clock).flaw(url)
    if flaw is None:
        yield Finding(_CODE, "ok", f"the ISO image can be read in parts: {without_secrets(url)}")
        return
    advice = "correct [inspector] ramdisk_iso, or its web server"
    if served:
        scheme = "https" if settings.api.tls_certificate_file else "http"
        advice = "start the api, which serves it, or correct [inspector] callback_endpoint_override"
        if parts.scheme != scheme and parts.port == settings.api.bare_metal_port:
            advice = f"the api uses {scheme}: correct [inspector] callback_endpoint_override"
    yield Finding(_CODE, "wrong" if flaw.certain else "note", flaw.message, advice)


def _file(path: Path) -> Finding | None:
    """Return why the api cannot serve a file."""
    try:
        with path.open("rb"):
            return None
    except FileNotFoundError:
        advice = "build it: ferroscope ramdisk build; needed on the api's hosts only"
        return Finding(_CODE, "note", f"the ISO image {path} does not exist on this host", advice)
    except OSError as exc:
        advice = f"let the service's user read it: chmod o+r {path}"
        return Finding(_CODE, "wrong", f"cannot read the ISO image {path}: {exc.strerror}", advice)
