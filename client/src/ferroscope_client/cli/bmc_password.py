"""``ferroscope bmc set-password``: change the passwords of many BMCs, on the BMCs and in the service, in stages.

The service makes each change, which survives this command. The command only decides how many changes it begins, and
when it stops. A password is never an argument: all users of a host can read command lines.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import click
import msgspec

from ferroscope_client.cli.input_files import InputFile
from ferroscope_client.cli.lookup import label
from ferroscope_client.cli.node.actions import wait_option
from ferroscope_client.cli.output import Output, table, with_api
from ferroscope_client.cli.screen import Waiting
from ferroscope_client.cli.selection import NodeSelection, Selection, confirm, resolve, selectors
from ferroscope_client.cli.text import is_terminal, parse
from ferroscope_client.client import Client, Json, node_path
from ferroscope_client.core import passwords
from ferroscope_client.core.passwords import GENERATED_CHARACTERS, MIN_CHARACTERS, PasswordProgress, is_reference
from ferroscope_client.core.private_file import open_private
from ferroscope_client.core.states import UNDER_WAY, Provision
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure, worst

_POLL_SECONDS: Final = 0.5
_POSSIBLE: Final = frozenset(Provision) - set(UNDER_WAY)
REQUESTED, SKIPPED, FAILED, NOT_STARTED, STILL_CHANGING = (
    "requested", "skipped", "failed", "not started", "still changing",
)  # fmt: skip


class ChangeResult(msgspec.Struct):
    """The result of a machine's change; ``code`` is its exit code, ``changed_at`` the service's time."""

    node: str
    uuid: str | None
    result: str
    error: str | None = None
    changed_at: str | None = None
    code: Exit = Exit.OK


class Passwords:
    """The new password of each machine: one for all, or a random one for each, noted in ``saved`` before it is sent."""

    def __init__(self, password: str | None, length: int | None, saved: IO[str] | None) -> None:
        self._password, self._length, self._saved = password, length, saved

    def of(self, node: Json) -> str | None:
        """Return the password of this machine; None to resume an earlier change."""
        if self._length is None:
            return self._password
        password = passwords.generate(self._length)
        self.note(label(node), node["uuid"], password)
        return password

    def note(self, name: str, uuid: str, password: str | None) -> None:
        """Save the password of a machine, if requested and random."""
        if self._saved is not None and password is not None:
            self._saved.write(f"{name},{uuid},{password}\n")
            self._saved.flush()
            os.fsync(self._saved.fileno())


class StageSize(click.ParamType):  # type: ignore[type-arg]  # generic since 8.2 only
    """A number of machines, or a percentage of all."""

    name = "stage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Callable[[int], int]:
        if callable(value):
            return value  # type: ignore[no-any-return]
        text = str(value)
        number = text.removesuffix("%")
        if not number.isascii() or not number.isdigit() or (text != number and int(number) > 100):
            self.fail(f"{text!r} is neither a number of machines nor a percentage such as 5%", param, ctx)
        if text == number:
            return lambda total: min(int(number), total)
        return lambda total: -(-total * int(number) // 100)


class Campaign:
    """The changes of one command. It begins no more after ``most`` failures; begun changes continue in the service."""

    def __init__(self, api: Client, passwords: Passwords, *, most: int, timeout: float) -> None:
        self._api, self._passwords, self._most = api, passwords, most
        self._deadline = time.monotonic() + timeout
        self._names: dict[str, str] = {}
        self._given: set[str] = set()  # UUIDs of machines whose change the service has accepted
        self.active: dict[str, Json] = {}
        self.results: dict[str, ChangeResult] = {}

    def knows(self, nodes: list[Json]) -> None:
        """Record the names of machines for the file of passwords: several may have one BMC."""
        self._names.update({node["uuid"]: label(node) for node in nodes})

    @property
    def failed(self) -> int:
        return sum(bool(result.code) for result in self.results.values())

    @property
    def stopped(self) -> bool:
        return self.failed >= self._most

    def run(self, nodes: list[Json], limit: int, shown: Waiting) -> None:
        """Change the passwords of these machines, at most ``limit`` at the same time; ``shown`` names them."""
        waiting = deque(nodes)
        while waiting or self.active:
            while waiting and len(self.active) < limit and not self.stopped and not self._late:
                self.begin(waiting.popleft())
            before = len(self.active)
            for node in list(self.active.values()):
                self._look(node)
            shown.advance(before - len(self.active))
            if (self.stopped or self._late) and waiting:
                self._put(waiting.popleft(), NOT_STARTED)
                shown.advance()
                continue
            if self.active:
                shown.say(f"{self._describe_active()} being changed", self._deadline - time.monotonic())
                if self._late:
                    for node in self.active.values():
                        self._put(node, STILL_CHANGING, code=Exit.TIMED_OUT)
                    self.active.clear()
                elif before == len(self.active):
                    time.sleep(_POLL_SECONDS)

    def _describe_active(self) -> str:
        first, more = label(next(iter(self.active.values()))), len(self.active) - 1
        return f"{first} and {more} more" if more else first

    @property
    def _late(self) -> bool:
        return time.monotonic() >= self._deadline

    def begin(self, node: Json) -> None:
        """Request the change of a machine."""
        uuid = node["uuid"]
        if uuid not in self._given:
            try:
                password = self._passwords.of(node)
                requested = self._request(uuid, password)
                for same_bmc in requested:
                    if same_bmc not in self._given | {uuid}:  # it has the same BMC
                        self._passwords.note(self._names.get(same_bmc, same_bmc), same_bmc, password)
                self._given.update(requested)
            except Failure as exc:
                self._put(node, FAILED, exc.message, code=Exit(exc.exit_code))
                return
        self.active[uuid] = node

    def _request(self, uuid: str, password: str | None) -> list[str]:
        try:
            uuids: list[str] = self._api.put(_path(uuid), {} if password is None else {"password": password})["nodes"]
        except Failure as exc:
            # Perhaps only the answer was lost.
            if exc.exit_code != Exit.UNREACHABLE or self._api.get(_path(uuid))["state"] != PasswordProgress.CHANGING:
                raise
            return [uuid]
        return uuids

    def _look(self, node: Json) -> None:
        try:
            now = self._api.get(_path(node["uuid"]))
        except Failure as exc:
            if exc.exit_code == Exit.UNREACHABLE:  # the service is restarting; the change continues
                return
            self.active.pop(node["uuid"])
            self._put(node, FAILED, exc.message, code=Exit(exc.exit_code))
            return
        if now["state"] == PasswordProgress.CHANGING:
            return
        self.active.pop(node["uuid"])
        code = Exit.OK if now["state"] == PasswordProgress.CHANGED else Exit.FAILURE
        self._put(node, now["state"], now["error"], changed_at=now["changed_at"], code=code)

    def _put(
        self, node: Json, result: str, error: str | None = None, *, changed_at: str | None = None, code: Exit = Exit.OK
    ) -> None:
        self.results[node["uuid"]] = ChangeResult(label(node), node["uuid"], result, error, changed_at, code)


@click.command(
    "set-password",
    epilog="Several machines are changed in stages, and waited for: first --stage of them; if all of these succeed, "
    "the others. Exit code 0: all were changed (one machine without --wait: was accepted). 1: some were not; both "
    "passwords of those that are 'unclear' are kept. 3: no such node. 4: not possible now. 6: --timeout expired.",
)
@selectors
@click.option(
    "--from-file",
    "file",
    type=InputFile("r", encoding="utf-8", lazy=True),
    help="Read the new password from the first line of this file; - is standard input. Without it, it is asked for.",
)
@click.option("--generate", is_flag=True, help="A random password for each machine.")
@click.option(
    "--length",
    type=click.IntRange(MIN_CHARACTERS, 20),
    default=GENERATED_CHARACTERS,
    show_default=True,
    help="Length of --generate; IPMI 1.5 and many BMCs keep at most 16 characters, IPMI 2.0 keeps 20.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the generated passwords to this new file, before they are sent: node,uuid,password.",
)
@click.option("--reference", metavar="secret://...", help="Reference to the new password in a secret source.")
@click.option("--resume", is_flag=True, help="Resume changes that are unclear, with the passwords that they have.")
@click.option(
    "--unless-changed-since", "since", metavar="TIME", help="Skip machines whose password was changed after this time."
)
@click.option("--stage", type=StageSize(), default="1", show_default=True, help="Machines, or 5%, to change first.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Most machines at a time.")
@click.option(
    "--max-failures", "most", type=click.IntRange(min=1), default=1, show_default=True, help="Stop after this many."
)
@wait_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Maximum seconds to wait, in total; then no more are begun.",
)
@with_api
def set_password(
    api: Client,
    out: Output,
    *,
    wanted: NodeSelection,
    file: IO[str] | None,
    generate: bool,
    length: int,
    save: Path | None,
    reference: str | None,
    resume: bool,
    since: str | None,
    stage: Callable[[int], int],
    limit: int,
    most: int,
    wait: bool,
    timeout: float,
) -> None:
    """Change the password of the BMCs of nodes, on the BMCs and in the service.

    A worker tells each BMC, and proves the new password by a login before the old one is forgotten. If that fails, the
    old one is kept. Machines behind the same BMC are changed together.
    """
    if sum((file is not None, generate, reference is not None, resume)) > 1:
        raise click.UsageError("--from-file, --generate, --reference and --resume exclude each other")
    if save is not None and not generate:
        raise click.UsageError("--save requires --generate")
    begun = None if since is None else parse(since)
    if since is not None and begun is None:
        raise click.UsageError(f"--unless-changed-since {since!r} is not a time such as 2026-12-31T12:00:00Z")
    chosen = resolve(api, wanted, states=_POSSIBLE)
    confirm(out, wanted, chosen, does="change the password of", asks=True)
    password = None if generate or resume else _read(file, reference)
    saved = None if save is None else _create(save)
    campaign = Campaign(api, Passwords(password, length if generate else None, saved), most=most, timeout=timeout)
    nodes = _left_over(api, campaign, chosen, begun)
    campaign.knows(chosen.nodes)
    try:
        _run(campaign, nodes, stage, limit, wait=wait or resume or len(nodes) > 1)
    except KeyboardInterrupt:
        click.echo(f"interrupted: {many(len(campaign.active), 'change continues', 'changes continue')}", err=True)
        raise
    finally:
        if saved is not None:
            saved.close()
    _report(out, wanted, chosen, campaign)


def _run(campaign: Campaign, nodes: list[Json], stage: Callable[[int], int], limit: int, *, wait: bool) -> None:
    if not wait:
        for node in nodes:
            campaign.begin(node)
        for uuid, node in campaign.active.items():
            campaign.results[uuid] = ChangeResult(label(node), uuid, REQUESTED)
        return
    first = stage(len(nodes))
    with Waiting(len(nodes)) as shown:
        campaign.run(nodes[:first], limit, shown)
        # A stage is a test: one failure is enough.
        if any(
            node_result.result != PasswordProgress.CHANGED
            for node_result in campaign.results.values()
            if node_result.result != SKIPPED
        ):
            for node in nodes[first:]:
                campaign.results[node["uuid"]] = ChangeResult(label(node), node["uuid"], NOT_STARTED)
            return
        campaign.run(nodes[first:], limit, shown)


def _left_over(api: Client, campaign: Campaign, chosen: Selection, begun: Any) -> list[Json]:
    """Return the machines that remain to be changed; the others are skipped."""
    if begun is None:
        return chosen.nodes
    left = []
    for node in chosen.nodes:
        now = api.get(_path(node["uuid"]))
        at = parse(now["changed_at"])
        if now["state"] == PasswordProgress.CHANGED and at is not None and at >= begun:
            campaign.results[node["uuid"]] = ChangeResult(
                label(node), node["uuid"], SKIPPED, changed_at=now["changed_at"]
            )
        else:
            left.append(node)
    return left


def _read(file: IO[str] | None, reference: str | None) -> str:
    """Return the new password, or the reference to it."""
    if reference is not None:
        if not is_reference(reference):
            raise click.UsageError("--reference takes a reference such as secret://file/bmc/new, not a password")
        return reference
    if file is not None:
        password = file.readline().rstrip("\r\n")
    elif is_terminal(sys.stdin):
        password = click.prompt("New password of the BMCs", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise click.UsageError("no new password: use --from-file FILE, --from-file - or --generate")
    if is_reference(password):
        raise click.UsageError("the new password is a reference; use --reference")
    if why := passwords.problem(password):
        raise click.UsageError(f"the new password cannot be used: {why}")
    return password


def _create(path: Path) -> IO[str]:
    try:
        saved = open_private(path, "x")
    except OSError as exc:
        advice = "name a new file with --save"
        raise Failure(f"cannot create {path}: {exc.strerror}", exit_code=Exit.USAGE, advice=advice) from None
    saved.write("node,uuid,password\n")
    return saved


def _path(uuid: str) -> str:
    return node_path(uuid, "bmc", "password")


def _report(out: Output, wanted: NodeSelection, chosen: Selection, campaign: Campaign) -> None:
    results = [
        ChangeResult(ident, None, FAILED, node_or_failure.message, code=Exit(node_or_failure.exit_code))
        if isinstance(node_or_failure, Failure)
        else campaign.results[node_or_failure["uuid"]]
        for ident, node_or_failure in chosen.found.items()
    ]
    shown: list[Json] = [
        {
            "node": node_result.node,
            "uuid": node_result.uuid,
            "result": node_result.result,
            "error": node_result.error,
            "changed_at": node_result.changed_at,
        }
        for node_result in results
    ]
    rows = [
        (node_result.node, node_result.result, node_result.error or "")
        for node_result in results
        if node_result.result != PasswordProgress.CHANGED
    ]

    def draw(screen: Any) -> None:
        if rows:
            screen.print(table(("NODE", "RESULT", "ERROR"), rows))
        counts = Counter(node_result.result for node_result in results)
        screen.print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "nothing to do")

    out.show(shown, draw)
    if not out.for_programs:
        _say_what_is_next(out, wanted, results)
    codes = [Failure("", exit_code=node_result.code) for node_result in results if node_result.code]
    if codes:
        raise click.exceptions.Exit(worst(codes))


def _say_what_is_next(out: Output, wanted: NodeSelection, results: list[ChangeResult]) -> None:
    command = ["ferroscope", "bmc", "set-password"]
    if unclear := [node_result.node for node_result in results if node_result.result == PasswordProgress.UNCLEAR]:
        out.say(f"both passwords are kept; resume: {shlex.join([*command, *unclear, '--resume'])}")
    if any(
        node_result.result in (NOT_STARTED, FAILED) and node_result.uuid for node_result in results
    ):  # not missing machines
        times = [
            node_result.changed_at
            for node_result in results
            if node_result.result == PasswordProgress.CHANGED and node_result.changed_at
        ]
        since = ["--unless-changed-since", min(times)] if times else []
        out.say(f"to continue, with a new password as before: {shlex.join([*command, *wanted.words, *since])}")
