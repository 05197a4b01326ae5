"""Enroll many machines from a file: check it row by row, try the BMCs, and create and change what differs.

The rules are those of ``ferroscope node import``. Between the check and the import, the browser keeps the sealed file,
so passwords are neither stored nor sent back. A request imports rows for two seconds; then the page continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.baremetal import nodes
from ferroscope.api.errors import ApiError, BadRequestError
from ferroscope.contracts.store import Query
from ferroscope.contrib.ui import bmc_trials, form
from ferroscope.contrib.ui.bmc_trials import Trial
from ferroscope.contrib.ui.machine_list import call_of
from ferroscope.contrib.ui.page import HtmlPage, Visit
from ferroscope.core import bmc_access
from ferroscope.core.model import Port
from ferroscope.db import Transaction
from ferroscope_client.core.json_safety import MAX_DEPTH
from ferroscope_client.core.node import SETTABLE
from ferroscope_client.core.values import is_uuid, many, natural
from ferroscope_client.enrollment import importing, node_file
from ferroscope_client.enrollment.correctable import without_secrets
from ferroscope_client.enrollment.importing import ExistingFleet, RowError, RowResult
from ferroscope_client.enrollment.node_file import NodeFileError, NodeRow

POLICIES: Final = ("baremetal:node:create", "baremetal:node:create:self_owned_node")
# Rows of a file; errors that are shown of it; seconds of one request.
_MAX_ROWS: Final = 500
_MAX_LISTED_ERRORS: Final = 100
_STEP_SECONDS: Final = 2.0
_FIELDS: Final = ("uuid", "inbox", *SETTABLE)


class EnrollmentProgress(msgspec.Struct, kw_only=True):
    """The remaining work and the results so far: the browser keeps it, sealed.

    ``trials``: machines whose BMC is being tried. ``refused``: rows whose BMC does not answer.
    """

    rows: list[NodeRow]
    passwords: bool
    verify: bool
    counts: dict[str, int] = {}
    failed: list[RowResult] = []
    trials: list[Trial] = []
    refused: list[NodeRow] = []


def show(visit: Visit) -> HtmlPage:
    """Show the form."""
    _check_allowed(visit)
    return _form(visit)


def act(visit: Visit) -> HtmlPage:
    """Check a file, or import a checked one."""
    _check_allowed(visit)
    if "work" in visit.form:
        return _carry_out(visit, msgspec.convert(visit.seal.open(visit.given("work")), EnrollmentProgress))
    try:
        rows, fleet = _rows(visit)
    except NodeFileError as exc:
        return _form(visit, exc.errors)
    work = EnrollmentProgress(
        rows=rows, passwords=visit.given("passwords") == "yes", verify=visit.given("verify") == "yes"
    )
    calls = _VisitorImportApi(visit)
    rounds = importing.in_rounds(calls, fleet, rows, dry_run=True)
    rows = [row for ready in rounds for row in ready]
    results = [importing.carry_out(calls, fleet, row, dry_run=True, passwords=work.passwords) for row in rows]
    counts = Counter(result.result for result in results)
    todo = counts[importing.TO_CREATE] + counts[importing.TO_CHANGE]
    wanted = (importing.TO_CREATE, importing.TO_CHANGE)
    work.rows = [row for row, result in zip(rows, results, strict=True) if result.result in wanted]
    results.sort(key=lambda result: natural(result.where))
    work.counts = {name: number for name, number in counts.items() if name not in wanted}
    work.failed = [outcome for outcome in results if outcome.result == importing.FAILED]
    data = {
        "results": msgspec.to_builtins(results),
        "counts": dict(sorted(counts.items())),
        "todo": todo,
        "left_out": counts[importing.FAILED],
        "verify": work.verify,
        "work": visit.seal.close(msgspec.to_builtins(work)) if todo else "",
    }
    return HtmlPage(template="enroll_check.html", title="Check the file", data=data)


def _check_allowed(visit: Visit) -> None:
    if not any(visit.may(policy) for policy in POLICIES):
        raise access.forbidden_error(POLICIES, visit.identity)


def _form(visit: Visit, errors: Iterable[str] = ()) -> HtmlPage:
    listed = list(errors)
    data = {
        "errors": listed[:_MAX_LISTED_ERRORS],
        "more": max(0, len(listed) - _MAX_LISTED_ERRORS),
        "drivers": sorted(visit.context.services.drivers),
        "most": _MAX_ROWS,
        "driver": visit.given("driver"),
        "format": visit.given("format"),
        "text": _given_back(visit) if listed else "",
        "lost": bool(listed and visit.given("text")) and not _given_back(visit),
    }
    return HtmlPage(template="enroll.html", title="Enroll machines", data=data, status=400 if listed else 200)


def _given_back(visit: Visit) -> str:
    """Return the pasted text without its passwords; "" if there is none, or if they cannot be identified."""
    return without_secrets((visit.form.get("text") or [""])[0]) or ""


def _rows(visit: Visit) -> tuple[list[NodeRow], ExistingFleet]:
    """Return the rows of the file or of the pasted text; ``NodeFileError``."""
    name = visit.given("file.name")
    text = (visit.form.get("file" if name else "text") or [""])[0]
    if not text.strip():
        raise NodeFileError(["choose a file, or paste its content"])
    kind = visit.given("format") or _kind(name, text)
    if kind not in node_file.FORMATS:
        raise BadRequestError(f"Unknown format {kind[:20]!r}: it must be one of {', '.join(node_file.FORMATS)}.")
    rows = node_file.read(text, kind, aliases=False)
    if len(rows) > _MAX_ROWS:
        raise NodeFileError(
            [f"the file has {many(len(rows), 'row')}; here at most {_MAX_ROWS} are allowed: use ferroscope node import"]
        )
    if not rows:
        raise NodeFileError(["the file has no nodes"])
    for row in rows:
        try:
            row.fields = form.plain(row.fields, MAX_DEPTH)
        except ValueError as exc:
            row.errors.append(str(exc))
            row.fields = {}
        if visit.given("driver"):
            row.fields.setdefault("driver", visit.given("driver"))
    importing.use_drivers(_VisitorImportApi(visit), rows)
    fleet = _fleet(visit, rows)
    importing.check_rows(fleet, rows)
    return rows, fleet


def _kind(name: str, text: str) -> str:
    """Return the format of a file: by its name, or by how its content begins."""
    if kind := node_file.BY_SUFFIX.get(name.rpartition(".")[2].lower()):
        return kind
    first = text.lstrip().partition("\n")[0]
    if first[:1] in ("{", "["):
        return "json"
    return "yaml" if first.startswith(("-", "nodes:", "#", "%")) and "," not in first else "csv"


def _fleet(visit: Visit, rows: list[NodeRow]) -> ExistingFleet:
    """Return those nodes that the rows may mean and the caller may see."""
    names = tuple({str(row.fields["name"]) for row in rows if row.fields.get("name")})
    uuids = {str(row.fields["uuid"]) for row in rows if is_uuid(str(row.fields.get("uuid") or ""))}
    macs = tuple({mac for row in rows for mac in row.macs})
    bmcs = sorted(
        {address for row in rows for address in bmc_access.literal_addresses(row.fields.get("driver_info") or {})}
    )

    def work(tx: Transaction) -> tuple[list[Any], list[Port]]:
        ports = list(tx.ports.list(Query(filters={"address": macs}))) if macs else []
        wanted = tuple(uuids | {port.node for port in ports})
        stored = list(tx.nodes.list(Query(filters={"uuid": wanted}))) if wanted else []
        known_uuids = {node.uuid for node in stored}
        others = [*(tx.nodes.list(Query(filters={"name": names})) if names else []), *tx.addresses.owners(bmcs)]
        stored += {node.uuid: node for node in others if node.uuid not in known_uuids}.values()
        return stored, ports

    stored, ports = visit.context.data.store.read(work)
    seen = [node for node in stored if access.sees(visit.context.access.policy, visit.identity, node)]
    visible_uuids = {node.uuid for node in seen}
    views = nodes.views(visit.context, call_of(visit), seen, _FIELDS)
    fleet_ports = [{"address": port.address, "node_uuid": port.node} for port in ports if port.node in visible_uuids]
    return ExistingFleet(views, fleet_ports)


class _VisitorImportApi:
    """The calls of an import, with the rights of the visitor."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit

    def create(self, fields: dict[str, Any], macs: Collection[str]) -> Any:
        node = _of_row(lambda: self._visit.call("POST /v1/nodes", body=fields))
        try:
            for mac in macs:
                self.add_port(node["uuid"], mac)
        except RowError as exc:
            _of_row(lambda: self._visit.call("DELETE /v1/nodes/{node}", {"node": node["uuid"]}))
            raise RowError(f"{exc.message} The node was not created.") from None
        return node

    def add_port(self, node: str, mac: str) -> None:
        _of_row(lambda: self._visit.call("POST /v1/ports", body={"node_uuid": node, "address": mac}))

    def change(self, node: str, patch: list[dict[str, Any]]) -> None:
        _of_row(lambda: self._visit.call("PATCH /v1/nodes/{node}", {"node": node}, body=patch))

    def enabled(self) -> Collection[str]:
        return self._visit.context.services.drivers.keys()

    def properties(self, driver: str) -> Iterable[str]:
        return self._visit.context.services.drivers[driver].properties


