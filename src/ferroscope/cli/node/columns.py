"""The columns of lists of nodes, and a machine's hardware in a few words: for ``node list``, ``show`` and ``search``.

What a machine said of itself is in ``hardware``, as the API has it: sizes in bytes, texts as they were spelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope.cli.client import Json
from ferroscope.cli.lookup import label
from ferroscope.cli.node.summary import size
from ferroscope.cli.output import Output
from ferroscope.cli.text import short
from ferroscope.cli.times import age

if TYPE_CHECKING:
    from ferroscope.cli.listing import Listing

_GIB: Final = 2**30
# What Dell's firmware adds to the name of a model.
_ADDED: Final = re.compile(r"\s*\((?:SKU|ModelName)=.*\)\s*\Z", re.IGNORECASE)
_MODEL: Final = 32
_CPU: Final = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@.*", re.IGNORECASE)


class Column(msgspec.Struct, frozen=True):
    """``shown`` is for people, ``exact`` for CSV (None: the same); ``wide``: only where every column is asked for."""

    title: str
    shown: Callable[[Json], Any]
    exact: Callable[[Json], Any] | None = None
    wide: bool = False
    right: bool = False


def _of(name: str) -> Callable[[Json], Any]:
    return lambda node: node.get(name)


def _hardware(name: str) -> Callable[[Json], Any]:
    return lambda node: (node.get("hardware") or {}).get(name)


NODES: Final = (
    Column("NAME", label, _of("name")),
    Column("STATE", _of("provision_state")),
    Column("POWER", lambda node: (node["power_state"] or "-").removeprefix("power "), _of("power_state")),
    Column("MAINT", lambda node: "yes" if node["maintenance"] else "", _of("maintenance")),
    Column("MODEL", lambda node: model(_hardware("product")(node)), _hardware("product")),
    Column("SERIAL", _hardware("serial")),
    Column("CPUS", _hardware("cpus"), right=True),
    Column("MEMORY", lambda node: memory(_hardware("memory")(node)), _hardware("memory"), right=True),
    Column("DISKS", lambda node: disks(node.get("hardware") or {}), _hardware("storage"), right=True),
    Column("AGE", lambda node: age(node["provision_updated_at"], now=_now()), _of("provision_updated_at"), right=True),
    Column("VENDOR", _hardware("vendor"), wide=True),
    Column("CPU", lambda node: cpu(_hardware("cpu")(node)), _hardware("cpu"), wide=True),
    Column("GPUS", _hardware("gpus"), wide=True, right=True),
    Column("NICS", _hardware("nics"), wide=True, right=True),
    Column("FIRMWARE", _hardware("firmware"), wide=True),
    Column("DRIVER", _of("driver"), wide=True),
    Column("OWNER", _of("owner"), wide=True),
    Column("CLASS", _of("resource_class"), wide=True),
    Column("MAINTENANCE REASON", _of("maintenance_reason"), wide=True),
    Column("UUID", _of("uuid"), wide=True),
    Column("ERROR", lambda node: node["last_error"] or "", _of("last_error")),
)
_SPARE: Final = ("DISKS", "CPUS", "SERIAL", "ERROR", "MEMORY", "MODEL", "POWER", "MAINT", "AGE")


def show(
    out: Output,
    nodes: Sequence[Json],
    columns: Sequence[Column] = NODES,
    spare: Sequence[str] = _SPARE,
    below: str | None = "ERROR",
) -> None:
    """Print the nodes in whatever format is asked for."""
    chosen = [column for column in columns if out.wide or not column.wide]
    rows = ([(one.exact or one.shown)(node) for one in chosen] for node in nodes)
    if out.rows([column.title for column in chosen], rows):
        return
    out.show(
        nodes,
        lambda screen: (
            listing(nodes, chosen, () if out.wide else spare, None if out.wide else below).print(screen)
            if nodes
            else None
        ),
    )


def listing(
    nodes: Sequence[Json],
    columns: Sequence[Column] = NODES,
    spare: Sequence[str] = _SPARE,
    below: str | None = "ERROR",
) -> Listing:
    """Return a table of these columns, those of ``spare`` where there is room."""
    from ferroscope.cli.listing import Listing

    return Listing(
        [column.title for column in columns],
        ([column.shown(node) for column in columns] for node in nodes),
        spare=spare,
        below=below,
        right=[column.title for column in columns if column.right],
    )


def machine(hardware: Json) -> dict[str, Any]:
    """Return what is known of a machine, by the names under which it is shown."""
    processors = " x ".join(str(part) for part in (hardware.get("cpus"), cpu(hardware.get("cpu"))) if part)
    return {
        "Machine": " ".join(part for part in (hardware.get("vendor"), hardware.get("product")) if part),
        "Serial number": hardware.get("serial"),
        "Firmware": hardware.get("firmware"),
        "CPUs": processors,
        "Memory": memory(hardware.get("memory")),
        "Disks": disks(hardware),
        "NICs": hardware.get("nics"),
        "GPUs": hardware.get("gpus"),
    }


def model(product: str | None) -> str | None:
    """Return the name of a model without its maker's internal numbers."""
    return None if product is None else short(_ADDED.sub("", product) or product, _MODEL)


def cpu(name: str | None) -> str | None:
    """Return the name of a processor without trade marks and clock rates."""
    return None if name is None else short(" ".join(_CPU.sub(" ", name).split()) or name, _MODEL)


def memory(size_in_bytes: float | None) -> str | None:
    """Return an amount of memory."""
    return None if size_in_bytes is None else f"{size_in_bytes / _GIB:,.4g} GiB".replace(".0 ", " ")


def disks(hardware: Json) -> str | None:
    """Return how many disks there are, and how large all together."""
    total = size(hardware.get("storage"))
    return f"{hardware['disks']} x, {total}" if hardware.get("disks") and total else total


def _now() -> datetime:
    return datetime.now(UTC)
