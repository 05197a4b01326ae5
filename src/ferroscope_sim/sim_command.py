"""``ferroscope sim``: a fleet of simulated machines."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ferroscope_client.cli.input_files import InputPath
from ferroscope_client.cli.output import Output, cloud_option, insecure_option, key_values, output_option
from ferroscope_client.client import DEFAULT_URL, connect
from ferroscope_client.core.values import many
from ferroscope_client.errors import Failure

if TYPE_CHECKING:
    from ferroscope_sim.model import FleetSettings
    from ferroscope_sim.server import BmcAddresses

_DEFAULT_PORT: Final = 6390
_API_START_SECONDS: Final = 60.0
_seconds = click.FloatRange(min=0)
_share = click.FloatRange(0, 1)


@click.command(
    epilog="A machine's name selects its fault, for example sim-timeout-1 or sim-ramdisk-error-2; the reference page "
    "of the simulator lists all faults."
)
@click.option("--nodes", type=click.IntRange(min=0), show_default="50, or 0 with --special", help="Number of machines.")
@click.option("--special", metavar="NAME", multiple=True, help="Additional machine with this name; may be repeated.")
@click.option("--first", type=click.IntRange(min=1), default=1, show_default=True, help="Number of the first machine.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed; the same seed gives the same fleet.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the BMCs, on this host.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    show_default=f"{_DEFAULT_PORT}, or a free port if it is in use",
    help="Port of the BMCs; 0: any.",
)
@click.option(
    "--subnet",
    type=click.IntRange(0, 250),
    default=20,
    show_default=True,
    help="Number of BMCs in each loopback /24; 0, or with another --host: one address for all BMCs.",
)
@click.option(
    "--api",
    "api_url",
    envvar="FERROSCOPE_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="URL of the Bare Metal API, for callbacks and for --enroll.",
)
@cloud_option
@insecure_option
@click.option("--enroll/--no-enroll", default=False, help="Enroll the machines as nodes; existing nodes are kept.")
@click.option(
    "--machines-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the machines to this file, which 'ferroscope node import' reads.",
)
@click.option(
    "--inventory",
    type=InputPath(exists=True, dir_okay=False, path_type=Path),
    help="Inventory that every machine sends, with its own addresses.",
)
@click.option(
    "--boot-scripts",
    is_flag=True,
    help="Machines load the secret of their inspection before they call back, as with [boot] machine_script_url.",
)
@click.option("--boot-delay", type=_seconds, default=2.0, show_default=True, help="Seconds from power-on to callback.")
@click.option("--boot-jitter", type=_seconds, default=1.0, show_default=True, help="Random deviation of --boot-delay.")
@click.option("--bmc-delay", type=_seconds, default=0.0, show_default=True, help="Seconds until a BMC responds.")
@click.option("--bmc-jitter", type=_seconds, default=0.0, show_default=True, help="Random deviation of --bmc-delay.")
@click.option(
    "--bmc-sigma",
    type=click.FloatRange(0, 3),
    default=0.0,
    show_default=True,
    help="Sigma of a log-normal distribution of BMC response times with the median --bmc-delay; 0: disabled.",
)
@click.option("--dead", type=_share, default=0.0, show_default=True, help="Fraction of machines with a dead BMC.")
@click.option("--flapping", type=_share, default=0.0, show_default=True, help="Fraction with an intermittent BMC.")
@click.option("--time-scale", type=_seconds, default=1.0, show_default=True, help="Factor for all other delays.")
@output_option
def sim(
    *,
    api_url: str,
    cloud: str | None,
    insecure_http: bool,
    nodes: int | None,
    port: int | None,
    special: tuple[str, ...],
    enroll: bool,
    boot_scripts: bool,
    machines_file: Path | None,
    inventory: Path | None,
    fmt: str,
    **options: Any,
) -> None:
    """Run a simulated fleet until SIGTERM or Ctrl-C, then show statistics.

    With --enroll, the BMCs of --dead and --flapping work until their machines are enrolled.
    """
    from ferroscope.config.options import LogSettings
    from ferroscope.core.boot import CALLBACK_PATH
    from ferroscope.telemetry import log
    from ferroscope_sim.enroll import write_machines
    from ferroscope_sim.model import FleetSettings, roster

    out = Output(fmt)
    log.configure(LogSettings(level="warning"), process="sim")
    settings = FleetSettings(
        nodes=nodes if nodes is not None else 0 if special else 50,
        special=special,
        port=_DEFAULT_PORT if port is None else port,
        bmc_faults=not enroll,
        callback_url=f"{api_url.rstrip('/')}{CALLBACK_PATH}",
        boot_script_url=f"{api_url.rstrip('/')}/v1/boot.ipxe" if boot_scripts else "",
        inventory_file=str(inventory) if inventory else None,
        **options,
    )

    # Wrong credentials end the command before anything runs.
    headers = connect(api_url, cloud=cloud, insecure_http=insecure_http).credential_headers if enroll else {}

    def ready(places: BmcAddresses) -> None:
        machines = settings.nodes + len(settings.special)
        if machines_file:
            write_machines(machines_file, roster(settings), places.bmcs)
        out.say(
            f"{many(machines, 'machine')} at {places.control}, calling back to {settings.callback_url}; end with Ctrl-C"
        )
        if enroll:
            threading.Thread(target=_enroll, args=(settings, api_url, headers, places), daemon=True).start()

    counters = _run(settings, ready, out, may_move=port is None)
    out.show(counters, lambda screen: screen.print(key_values(counters)))


def _run(
    settings: FleetSettings, ready: Callable[[BmcAddresses], None], out: Output, *, may_move: bool
) -> dict[str, Any]:
    """Run the fleet, and return its counters; ``may_move``: use a free port if the default one is in use."""
    import msgspec

    from ferroscope_sim.run import run

    try:
        try:
            counters = run(settings, ready=ready)
        except OSError as exc:
            if not may_move or exc.errno != errno.EADDRINUSE:
                raise
            out.say(f"port {_DEFAULT_PORT} is in use; using a free port")
            counters = run(msgspec.structs.replace(settings, port=0), ready=ready)
    except (ValueError, OSError) as exc:
        taken = isinstance(exc, OSError) and exc.errno == errno.EADDRINUSE
        advice = "choose another --port, or --subnet 0 to use it on one address only" if taken else None
        raise Failure(f"cannot run the fleet: {exc}", advice=advice or "see: ferroscope sim --help") from None
    built_in: dict[str, Any] = msgspec.to_builtins(counters)
    return built_in


def _enroll(settings: FleetSettings, api_url: str, headers: Mapping[str, str], places: BmcAddresses) -> None:
    from ferroscope_sim.client import ControlError, FleetClient
    from ferroscope_sim.enroll import BareMetalError, enroll
    from ferroscope_sim.model import roster

    try:
        enrolment = enroll(
            roster(settings), api_url=api_url, sim_address=places.bmcs, patience=_API_START_SECONDS, headers=headers
        )
    except BareMetalError as exc:
        click.echo(f"cannot enroll the machines: {exc}", err=True)
        return
    finally:
        # The fleet may have been stopped in the meantime.
        with contextlib.suppress(ControlError), FleetClient(places.control) as client:
            client.faults(on=True)
    new, old, bad = len(enrolment.created), len(enrolment.existing), len(enrolment.failed)
    click.echo(f"enrolled: {new} new, {old} existing, {bad} failed", err=True)
    for name, why in sorted(enrolment.failed.items()):
        click.echo(f"  {name}: {why}", err=True)
    click.echo("next: ferroscope inspect --all --watch", err=True)
