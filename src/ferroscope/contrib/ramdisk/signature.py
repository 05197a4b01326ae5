"""The OpenSSH signature of a manifest: every administrator has such a key, perhaps on a security key.

To check it without Ferroscope: ``ssh-keygen -Y verify -f SIGNERS -I ramdisk -n ferroscope-ramdisk -s FILE.sig <FILE``,
where SIGNERS has a line ``ramdisk PUBLIC-KEY``.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ferroscope.contrib.ramdisk.manifest import RamdiskError

_NAMESPACE: Final = "ferroscope-ramdisk"
_SIGNER: Final = "ramdisk"


def check_key(key: Path) -> None:
    """Refuse a key that cannot sign, before the work begins; it may ask for a passphrase."""
    if not key.is_file():
        raise RamdiskError(
            f"--sign-key {key} does not exist", f"make one: ssh-keygen -t ed25519 -C ferroscope-ramdisk -f {key}"
        )
    done = subprocess.run(  # noqa: S603
        ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", _NAMESPACE],  # noqa: S607
        input=b"", capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RamdiskError(
            f"cannot sign with {key}: {_last_line(done.stderr)}",
            "give a key of OpenSSH, or the public half of one that ssh-agent has",
        )


def sign(path: Path, key: Path) -> None:
    """Write the signature of a file beside it."""
    done = subprocess.run(  # noqa: S603
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", _NAMESPACE, str(path)],  # noqa: S607
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RamdiskError(f"cannot sign with {key}: {_last_line(done.stderr)}", "check the key, and run it again")


def verify(path: Path, signature: Path, public_key: Path) -> str:
    """Return why the signature of a file is not by the key's owner, "" if it is; ``RamdiskError``."""
    try:
        key, content = public_key.read_text(encoding="utf-8").strip(), path.read_bytes()
    except (OSError, UnicodeDecodeError) as exc:
        raise RamdiskError(f"cannot read {public_key}: {exc}", "give the public key of --sign-key") from exc
    with tempfile.NamedTemporaryFile("w", suffix=".signers") as signers:
        signers.write(f"{_SIGNER} {key}\n")
        signers.flush()
        command = ["ssh-keygen", "-Y", "verify", "-f", signers.name, "-I", _SIGNER, "-n", _NAMESPACE]
        done = subprocess.run(  # noqa: S603
            [*command, "-s", str(signature)], input=content, capture_output=True, check=False
        )
    return _last_line(done.stderr or done.stdout) if done.returncode else ""


def _last_line(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
