"""The secret of an inspection, by which a callback proves that it comes from the machine that we booted. Pure.

Each inspection whose machine we boot has one. It is delivered with the boot parameters, and ironic-python-agent returns
it in the query of the callback URL. It belongs to the inspection, not to an attempt: the callback stays valid if the
machine boots again. After the inspection only its SHA-256 is kept, to recognize a late repetition.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from enum import StrEnum
from typing import Final, Literal

import msgspec

from ferroscope.core.model import Inspection
from ferroscope_client.core.states import State
from ferroscope_client.core.values import MASK

PARAMETER: Final = "secret"
_ENDED: Final = "sha256:"
_OURS: Final = re.compile(r"[A-Za-z0-9_-]{32,80}\Z")
_DISK_URL: Final = re.compile(r"(ramdisk_parameters(?:[/\\]|%2f)[0-9a-f-]+(?:[/\\]|%2f))[0-9a-f]{4,}", re.IGNORECASE)

Mode = Literal["required", "optional", "off"]


class Delivery(StrEnum):
    """How the machine gets the secret.

    ``none``: it does not, because the boot method cannot carry a secret. ``planned``: on the parameter disk, once a
    worker has inserted it. An inspection that a worker of an older release started keeps ``planned``.
    """

    NONE = "none"
    PLANNED = "planned"
    VIRTUAL_MEDIA = "virtual-media"
    BOOT_SCRIPT = "boot-script"


class CallbackProof(StrEnum):
    """What a callback proves; ``unsecured``: its inspection has no secret, or secrets are disabled."""

    VERIFIED = "verified"
    MISSING = "missing"
    WRONG = "wrong"
    UNSECURED = "unsecured"


class CallbackVerdict(msgspec.Struct, frozen=True):
    """``expected``: the machine got a secret, so a callback without one is unusual."""

    proof: CallbackProof
    accepted: bool
    expected: bool = False


def judge(mode: Mode, inspection: Inspection, sent: str | None) -> CallbackVerdict:
    """Return whether a callback with the secret ``sent`` (None or "": without one) is accepted."""
    if mode == "off" or inspection.secret is None:
        return CallbackVerdict(CallbackProof.UNSECURED, accepted=True)
    expected = is_delivered(inspection)
    if not sent:
        return CallbackVerdict(CallbackProof.MISSING, accepted=mode == "optional" or not expected, expected=expected)
    if _matches(inspection.secret, sent):
        return CallbackVerdict(CallbackProof.VERIFIED, accepted=True, expected=expected)
    return CallbackVerdict(CallbackProof.WRONG, accepted=False, expected=expected)


def searchable_secret(mode: Mode, sent: str | None) -> str | None:
    """Return the presented secret if an inspection may have it; None if a search is useless."""
    return sent if sent and mode != "off" and _OURS.match(sent) else None


def is_delivered(inspection: Inspection) -> bool:
    """Whether the machine that we boot gets the secret.

    Before a planned disk is inserted, the machine has not booted, so it cannot call back without a secret.
    """
    if inspection.secret_delivery == Delivery.PLANNED:
        return inspection.state is State.STARTING
    return inspection.secret_delivery in (Delivery.VIRTUAL_MEDIA, Delivery.BOOT_SCRIPT)


def ended_secret(secret: str) -> str:
    """Return what is kept of the secret after its inspection."""
    return secret if secret.startswith(_ENDED) else _ENDED + _digest(secret)


def live(inspection: Inspection | None) -> str | None:
    """Return the secret of an inspection in progress; None if it has none, or has ended."""
    if inspection is None or inspection.secret is None or inspection.secret.startswith(_ENDED):
        return None
    return inspection.secret


def disk_key(secret: str) -> str:
    """Return the unguessable part of the parameter disk's URL; it does not reveal the secret."""
    return _digest(f"parameter disk:{secret}")[:32]


def without_disk_key(text: str) -> str:
    """Return ``text`` with that part masked in all spellings of such URLs, also in cut ones."""
    return _DISK_URL.sub(rf"\1{MASK}", text)


def agent_token(secret: str) -> str:
    """Return the agent token that is delivered together with the secret; neither reveals the other."""
    return _digest(f"agent token:{secret}")


def same(first: str, second: str) -> bool:
    """Compare two secrets, with any characters, in constant time."""
    return hmac.compare_digest(_digest(first), _digest(second))


def in_url(url: str, secret: str) -> str:
    """Return the callback URL with the secret in its query."""
    return f"{url}{'&' if '?' in url else '?'}{PARAMETER}={secret}"


def _matches(stored: str, sent: str) -> bool:
    kept = stored.removeprefix(_ENDED) if stored.startswith(_ENDED) else _digest(stored)
    return hmac.compare_digest(kept, _digest(sent))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
