"""The kernel command line of the inspection ramdisk, built in this one place, whoever boots it.

Virtual media, the PXE configuration that we generate and an operator's own all get the same
words. Pure: text in, text out. The names are ironic-python-agent's; see its documentation of
inspection (``ipa-inspection-callback-url``, ``ipa-collect-lldp``).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

CALLBACK_PATH: Final = "/v1/continue_inspection"


def callback_url(base: str) -> str:
    """Return where the ramdisk posts its data, from the base URL of the Bare Metal API.

    Raises ``ValueError``, with what is wrong, where ``base`` is no address that a ramdisk could use.
    """
    try:
        parts = urlsplit(base)
    except ValueError as exc:
        raise ValueError(f"{base!r} is no URL: {exc}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base!r} is no http or https URL such as http://192.0.2.1:6385")
    if any(sign.isspace() for sign in base):
        raise ValueError(f"{base!r} has a space in it, which would end the kernel parameter there")
    return base.rstrip("/") + CALLBACK_PATH


def kernel_params(callback: str, *, extra: str = "", collect_lldp: bool = True, boot_method: str = "") -> str:
    """Return the parameters as one line, without duplicates; what ``extra`` says wins.

    ``callback``: the whole URL to post to. ``extra``: the operator's own, parted by spaces.
    ``boot_method``: ``vmedia`` makes the agent look for more parameters on a virtual medium.
    """
    ours = {
        "ipa-inspection-callback-url": callback,
        "ipa-collect-lldp": "1" if collect_lldp else "",
        "boot_method": boot_method,
    }
    theirs = extra.split()
    named = {word.partition("=")[0] for word in theirs}
    return " ".join([*theirs, *(f"{name}={value}" for name, value in ours.items() if value and name not in named)])
