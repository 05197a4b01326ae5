"""The image that a service serves, as curl and the service's own check find it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.remote.image_check import ImageCheck
from ferroscope.runtime.system import SystemClock
from tests.support import images
from tests.support.processes import PATIENCE
from tests.support.real_service import service


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "ipa.iso"
    path.write_bytes(images.iso(os.urandom(20_000_000)))
    return path


@pytest.fixture
def url(tmp_path: Path, image: Path) -> Iterator[str]:
    """Give the URL at which a service serves the image."""
    more = f"[inspector]\nramdisk_iso = {image}\ncallback_endpoint_override = http://127.0.0.1:1\n"
    with service(tmp_path, more) as api:
        yield f"{api.url}/v1/media/ipa.iso"


def test_curl_loads_parts_and_continues_and_the_image_passes_our_own_check(
    url: str, image: Path, tmp_path: Path
) -> None:
    content, target = image.read_bytes(), tmp_path / "got"

    def curl(*words: str) -> bytes:
        return subprocess.run(["curl", "-sSf", *words, url], check=True, capture_output=True, timeout=PATIENCE).stdout

    assert curl("-r", "32768-34815") == content[32768:34816]
    assert curl("-r", "-2048") == content[-2048:]
    assert curl("--http1.0") == content
    target.write_bytes(content[:7_000_000])
    curl("-C", "-", "-o", str(target))
    assert target.read_bytes() == content
    assert ImageCheck(SystemClock()).flaw(url) is None
