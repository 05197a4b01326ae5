"""``ferroscope demo``: inspect a simulated fleet, and kill a worker meanwhile."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Final

import click

from ferroscope_client.errors import Exit, Failure

# Seconds in which a demo that leaves has begun to clean up.
_REPEAT_SECONDS: Final = 1.0
GO_ON: Final = """
To continue with a permanent service:

    # api, worker and periodic tasks in one process, on SQLite
    {ferroscope} all --simulator
    # in a second terminal: a simulated fleet
    {ferroscope} sim --nodes 50 --enroll
    # in a third one
    {ferroscope} inspect --all --watch
    {ferroscope} status
    {ferroscope} node list
    {ferroscope} node inventory sim-0001 -o json
    {ferroscope} node timeline sim-0001
    # in a fourth one: machines that fail
    {ferroscope} sim --special sim-bmc-dead-1 --special sim-power-fail-2 --enroll
    # and in the third one again
    {ferroscope} inspect sim-bmc-dead-1 sim-power-fail-2 --watch

Your own machines: see {ferroscope} node create --help. Their ramdisks must reach the API: set [api] host,
and boot them with ipa-inspection-callback-url=http://HOST:6385/v1/continue_inspection
"""


@click.command()
@click.option("--nodes", type=click.IntRange(1, 500), default=50, show_default=True, help="Number of machines.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed; the same seed gives the same machines.")
@click.option("--stay", is_flag=True, help="Keep the service running afterwards, until Ctrl-C.")
def demo(nodes: int, seed: int, stay: bool) -> None:
    """Demonstrate the service: inspect a simulated fleet, and kill a worker during the inspections.

    Starts the service on SQLite in a temporary directory, with an api process and two worker processes, and removes
    everything at the end.
    """
    from ferroscope.config.options import LogSettings
    from ferroscope.telemetry import log
    from ferroscope_client.cli.output import console
    from ferroscope_sim.demo.stage import DemoStage
    from ferroscope_sim.demo.story import Story
    from ferroscope_sim.model import FleetSettings

    log.configure(LogSettings(level="error"), process="demo")
    leave_at_sigterm()
    began = time.monotonic()
    screen = console()
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-demo-"))
    fleet = FleetSettings(nodes=nodes, seed=seed, boot_delay=1.5, boot_jitter=0.5, bmc_delay=0.12, bmc_jitter=0.04)
    stage = DemoStage(directory)
    keep = False
    try:
        Story(stage, screen, fleet).play((lambda: _stay(stage.url)) if stay else None)
    except Failure as exc:
        keep = True
        raise Failure(exc.message, advice=f"the logs and the database are in {directory}") from None
    except Exception:
        keep = True
        click.echo(f"the logs and the database are in {directory}", err=True)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        stage.close()
        if not keep:
            shutil.rmtree(directory)
    screen.print(
        f"\nDone in {time.monotonic() - began:.1f} s; the service is stopped, its files are removed.", style="bold"
    )
    click.echo(GO_ON.format(ferroscope=own_command(sys.argv[0])), nl=False)


def own_command(argv0: str) -> str:
    """Return the command that starts this program again: just its name if it is found in PATH."""
    installed = shutil.which("ferroscope")
    if Path(argv0).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m ferroscope"
    if installed is not None and Path(installed).resolve() == Path(argv0).resolve():
        return "ferroscope"
    return shlex.quote(argv0)


def _stay(url: str) -> None:
    click.echo(f"\nThe service is running until Ctrl-C; in another terminal: export FERROSCOPE_URL={url}")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def leave_at_sigterm() -> None:
    """Have the main thread leave with ``Exit.INTERRUPTED`` at SIGTERM, once more after a while if it goes on.

    What a signal's handler raises while the interpreter runs a callback of a weak reference, as at each import, is
    dropped. The caller stops the timer when it has left.
    """
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGALRM, _leave)


def _leave(_number: int, _frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, _REPEAT_SECONDS)
    sys.exit(Exit.INTERRUPTED)
