"""Checks of the ISO image that BMCs boot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ferroscope.config.options import Settings
from ferroscope.contracts.queue import Clock
from ferroscope.remote.image_check import ImageCheck
from ferroscope.telemetry.finding import Finding

_CODE: Final = "ramdisk-iso"


def examine_image(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Yield what is wrong with ``[inspector] ramdisk_iso``, if it is configured."""
    image = settings.inspector.ramdisk_iso
    if not image:
        return
    if image.startswith("/"):
        yield _file(Path(image), f"{settings.callback_base.rstrip('/')}/v1/media/{Path(image).name}")
        return
    flaw = ImageCheck(clock).flaw(image)
    if flaw is None:
        yield Finding(_CODE, "ok", f"the ISO image can be read in parts: {image}")
    else:
        advice = "correct [inspector] ramdisk_iso, or its web server"
        yield Finding(_CODE, "wrong" if flaw.certain else "note", flaw.message, advice)


def _file(path: Path, url: str) -> Finding:
    try:
        with path.open("rb"):
            return Finding(_CODE, "ok", f"the api serves the ISO image {path} to BMCs as {url}")
    except FileNotFoundError:
        advice = "build it: ferroscope ramdisk build; needed on the api's hosts only"
        return Finding(_CODE, "note", f"the ISO image {path} does not exist on this host", advice)
    except OSError as exc:
        advice = f"let the service's user read it: chmod o+r {path}"
        return Finding(_CODE, "wrong", f"cannot read the ISO image {path}: {exc.strerror}", advice)
