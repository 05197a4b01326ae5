"""``hooks``: the CPU time of all hooks over one inventory, as a worker runs them.

Every hook that there is, with options that make it work, in one thread: decode what is stored, run the pipeline,
encode the plugin data. The node's context is kept in memory, so that nothing but hooks is measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.figures import Figure
from bench.quantiles import Spread, spread
from bench.report import Report
from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Node
from ferroscope.hooks.loader import LoadedHook, load
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope.rules.explain import DryContext
from ferroscope_sim import inventory as sim

ALL: Final = (
    *("ramdisk-error", "validate-interfaces", "ports", "architecture", "memory", "cpus", "cpu-capabilities"),
    *("boot-mode", "pci-devices", "accelerators", "local-link-connection", "parse-lldp", "physical-network"),
    *("extra-hardware", "raid-device", "root-device"),
)
SETTINGS: Final = InspectorSettings(
    hooks=ALL,
    add_ports="all",
    pci_device_alias=('{"vendor_id": "8086", "product_id": "1563", "name": "nic"}',),
    physical_network_cidr_map=("172.16.0.0/12:provisioning", "fe80::/10:link-local"),
)
_EXTRA: Final = [["disk", f"sd{number}", "size", str(number)] for number in range(40)]


class Cost(msgspec.Struct, frozen=True):
    """Milliseconds of CPU for one inventory: all that is done with it, the pipeline alone, and each hook."""

    name: str
    size: int
    nics: int
    whole: Spread
    pipeline: Spread
    each: dict[str, float]
    raw: list[float]


def _context(previous: bytes) -> DryContext:
    """Return the context of a node that has no ports yet, and was inspected before; its journal is no part of this."""
    node = Node(uuid="bench", driver="fake", properties={"skip_block_devices": [{"size": "< 4"}]})
    return DryContext(node, (), previous=lambda: msgspec.json.decode(previous, type=dict[str, Any]))


def bodies(recorded: Path | None, size: int) -> dict[str, dict[str, Any]]:
    """Return the bodies to measure by name: simulated ones of ``size``, and what is recorded, the largest first."""
    found = {f"simulated {index}": sim.document(index, size=size) for index in range(5)}
    files = sorted(recorded.glob("*.json"), key=lambda path: -path.stat().st_size) if recorded else []
    for path in files:
        body = msgspec.json.decode(path.read_bytes())
        found[path.stem] = body if "inventory" in body else {"inventory": body}
    return found


def measure(name: str, body: dict[str, Any], runs: int) -> Cost:
    """Run all hooks over ``body`` so many times."""
    data = {"data": _EXTRA, **body}
    inventory = msgspec.json.encode(data.pop("inventory"))
    rest = msgspec.json.encode(data)
    hooks = load(SETTINGS)
    pipeline = Pipeline(hooks, SETTINGS)
    whole, inner = [], []
    for _ in range(runs + 5):
        context = _context(inventory)
        began = time.thread_time()
        decoded, plugin_data = msgspec.json.decode(inventory), msgspec.json.decode(rest)
        middle = time.thread_time()
        result = pipeline.run(context, decoded, plugin_data, owned=True)
        after = time.thread_time()
        encode(result)
        whole.append(time.thread_time() - began)
        inner.append(after - middle)
    return Cost(
        name=name,
        size=len(inventory) + len(rest),
        nics=len(body["inventory"]["interfaces"]),
        whole=spread(whole[5:]),
        pipeline=spread(inner[5:]),
        each=_each(hooks, inventory, rest),
        raw=[round(seconds * 1000, 3) for seconds in whole[5:]],
    )


def _each(hooks: Sequence[LoadedHook], inventory: bytes, rest: bytes) -> dict[str, float]:
    """Return what each hook adds: the fastest of some runs up to it, less that up to the one before."""
    costs, before = {}, 0.0
    for number, hook in enumerate(hooks, 1):
        pipeline = Pipeline(hooks[:number], SETTINGS)
        fastest = 1.0
        for _ in range(20):
            decoded, plugin_data, context = (
                msgspec.json.decode(inventory),
                msgspec.json.decode(rest),
                _context(inventory),
            )
            began = time.thread_time()
            pipeline.run(context, decoded, plugin_data, owned=True)
            fastest = min(fastest, time.thread_time() - began)
        costs[hook.name] = max(0.0, (fastest - before) * 1000)
        before = fastest
    return costs


@click.command("hooks")
@click.pass_obj
@click.option("--runs", default=300, show_default=True)
@click.option("--size", default=40_000, show_default=True, help="Bytes of a simulated inventory.")
@click.option(
    "--inventories",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="FERROSCOPE_INVENTORIES",
    help="A directory with recorded inventories (*.json) to measure as well.",
)
def hooks(found: tuple[Report, Path], runs: int, size: int, inventories: Path | None) -> None:
    """CPU time of all hooks over one inventory."""
    report, _directory = found
    report.section(f"hooks: all {len(ALL)}, {runs} runs, milliseconds of CPU")
    costs = [measure(name, body, runs) for name, body in bodies(inventories, size).items()]
    report.table(
        ("inventory", "KB", "NICs", "all: p50 / p99 / max", "pipeline alone"),
        [(cost.name, cost.size / 1000, cost.nics, cost.whole, cost.pipeline) for cost in costs],
    )
    report.table(
        ("hook", *(cost.name for cost in costs)),
        [(name, *(f"{cost.each[name]:.3f}" for cost in costs)) for name in ALL],
    )
    for cost in costs:
        raw = " ".join(f"{taken:.2f}" for taken in cost.raw)
        report.console.print(f"{cost.name}, each run: {raw}", highlight=False, soft_wrap=True)
    report.keep("hooks", costs)
    simulated = [cost for cost in costs if cost.name.startswith("simulated")]
    typical = sorted(simulated, key=lambda cost: cost.whole.p50)[-1]
    report.found(Figure("CPU of all hooks, ms", f"{size // 1000} KB", typical.whole.p50))
    recorded = [cost for cost in costs if cost not in simulated]
    if recorded:
        largest = max(recorded, key=lambda cost: cost.size)
        report.found(Figure("CPU of all hooks, largest recorded, ms", f"{largest.size // 1000} KB", largest.whole.p50))
