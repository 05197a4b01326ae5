"""Types that are decoded, made ready before there are threads.

msgspec looks at a struct type when it is first decoded, and where two threads do that at once one of them
decodes with what is only half filled in: the process dies of SIGSEGV (seen with 0.22). Whoever decodes
structs in threads calls ``ready`` when its module is imported, or keeps a ``Decoder`` of its own.
"""

from __future__ import annotations

from typing import Any

import msgspec


def ready(*types: Any) -> None:
    """Let msgspec look at these types, and at all that they are made of."""
    for one in types:
        msgspec.json.Decoder(one)
