"""Checks of the ramdisk: its files, its age, its agent, and whether machines that boot it reach and trust the api.

Checks change nothing and end within a timeout. Answers of web servers are bounded and not trusted.
"""

from __future__ import annotations

import datetime
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ferroscope.config.options import BootSettings, Settings, is_loopback
from ferroscope.contrib.ramdisk import signature
from ferroscope.contrib.ramdisk.installed import OLD_DAYS, Installed, agent_is_old, find
from ferroscope.contrib.ramdisk.manifest import Manifest, RamdiskError
from ferroscope.core.boot import callback_url
from ferroscope_client.core import json_safety
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many

_TIMEOUT_SECONDS: Final = 5.0
_MAX_BODY_BYTES: Final = 4 << 20
_BUILD: Final = "build it again: ferroscope ramdisk build"


def examine_ramdisks(settings: Settings) -> Iterator[Finding]:
    """Yield the findings about the ramdisks that this host serves, and about ``[inspector] ramdisk_iso``."""
    if settings.boot.hosts:
        try:
            for installed in find(Path(settings.boot.tftp_root)):
                yield from examine(installed, settings)
                yield from _architecture(installed, settings.boot)
        except RamdiskError as exc:
            yield Finding("ramdisk", "wrong", exc.summary, exc.advice)
    try:
        yield from _iso(settings)
    except RamdiskError as exc:
        yield Finding("ramdisk", "wrong", exc.summary, exc.advice)


def examine(
    installed: Installed, settings: Settings, public_key: Path | None = None, now: datetime.datetime | None = None
) -> Iterator[Finding]:
    """Yield the findings about one ramdisk; ``RamdiskError`` if the key cannot be read."""
    yield from _contents(installed.manifest, installed.name, now or datetime.datetime.now(datetime.UTC))
    if changed := installed.list_problems():
        yield Finding("ramdisk-files", "wrong", f"{installed.path.parent}: {'; '.join(changed)}", _BUILD)
    else:
        yield Finding("ramdisk-files", "ok", f"{installed.name}: all files match the manifest")
    yield from _signature(installed, public_key)
    yield from _callback(installed.manifest, installed.name, settings)


def _architecture(installed: Installed, boot: BootSettings) -> Iterator[Finding]:
    """Note a kernel that only some of the machines that load iPXE from this host can run."""
    arch, root = installed.manifest.options.arch, Path(boot.tftp_root)
    if arch == "amd64" or boot.kernel not in installed.manifest.files:
        return
    if any((root / loader).is_file() for loader in (boot.loader_x64, boot.loader_bios)):
        summary = f"[boot] kernel {boot.kernel} is for {arch}: x86 machines, which also boot from here, cannot run it"
        advice = "for them, set boot_interface (ipxe), deploy_kernel and deploy_ramdisk of their nodes"
        yield Finding("ramdisk-arch", "note", summary, advice)


def _contents(manifest: Manifest, name: str, now: datetime.datetime) -> Iterator[Finding]:
    days = (now - manifest.sources_time).days
    age = (
        f"{name} ({manifest.options.arch}): ironic-python-agent {manifest.agent}, kernel {manifest.kernel}, "
        f"sources {many(days, 'day')} old"
    )
    if agent_is_old(manifest.agent):
        yield Finding("ramdisk", "wrong", f"{age}; this agent is no longer supported", _BUILD)
    elif days > OLD_DAYS:
        yield Finding("ramdisk", "note", f"{age}; Debian's updates since then are missing", _BUILD)
    else:
        yield Finding("ramdisk", "ok", age)


def _signature(installed: Installed, public_key: Path | None) -> Iterator[Finding]:
    path = installed.path.with_name(f"{installed.path.name}.sig")
    if public_key is None:
        if path.exists():
            yield Finding(
                "ramdisk-signature", "ok", f"{installed.name} is signed; to check the signer, use --public-key"
            )
        return
    if not path.exists():
        yield Finding("ramdisk-signature", "wrong", f"{installed.name} is not signed", f"{_BUILD} --sign-key KEY")
    elif reason := signature.verify(installed.path, path, public_key):
        summary = f"{installed.path.name} was not signed with {public_key}, or was changed since: {reason}"
        yield Finding("ramdisk-signature", "wrong", summary, "find out who changed it, and build it again")
    else:
        yield Finding("ramdisk-signature", "ok", f"{installed.name} is signed with {public_key}")


