"""What a machine gets before its ramdisk runs: image and disk for virtual media, and its part of the iPXE script.

Neither BMCs nor iPXE can authenticate. Every client that reaches the API can read the image, if it is a file of this
host, and no other file of it. The disk has the parameters. A key in its URL, which only the BMC gets, protects it.
Every client that asks for the MAC address of a machine that is about to boot gets its script, as with PXE. The timeline
lists the first addresses that asked and counts the others. Disk and script contain the secret of the inspection. They
are made on request, so any api process serves them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from ferroscope import node_boot, transition
from ferroscope.api.baremetal import floppy
from ferroscope.api.baremetal.machine_lookup import look_up
from ferroscope.api.errors import LOOKUP_FAILED, BadRequestError, MissingError
from ferroscope.api.http import decoding
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Mac
from ferroscope.api.http.served_files import ServedFile
from ferroscope.api.rate_limit import too_many_failures
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core import callback_secret, lookup
from ferroscope.core.boot import Boot, BootError, callback_url, kernel_params
from ferroscope.core.model import Entry, Inspection, Node, Severity
from ferroscope.core.states import AWAITED
from ferroscope.db import Transaction
from ferroscope_client.core import mac_addresses
from ferroscope_client.core.values import many

_STEP: Final = "boot-script"
# Addresses of one inspection that have an entry each in the timeline; one more entry counts the others.
_MAX_NAMED_ADDRESSES: Final = 8
_MORE: Final = "more"


class ScriptQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/boot.ipxe: the MAC address of the NIC that boots."""

    mac: Mac | None = None


def get_disk(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the disk image with the kernel parameters of a node's ramdisk, without a secret.

    For inspections that have none, and for machines that a worker of an older release boots.
    """
    return _disk(context, call, None)


def get_secret_disk(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the disk image with the kernel parameters of a node's ramdisk and the secret of its inspection."""
    return _disk(context, call, call.path["key"])


def _disk(context: ApiContext, call: RouteCall[NoQuery, None], key: str | None) -> Reply:
    uuid = decoding.uuid("node", call.path["node"])
    try:
        node, inspection = context.data.store.read(lambda tx: _current(tx, uuid))
        url = callback_url(context.settings.callback_base)
    except (NotFoundError, ValueError):
        raise MissingError(LOOKUP_FAILED) from None
    secret, token = callback_secret.live(inspection), ""
    if node.state not in AWAITED:
        raise MissingError(LOOKUP_FAILED)
    if key is not None:
        if secret is None or not callback_secret.same(callback_secret.disk_key(secret), key):
            raise MissingError(LOOKUP_FAILED)
        url, token = callback_secret.in_url(url, secret), callback_secret.agent_token(secret)
    settings = context.settings.inspector
    line = kernel_params(
        url,
        extra=settings.extra_kernel_params,
        collect_lldp=settings.collect_lldp,
        boot_method="vmedia",
        agent_token=token,
    )
    return Reply(200, floppy.build(line))


def _current(tx: Transaction, uuid: str) -> tuple[Node, Inspection | None]:
    node = tx.nodes.get(uuid)
    return node, tx.inspections.get(node.inspection) if node.inspection is not None else None


def get_image(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the image, or the range of it that is asked for."""
    configured = context.settings.inspector.ramdisk_iso
    if not configured.startswith("/") or call.path["name"] != Path(configured).name:
        raise MissingError(f"No image {call.path['name'][:100]!r} exists here; see [inspector] ramdisk_iso.")
    return Reply(200, ServedFile(Path(configured)))


def get_script(context: ApiContext, call: RouteCall[ScriptQuery, None]) -> Reply:
    """Return the iPXE script of one machine: the secret of its inspection, if that waits for its boot.

    If the node's boot interface is ``ipxe``, the script also boots the ramdisk.
    """
    mac = mac_addresses.identifying_mac(call.query.mac)
    if mac is None:
        raise BadRequestError("The query parameter mac must be the MAC address of the NIC that boots.")
    if mac in context.settings.inspector.ignored:
        return Reply(200, node_boot.machine_script(None).encode())

    def work(tx: Transaction) -> str | None:
        verdict = look_up(tx, lookup.Evidence(macs=(mac,)))
        if isinstance(verdict, lookup.LookupRefusal) or verdict.node.state not in AWAITED:
            return None
        secret = callback_secret.live(verdict.inspection)
        script = _boot_script(context, verdict.node, verdict.inspection, secret)
        if script is None and secret is not None:
            script = node_boot.machine_script(secret)
        if script is not None:
            _note(context.process, tx, verdict.node, call.source)
        return script

    script = context.data.store.write(work)
    now = context.process.clock.monotonic()
    if script is None and (seconds := context.access.callers.count_failure(call.source, now)):
        raise too_many_failures(seconds)
    return Reply(200, (script or node_boot.machine_script(None)).encode())


def _boot_script(context: ApiContext, node: Node, inspection: Inspection | None, secret: str | None) -> str | None:
    """Return the script that boots the machine; None if it does not boot by a script of ours."""
    driver, manage_boot = context.services.drivers.get(node.driver), inspection is not None and inspection.manage_boot
    try:
        booted = node_boot.way(context.settings, node, driver, manage_boot=manage_boot)
    except BootError:
        return None
    return node_boot.boot_script(context.settings, node, secret) if booted is Boot.IPXE else None


def _note(process: ProcessContext, tx: Transaction, node: Node, source: str) -> None:
    """Record who got the secret, once for each source; a second source is suspicious."""
    query = Query(filters={"node": node.uuid, "inspection": node.inspection, "step": _STEP}, sort_key="id")
    entries = tx.journal.list(query)
    named = [str(entry.detail.get("source", "")) for entry in entries if _MORE not in entry.detail]
    if source in named:
        return
    if len(named) >= _MAX_NAMED_ADDRESSES:
        tx.nodes.get(node.uuid, lock=True)  # two api processes may count at once
        counting = next((entry for entry in tx.journal.list(query) if _MORE in entry.detail), None)
        _count(process, tx, node, source, counting)
        return
    message = f"the boot script of the inspection was loaded from {source or 'an unknown address'}"
    entry = transition.step(
        node,
        _STEP,
        f"{message}, after {', '.join(named)}" if named else message,
        process=process.name,
        severity=Severity.WARNING if named else Severity.INFO,
        detail={"source": source} if source else None,
    )
    tx.journal.append([entry])


def _count(process: ProcessContext, tx: Transaction, node: Node, source: str, entry: Entry | None) -> None:
    """Count a script that another address loaded. So a client that uses up the entries cannot hide the next address."""
    number = 1 if entry is None else int(entry.detail[_MORE]) + 1
    times = many(number, "more time")
    message = f"the boot script of the inspection was loaded {times} from other addresses, most recently from {source}"
    detail = {"source": source, _MORE: number}
    if entry is None:
        entry = transition.step(node, _STEP, message, process=process.name, severity=Severity.WARNING, detail=detail)
        tx.journal.append([entry])
    else:
        tx.journal.recount(msgspec.structs.replace(entry, message=message, detail=detail))
