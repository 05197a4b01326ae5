"""What the operator adds to a ramdisk: keys for SSH, certificates, scripts. Each file is checked when it is read."""

from __future__ import annotations

import codecs
import contextlib
import datetime
import re
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.plan import Extra
from ferroscope_client.core.text_files import NotTextError, text_of

_PUBLIC_KEY: Final = re.compile(rb"^((ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+) [A-Za-z0-9+/=]+( .*)?$")
# Byte order marks.
_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def ssh_key(path: Path) -> Extra:
    """Return a public key; ``RamdiskError``."""
    content = _read(path, "--ssh-key")
    if b"PRIVATE KEY" in content:
        raise RamdiskError(f"--ssh-key {path} is a private key", f"give the public one: {path}.pub")
    with contextlib.suppress(NotTextError):
        content = text_of(content).encode()
    lines = [line for line in content.splitlines() if line.strip() and not line.startswith(b"#")]
    if not lines or not all(_PUBLIC_KEY.match(line) for line in lines):
        raise RamdiskError(f"--ssh-key {path} is not a public key of OpenSSH", "such as ~/.ssh/id_ed25519.pub")
    return Extra(path.name, content)


def certificates(path: Path, now: datetime.datetime | None = None) -> list[Extra]:
    """Return the certificates in a PEM file, each as one of its own; ``RamdiskError``, also if all have expired."""
    content = _read(path, "--ca")
    try:
        loaded = x509.load_pem_x509_certificates(content)
    except ValueError as exc:
        raise RamdiskError(f"--ca {path} is not a certificate in PEM: {exc}", "give the certificate of the CA") from exc
    if (last := max(certificate.not_valid_after_utc for certificate in loaded)) < (
        now or datetime.datetime.now(datetime.UTC)
    ):
        raise RamdiskError(f"--ca {path} expired on {last:%Y-%m-%d}", "give the CA's new certificate")
    stem = re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem)
    names = [f"{stem}.crt"] if len(loaded) == 1 else [f"{stem}-{number}.crt" for number in range(1, len(loaded) + 1)]
    return [
        Extra(name, certificate.public_bytes(Encoding.PEM)) for name, certificate in zip(names, loaded, strict=True)
    ]


def hooks(directory: Path) -> list[Extra]:
    """Return the scripts of a directory, in the order of their names; ``RamdiskError``."""
    if not directory.is_dir():
        raise RamdiskError(f"--hook {directory} is not a directory", "give one with executable scripts")
    extras = []
    for path in sorted(file for file in directory.iterdir() if file.is_file() and _NAME.fullmatch(file.name)):
        content = _read(path, "--hook")
        if b"\r" in content.partition(b"\n")[0] or content.startswith(_MARKS):
            raise RamdiskError(
                f"--hook: {path} is a text of Windows, which the kernel cannot run", f"run: dos2unix {path}"
            )
        if not content.startswith((b"#!", b"\x7fELF")):
            raise RamdiskError(f"--hook: {path} is not a script", "begin it with a line such as #!/bin/sh")
        extras.append(Extra(path.name, content))
    if not extras:
        raise RamdiskError(f"--hook {directory} has no scripts", "put scripts there, such as 10-settings")
    return extras


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise RamdiskError(
            f"{option}: cannot read {path}: {exc.strerror}", "check the path and its permissions"
        ) from exc
