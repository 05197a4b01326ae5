"""The images that BMCs fetch, as far as a worker can check them beforehand."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ferroscope.core.reasons import Reason


class Flaw(msgspec.Struct, frozen=True):
    """Why an image will not boot. ``certain``: no BMC could boot it; otherwise it may be that only we cannot."""

    reason: Reason
    message: str
    certain: bool


class Images(Protocol):
    """Checks images; safe for many threads."""

    def flaw(self, url: str) -> Flaw | None:
        """Return what is wrong with the image, None if nothing is known to be; within some seconds, without raising.

        It may answer from memory: a good image for some minutes, any other for less than one.
        """


class Unchecked:
    """Checks nothing."""

    def flaw(self, _url: str) -> Flaw | None:
        return None
