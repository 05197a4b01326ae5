"""``ferroscope doctor``: is everything in place for this host to run Ferroscope, and does the members fit together?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ferroscope.cli.exits import Exit
from ferroscope.cli.output import Output, output_option, table
from ferroscope.cli.service import config_option, database_option, read
from ferroscope.config.load import ConfigurationError, unknown_options

if TYPE_CHECKING:
    from ferroscope.telemetry.finding import Finding

_MARKS = {"ok": "ok", "note": "NOTE", "wrong": "WRONG"}


@click.command()
@config_option
@database_option
@output_option
def doctor(files: tuple[str, ...], database: str | None, fmt: str) -> None:
    """Check configuration, database, clock, drivers, hooks, ports, boot, PXE filter, members; exit code 1 on a problem.

    It asks the database itself, not the API, so it also helps where nothing runs yet. It starts nothing and
    changes nothing, but for the lease ferroscope/doctor: it takes it, to see whether the database can be written to.
    """
    out = Output(fmt)
    checks = _checks(files, database)
    out.show({"checks": checks}, lambda screen: screen.print(table(("", "CHECK", "FOUND"), map(_row, checks))))
    wrong = sum(check["verdict"] == "wrong" for check in checks)
    if wrong:
        out.say(f"{wrong} of {len(checks)} checks found something wrong")
        raise click.exceptions.Exit(Exit.FAILURE)


def _checks(files: tuple[str, ...], database: str | None) -> list[dict[str, str]]:
    import msgspec

    from ferroscope.doctor.database import examine
    from ferroscope.doctor.host import readable_files
    from ferroscope.telemetry.finding import Finding

    try:
        settings = read(files, database)
    except ConfigurationError as exc:
        found = [Finding("configuration", "wrong", f"the configuration cannot be used: {exc}", "correct it")]
    else:
        source = ", ".join(files) or "the defaults, and /etc/ferroscope/ferroscope.conf where it exists"
        found = _unknown_options(files) or [Finding("configuration", "ok", f"the configuration is right ({source})")]
        found += readable_files(list(files) or None)
        found += examine(settings)
    return [msgspec.structs.asdict(check) for check in found]


def _unknown_options(files: tuple[str, ...]) -> list[Finding]:
    """Return what is written down but does not exist, and so does nothing."""
    from ferroscope.telemetry.finding import Finding

    return [Finding("unknown-option", "note", one.summary, one.advice) for one in unknown_options(list(files) or None)]


def _row(check: dict[str, str]) -> tuple[str, str, str]:
    advice = f"; {check['advice']}" if check["advice"] else ""
    return _MARKS[check["verdict"]], check["code"], check["summary"] + advice
