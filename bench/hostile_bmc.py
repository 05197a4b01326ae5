"""What a BMC that answers garbage costs the service, the other BMCs and the callers of the API."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from bench.cycle import enrolled
from bench.field import Plan, Run
from bench.hostile_client import Looker, ServiceApi
from bench.hostile_load import BMC_ANSWERS
from bench.load_process import LoadProcess
from bench.quantiles import Spread, middle, spread
from bench.report import Report

_DRIVERS: Final = (
    "[drivers]\nenabled = sim,fake-hardware,redfish\nbmc_networks = 127.0.0.0/8\nallow_http_passwords = true\n"
    "[worker]\nmax_attempts = 1\n"
)


class Asked(msgspec.Struct, frozen=True):
    """What one ``manage`` of the BMC's node took: seconds, and CPU seconds of the service."""

    answer: str
    seconds: float
    cpu: float
    error: str


class BesideBmc(msgspec.Struct, frozen=True):
    """What the BMC costs for each answer; of healthy nodes, rates and GETs alone and beside it, in turns."""

    asked: list[Asked]
    rates: dict[str, list[float]]
    gets: dict[str, Spread]


def measure_bmc(directory: Path, rounds: int) -> BesideBmc:
    """Ask the BMC with every answer; then inspect healthy nodes alone and beside it."""
    with (
        enrolled("sqlite", Plan(nodes=300), directory, roles=("all",), extra=_DRIVERS) as fleet,
        LoadProcess("bench.hostile_load", fleet.place / "bmc.log") as bmc,
    ):
        running, api = fleet.service, ServiceApi(fleet.service.url)
        access = {"redfish_address": f"http://127.0.0.1:{bmc.do('answer_as', int, answer='')}"}
        info = access | {"redfish_username": "u", "redfish_password": "pa55-of-this-BMC"}
        numbers = itertools.count()

        def ask(answer: str) -> Asked:
            node = api.add_node(f"evil-{next(numbers)}", driver="redfish", driver_info=info)
            bmc.do("answer_as", int, answer=answer)
            began, before = time.monotonic(), running.cpu()["all"]
            api.ask(node, "manage")
            api.until(node, lambda state: state in ("enroll", "manageable"), pause=0.2)
            took, cpu = time.monotonic() - began, running.cpu()["all"] - before
            return Asked(answer, took, cpu, str(api.made("GET", f"/v1/nodes/{node}?fields=last_error")["last_error"]))

        asked = [ask(answer) for answer in BMC_ANSWERS]
        rates: dict[str, list[float]] = {"alone": [], "beside it": []}
        gets: dict[str, list[float]] = {"alone": [], "beside it": []}
        answers = itertools.cycle(BMC_ANSWERS)
        for way in [*rates] * rounds:
            over = threading.Event()
            beside = threading.Thread(target=_keep_asking, args=(ask, answers, over))
            if way != "alone":
                beside.start()
            with Looker(running.url, "/v1/nodes?limit=10") as looker:
                run = fleet.load_process.do("run", Run, concurrency=4)
            over.set()
            if way != "alone":
                beside.join()
            rates[way].append(run.inspections / run.seconds)
            gets[way] += looker.seconds
        return BesideBmc(asked, rates, {way: spread(seconds) for way, seconds in gets.items()})


def _keep_asking(ask: Callable[[str], Asked], answers: Iterator[str], over: threading.Event) -> None:
    """Ask again as soon as the node may be asked again."""
    while not over.is_set():
        ask(next(answers))


def show_bmc(report: Report, beside: BesideBmc) -> None:
    rows = [(one.answer, one.seconds, one.cpu, one.error[:90]) for one in beside.asked]
    report.table(("answer", "seconds", "CPU s", "error"), rows)
    for way, rates in beside.rates.items():
        shown = " ".join(f"{rate:.1f}" for rate in rates)
        report.console.print(f"{way}: inspections/s {shown}; GET ms {beside.gets[way]}")
    report.keep("hostile BMC", beside)
    ratio = middle(beside.rates["beside it"]) / middle(beside.rates["alone"])
    longest = max(one.seconds for one in beside.asked)
    report.figure("hostile: CPU of a bad BMC for one command, s", "sqlite", max(one.cpu for one in beside.asked))
    report.figure("hostile: longest command at a bad BMC, s", "sqlite", longest, most=11)
    share = sum(one.cpu for one in beside.asked) / sum(one.seconds for one in beside.asked)
    report.figure("hostile: bad BMC asked without a pause, share of a core", "sqlite", share, most=0.1)
    gets = beside.gets["alone"].p50 / beside.gets["beside it"].p50
    report.figure("hostile: GETs without a bad BMC / beside it, p50", "sqlite", gets, least=0.9)
    report.figure("hostile: inspections/s beside a bad BMC / without", "sqlite", ratio, least=0.9)
