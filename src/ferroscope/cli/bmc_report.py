"""``ferroscope bmc report``: the answers of a BMC, without data that identifies the machine, to report a quirk."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from ferroscope import __version__
from ferroscope.cli.service import config_option, database_option, settings_of
from ferroscope_client.core.private_file import open_private
from ferroscope_client.core.values import clean_json, many
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from ferroscope.config.options import Settings
    from ferroscope.core.model import Document

_FILE: Final = "bmc-report.json"


@click.command(
    "report", epilog="Exit code 0: the file was written. 1: the BMC could not be asked. 3: the node does not exist."
)
@click.argument("ident", metavar="NODE")
@click.option(
    "--output",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=_FILE,
    show_default=True,
    help="The file, which must not exist yet; - is standard output.",
)
@click.option(
    "--identities",
    is_flag=True,
    help="Keep serial numbers, MAC addresses, names and addresses instead of replacing them with placeholders.",
)
@config_option
@database_option
def report(ident: str, *, file: Path, identities: bool, files: tuple[str, ...], database: str | None) -> None:
    """Save what the BMC of NODE (a name or UUID) answers, to report a BMC that is not supported well.

    Run it on a host of the service, whose configuration has the database, the secrets and the networks of BMCs. The
    BMC is only read: its system, managers, virtual media, NICs, drives and processors. The file has no passwords and no
    tokens, and only values from a fixed list. Read it before you publish it.
    """
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import BmcError, NotFoundError, StoreUnavailableError

    if str(file) != "-" and file.exists():
        raise Failure(f"{file} exists already", advice="name another file with --output, or remove this one")
    stop = threading.Event()
    try:
        answers = _answers(settings_of(files, database), ident, stop, identities=identities)
    except NotFoundError:
        advice = "list the nodes: ferroscope node list"
        raise Failure(f"node {ident[:80]} not found", exit_code=Exit.NOT_FOUND, advice=advice) from None
    except SetupError as exc:
        raise Failure(str(exc), advice=exc.advice) from None
    except StoreUnavailableError as exc:
        raise Failure(str(exc), advice="check the configuration: ferroscope doctor") from None
    except BmcError as exc:
        raise Failure(str(exc), advice=f"what the reason means: ferroscope explain {exc.reason}") from None
    finally:
        stop.set()
    _write(file, answers)


def _answers(settings: Settings, ident: str, stop: threading.Event, *, identities: bool) -> Document:
    """Return the report of the node with this name or UUID.

    ``SetupError``, ``SchemaError``, ``StoreUnavailableError``, ``NotFoundError``, ``BmcError``.
    """
    from ferroscope.contracts.bmc import ReportsAnswers
    from ferroscope.contracts.errors import BmcError
    from ferroscope.core import bmc_access
    from ferroscope.runtime.backend import open_for_command
    from ferroscope.runtime.externals import build_drivers, close_drivers
    from ferroscope.runtime.wiring import build_resolver
    from ferroscope.secrets.references import SecretReader
    from ferroscope_client.core.reasons import Reason

    with open_for_command(settings) as backend:
        stored = backend.store.read(lambda tx: tx.nodes.get(ident))
        if why := bmc_access.withheld_reason(stored, networks=settings.drivers.bmc_networks):
            raise BmcError(why, transient=False, reason=Reason.BMC_UNCONFIRMED)
        node = SecretReader(backend.keys, build_resolver(settings, stop)).reveal(stored)
    only = msgspec.structs.replace(settings.drivers, enabled=(node.driver,))
    drivers = build_drivers(msgspec.structs.replace(settings, drivers=only), stop)
    try:
        driver: object = drivers[node.driver]
        if not isinstance(driver, ReportsAnswers):
            message = f"driver {node.driver} makes no reports; only Redfish drivers do"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        return {"ferroscope": __version__} | driver.report(node, identities=identities)
    finally:
        close_drivers(drivers)


def _write(file: Path, answers: dict[str, Any]) -> None:
    text = clean_json(msgspec.json.format(msgspec.json.encode(answers), indent=1).decode()).encode() + b"\n"
    if str(file) == "-":
        sys.stdout.buffer.write(text)
        return
    try:
        with open_private(file, "xb") as output:
            output.write(text)
    except OSError as exc:
        raise Failure(f"cannot write {file}: {exc.strerror}", advice="name another file with --output") from None
    partly = "" if answers["complete"] else " (incomplete: the BMC has more data than fits, or was too slow)"
    click.echo(f"{many(len(answers['answers']), 'answer')} written to {file}{partly}", err=True)
    if answers["identities"]:
        click.echo("it contains serial numbers, MAC addresses, names and addresses: do not publish it", err=True)
    else:
        click.echo("read it before you publish it; check that nothing in it identifies the machine", err=True)