def _callback(manifest: Manifest, name: str, settings: Settings) -> Iterator[Finding]:
    expected, built_in = expected_callback(settings), manifest.options.callback_url
    if built_in and expected and built_in != expected:
        summary = f"{name} has the callback URL {built_in} built in, but {expected} is configured"
        advice = f"{_BUILD}; until then, machines without our parameter disk or boot script call the old URL"
        yield Finding("ramdisk-callback", "note", summary, advice)
    url = urlsplit(expected or built_in)
    if url.scheme == "https" and url.hostname:
        yield _trust(manifest, name, url)
    elif is_loopback(url.hostname or ""):
        summary = f"machines with {name} would call back to {url.geturl()}, which is each machine's own address"
        advice = "set [inspector] callback_endpoint_override, or [boot] callback_url, to an address of the api"
        yield Finding("ramdisk-callback", "note", summary, advice)
    elif expected:
        yield Finding("ramdisk-callback", "ok", f"{name} calls back to {expected}")


def expected_callback(settings: Settings) -> str:
    """Return the URL to which machines are told to post, "" if none is configured."""
    if settings.boot.callback_url:
        return settings.boot.callback_url
    try:
        return callback_url(settings.callback_base)
    except ValueError:
        return ""


def _trust(manifest: Manifest, name: str, url: SplitResult) -> Finding:
    """Connect to the api with the ramdisk's certificates: those of Debian, and those of the build."""
    place = url.hostname or "", url.port or 443
    context = ssl.create_default_context()
    for text in manifest.options.certificates.values():
        context.load_verify_locations(cadata=text)
    try:
        with socket.create_connection(place, timeout=_TIMEOUT_SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=place[0]).close()
    except ssl.SSLCertVerificationError as exc:
        summary = f"machines with {name} do not trust the certificate of {url.netloc}: {exc.verify_message}"
        return Finding("ramdisk-tls", "wrong", summary, f"{_BUILD} --ca FILE, with the CA of that certificate")
    except ssl.SSLError as exc:
        if exc.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED":
            return Finding("ramdisk-tls", "ok", f"machines with {name} trust the certificate of {url.netloc}")
        return Finding("ramdisk-tls", "wrong", f"no TLS with {url.netloc}: {exc.reason}", "correct the callback URL")
    except OSError as exc:
        summary = f"cannot check whether machines with {name} trust the certificate of {url.netloc}: {exc}"
        return Finding("ramdisk-tls", "note", summary, "start the api, or correct the callback URL")
    return Finding("ramdisk-tls", "ok", f"machines with {name} trust the certificate of {url.netloc}")


def _iso(settings: Settings) -> Iterator[Finding]:
    """Check the ISO against the manifest beside it, which only our ramdisks have."""
    image = settings.inspector.ramdisk_iso
    if image.startswith("/"):  # the api serves it; without boot hosts, no other check reads it
        path = Path(image)
        if not settings.boot.hosts or path.parent != Path(settings.boot.tftp_root):
            for installed in find(path.parent):
                if path.name in installed.manifest.files:
                    yield from examine(installed, settings)
        return
    url = urlsplit(image)
    if url.scheme not in ("http", "https") or not url.hostname:
        return
    manifest = _manifest_beside(url)
    if manifest is None:
        return
    name = Path(url.path).name
    yield from _contents(manifest, name, datetime.datetime.now(datetime.UTC))
    size, wanted = _size(url), manifest.files.get(name)
    if wanted is not None and size is not None and size != wanted.size:
        summary = f"{image} has {size} bytes, but its manifest says {wanted.size}"
        yield Finding("ramdisk-files", "wrong", summary, "copy ISO and manifest there again")
    yield from _callback(manifest, name, settings)


def _size(url: SplitResult) -> int | None:
    try:
        status, size, _ = _request(url, "HEAD", url.path)
    except (OSError, http.client.HTTPException):  # another check reports that
        return None
    return size if status == http.client.OK else None


def _manifest_beside(url: SplitResult) -> Manifest | None:
    path = f"{url.path.removesuffix('.iso')}.manifest.json"
    try:
        status, _, body = _request(url, "GET", path)
        return json_safety.decode(body, Manifest) if status == http.client.OK else None
    except (OSError, http.client.HTTPException, json_safety.JsonError):
        return None


def _request(url: SplitResult, method: str, path: str) -> tuple[int, int | None, bytes]:
    """Return status, length and body. The certificate is not verified: many BMCs cannot verify one either."""
    connection: http.client.HTTPConnection = http.client.HTTPConnection(
        url.hostname or "", url.port, timeout=_TIMEOUT_SECONDS
    )
    if url.scheme == "https":
        unverified = ssl._create_unverified_context()  # noqa: S323  # nothing secret is sent
        connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, timeout=_TIMEOUT_SECONDS, context=unverified
        )
    try:
        connection.request(method, path)
        response = connection.getresponse()
        length = response.headers.get("Content-Length", "")
        return response.status, int(length) if length.isdigit() else None, response.read(_MAX_BODY_BYTES)
    finally:
        connection.close()