def _of_row(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ApiError as exc:
        raise RowError(exc.message) from None


def _carry_out(visit: Visit, work: EnrollmentProgress) -> HtmlPage:
    """Check the trials of BMCs, and import rows until the time is over."""
    calls, fleet, counts = _VisitorImportApi(visit), _fleet(visit, work.rows), Counter(work.counts)
    rounds = importing.in_rounds(calls, fleet, work.rows, dry_run=False)
    work.rows = [row for ready in rounds for row in ready]
    judged = bmc_trials.judge(visit, work.trials)
    work.trials, done_now = judged.left, judged.results
    work.refused += judged.refused
    began, done = visit.context.process.clock.monotonic(), 0
    while done < len(work.rows) and len(work.trials) < bmc_trials.MAX_TRIALS:
        if done and visit.context.process.clock.monotonic() - began >= _STEP_SECONDS:
            break
        row = work.rows[done]
        result = importing.carry_out(calls, fleet, row, dry_run=False, passwords=work.passwords)
        done += 1
        if work.verify and result.result == importing.CREATED and result.uuid is not None:
            result.detail = bmc_trials.begin(visit, result.uuid)
            if not result.detail:
                work.trials.append(Trial(row, result.uuid, visit.context.process.clock.time()))
                continue
        done_now.append(result)
    work.failed += [outcome for outcome in done_now if outcome.result in (importing.FAILED, bmc_trials.NO_ANSWER)]
    counts.update(outcome.result for outcome in done_now)
    work.rows, work.counts = work.rows[done:], dict(counts)
    left = len(work.rows) + len(work.trials)
    again = EnrollmentProgress(rows=work.refused, passwords=work.passwords, verify=False)
    data = {
        "counts": dict(sorted(counts.items())),
        "failed": msgspec.to_builtins(work.failed),
        "results": msgspec.to_builtins([outcome for outcome in done_now if outcome not in work.failed]),
        "left": left,
        "tried": len(work.trials),
        "waits": left > 0 and (not work.rows or len(work.trials) >= bmc_trials.MAX_TRIALS),
        "work": visit.seal.close(msgspec.to_builtins(work)) if left else "",
        "refused": len(work.refused),
        "again": visit.seal.close(msgspec.to_builtins(again)) if work.refused and not left else "",
    }
    return HtmlPage(template="enroll_done.html", title="Enroll machines", data=data)
