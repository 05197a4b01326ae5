"""What a BMC fetches for virtual media: a small disk with the parameters of the ramdisk that is about to boot.

Without authentication, as BMCs have none to give; there is no secret on it. It is made anew for each
call, so any api process serves it, and only for a node whose ramdisk is expected.
"""

from __future__ import annotations

from ferroscope.api import scalars
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import LOOKUP_FAILED, MissingError
from ferroscope.boot_config import floppy
from ferroscope.contracts.errors import NotFoundError
from ferroscope.core.boot import callback_url, kernel_params
from ferroscope.core.states import AWAITED


def get_disk(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Return the disk with the parameters of a node's ramdisk."""
    uuid = scalars.uuid("node", call.node)
    try:
        node = context.store.read(lambda tx: tx.nodes.get(uuid))
        base = callback_url(context.settings.callback_base)
    except (NotFoundError, ValueError):
        raise MissingError(LOOKUP_FAILED) from None
    if node.state not in AWAITED:
        raise MissingError(LOOKUP_FAILED)
    settings = context.settings.inspector
    line = kernel_params(
        base, extra=settings.extra_kernel_params, collect_lldp=settings.collect_lldp, boot_method="vmedia"
    )
    return Reply(200, floppy.build(line))
