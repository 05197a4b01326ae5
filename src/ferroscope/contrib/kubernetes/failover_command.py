"""``ferroscope failover [plan | status | pause | resume]``: the controller of failed Kubernetes nodes."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from ferroscope.cli.service import config_option, database_option, exit_with, read, settings_of
from ferroscope_client.cli.output import Output, output_option, table

if TYPE_CHECKING:
    from ferroscope.config.options import Settings
    from ferroscope.core.remediation import Remediation


_MAX_WHY_CHARACTERS: Final = 1000  # characters


class _OuterOptions(NamedTuple):
    """The options that were given before the sub-command; those after it count more."""

    files: tuple[str, ...]
    database: str | None


def _settings(outer: _OuterOptions, files: tuple[str, ...], database: str | None) -> Settings:
    return settings_of(files or outer.files, database or outer.database)


@click.group(invoke_without_command=True)
@config_option
@database_option
@click.option("--dry-run", is_flag=True, help="Only log what would be done; as [failover] dry_run.")
@click.pass_context
def failover(context: click.Context, files: tuple[str, ...], database: str | None, *, dry_run: bool) -> None:
    """Run the role failover: free the pods and volumes of a failed Kubernetes node once its machine is proven off."""
    if context.invoked_subcommand is not None:
        context.obj = _OuterOptions(files, database)
        return
    from ferroscope.contrib.kubernetes.options import FailoverSettings
    from ferroscope.runtime.role_process import run

    def with_dry_run(settings: Settings) -> Settings:
        if not dry_run:
            return settings
        options = msgspec.structs.replace(settings.part(FailoverSettings), dry_run=True)
        return msgspec.structs.replace(settings, parts={**settings.parts, "failover": options})

    exit_with(
        run, "failover", with_dry_run(settings_of(files, database)), reread=lambda: with_dry_run(read(files, database))
    )


@failover.command("plan")
@config_option
@database_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show for every node, asking its BMC, whether its failure would be dealt with.",
)
@output_option
@click.pass_obj
def plan(outer: _OuterOptions, files: tuple[str, ...], database: str | None, fmt: str, *, everything: bool) -> None:
    """Show what would be done now for each node that is not ready, and what prevents more. Changes nothing."""
    from ferroscope.config.options import LogSettings
    from ferroscope.contrib.kubernetes.role import plan as look
    from ferroscope.telemetry import log

    log.configure(LogSettings(level="warning"), process="failover")  # to standard error: the output is the plan
    settings = _settings(outer, files, database)
    if everything:
        _show_protection(settings, Output(fmt))
        return
    data = [
        {
            "node": node_plan.reading.name if node_plan.decision.record is None else node_plan.decision.record.node,
            "machine": None if node_plan.reading.match.machine is None else node_plan.reading.match.machine.title,
            "phase": None if node_plan.decision.record is None else str(node_plan.decision.record.phase),
            "steps": [type(effect).__name__ for effect in node_plan.decision.effects],
            "reason": node_plan.decision.reason,
            "message": node_plan.decision.message,
        }
        for node_plan in _or_fail(look, settings)
    ]
    titles = ("NODE", "MACHINE", "PHASE", "STEPS", "WHY NOT MORE")
    rows = [
        (
            fields["node"],
            fields["machine"] or "-",
            fields["phase"] or "-",
            ", ".join(fields["steps"]) or "-",
            fields["message"],
        )
        for fields in data
    ]
    out = Output(fmt)
    out.show({"nodes": data}, lambda screen: screen.print(table(titles, rows)) if rows else None)
    if not rows:
        out.note("no node has failed")


def _show_protection(settings: Settings, out: Output) -> None:
    from ferroscope.contracts.bmc import Power
    from ferroscope.contrib.kubernetes.role import check

    data = [
        {
            "node": node_check.node.name,
            "machine": None if node_check.match.machine is None else node_check.match.machine.title,
            "facts": list(node_check.facts),
            "bmc_answers": None if node_check.match.machine is None else node_check.answer.power is not Power.UNKNOWN,
            "power": node_check.answer.power.published,
            "protected": not node_check.problem,
            "reason": node_check.problem,
            "message": node_check.message,
        }
        for node_check in _or_fail(check, settings)
    ]
    titles = ("NODE", "MACHINE", "FACTS", "BMC", "POWER", "PROTECTED")
    answers = {None: "-", True: "answers", False: "silent"}
    rows = [
        (
            fields["node"],
            fields["machine"] or "-",
            ", ".join(fields["facts"]) or "-",
            answers[fields["bmc_answers"]],
            fields["power"] or "-",
            "yes" if fields["protected"] else f"no: {fields['reason']}: {fields['message']}",
        )
        for fields in data
    ]
    out.show({"nodes": data}, lambda screen: screen.print(table(titles, rows)) if rows else None)
    if not rows:
        out.note("the cluster has no nodes")


@failover.command("status")
@config_option
@database_option
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="The most remediations.")
@output_option
@click.pass_obj
def status(outer: _OuterOptions, files: tuple[str, ...], database: str | None, limit: int, fmt: str) -> None:
    """Show the latest remediations with their evidence, newest first."""
    from ferroscope.contrib.kubernetes.role import history

    remediations, paused = _or_fail(history, _settings(outer, files, database), limit)
    titles = ("NODE", "PHASE", "PROOF", "MESSAGE")
    rows = [(record.node, str(record.phase), str(record.proof) or "-", _message(record)) for record in remediations]
    out = Output(fmt)
    data = {"paused": msgspec.to_builtins(paused), "remediations": msgspec.to_builtins(remediations)}
    if paused is not None:
        out.note(f"paused by {paused.by}: {paused.why}; end it with: ferroscope failover resume")
    out.show(data, lambda screen: screen.print(table(titles, rows)) if rows else None)
    if not rows:
        out.note("no remediations")


@failover.command("pause")
@config_option
@database_option
@click.option("--why", required=True, help="Why; it is shown until you resume.")
@click.pass_obj
def pause(outer: _OuterOptions, files: tuple[str, ...], database: str | None, why: str) -> None:
    """Stop all power commands and deletions in this cluster at once, until resume."""
    from ferroscope.contrib.kubernetes.options import FailoverSettings
    from ferroscope.contrib.kubernetes.role import pause as pause_cluster

    if not why.strip():
        raise click.UsageError("--why is empty: say why, because it is shown until you resume")
    settings = _settings(outer, files, database)
    cluster = settings.part(FailoverSettings).cluster
    led = _or_fail(pause_cluster, settings, why.strip()[:_MAX_WHY_CHARACTERS], _user())
    if cluster not in led:
        names = ", ".join(led) or "none"
        raise click.ClickException(
            f"nothing is paused: no controller has ever led the cluster {cluster}; clusters with controllers: {names}. "
            "Give the controller's configuration file with -c, or set [failover] cluster"
        )
    click.echo(f"paused cluster {cluster}: no command is sent any more; end it with: ferroscope failover resume")


@failover.command("resume")
@config_option
@database_option
@click.pass_obj
def resume(outer: _OuterOptions, files: tuple[str, ...], database: str | None) -> None:
    """End a pause."""
    from ferroscope.contrib.kubernetes.role import resume as resume_cluster

    was_paused = _or_fail(resume_cluster, _settings(outer, files, database))
    click.echo("resumed" if was_paused else "it was not paused")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container has processes of users that it does not know
        return f"uid {os.getuid()}"


def _message(record: Remediation) -> str:
    complete = record.left_off in record.message
    return record.message if complete else f"{record.message}; {record.left_off}"


def _or_fail(work: Any, *arguments: Any) -> Any:
    from ferroscope.config.errors import StartError

    try:
        return work(*arguments)
    except StartError as exc:
        raise click.ClickException(str(exc)) from exc
