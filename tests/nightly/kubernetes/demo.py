"""``python3 -m tools demo-kubernetes``: one of three machines dies, and its StatefulSet's pod comes back.

Kubernetes is real, the kubelets are hollow (they run no containers), and the machines with their BMCs are simulated.
Two ``ferroscope failover`` processes watch; the leading one is killed while it is at work. Nothing remains.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from ferroscope.cli.output import console
from ferroscope.core.remediation import Phase
from tests.nightly.kubernetes.fleet import Fleet
from tests.nightly.kubernetes.witness import Witness
from tests.support.processes import until


class Story:
    """Tells what happens, with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._screen = console()
        self._heard = 0

    def tell(self, sentence: str) -> None:
        self._screen.print(f"{time.monotonic() - self._began:5.0f} s  {sentence}", highlight=False)

    def evidence(self, fleet: Fleet) -> None:
        """Tell what the records of the controllers say, each line once."""
        lines = [line for record in fleet.records()[:1] for line in record.log]
        for line in lines[self._heard :]:
            self.tell(f"        {line['text']}")
        self._heard = len(lines)


def perform(story: Story, directory: Path) -> bool:
    """Return whether all went well."""
    story.tell("starting etcd, an API server, controllers, a scheduler and three hollow nodes")
    with Fleet(directory, nodes=3, options={}) as fleet:
        fleet.deploy("db")
        home = fleet.place("db")
        story.tell(f"db-0, the pod of a StatefulSet, runs on {home}; two ferroscope failover processes watch")
        with Witness(fleet) as witness:
            fleet.machines[home].hang()
            story.tell(f"the machine of {home} hangs: its power is on, and nobody can tell what its pods do")
            until(lambda: not fleet.cluster.is_ready(home))
            story.tell(f"Kubernetes sees that {home} is not ready; by itself it would wait for it forever")
            _killed(story, fleet)
            moved = _follow(story, fleet, lambda: fleet.moved("db", home))
            story.tell(f"db-0 runs on {fleet.place('db') or 'no node'}")
            back = _follow(story, fleet, fleet.settled)
            story.tell(f"{home} is {'back, in a new boot' if back else 'not back'}")
            for one in witness.replaced:
                story.tell(f"from NotReady to running elsewhere: {one.seconds:.0f} s, a new leader included")
            for forced in witness.forced():
                on = fleet.machines[home].was_on(forced.at)[0]
                power = "ON" if on else "off"
                story.tell(f"the API server's audit log: {forced.name} was deleted while its machine was {power}")
        story.tell(f"seen running twice: {len(witness.twice)}; deleted without proof: {len(witness.unproven())}")
        return moved and back and not witness.twice and not witness.unproven()


def _killed(story: Story, fleet: Fleet) -> None:
    """Kill the leader when it has sent the command to power off."""
    _follow(story, fleet, lambda: any(one.phase is Phase.POWERING_OFF for one in fleet.active()))
    fleet.a_leader().kill()
    story.tell("the leading ferroscope failover is killed; the other one goes on where it was")


def _follow(story: Story, fleet: Fleet, done: Callable[[], bool]) -> bool:
    def heard() -> bool:
        story.evidence(fleet)
        return done()

    return until(heard, seconds=120)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Let one of three nodes die."""
    with tempfile.TemporaryDirectory(prefix="ferroscope-demo-", ignore_cleanup_errors=True) as directory:
        well = perform(Story(), Path(directory))
    click.echo(
        "\nGo on:\n\n"
        "    python3 -m tools chaos-kubernetes --minutes 10  # everything fails, for ten minutes\n"
        "    docs/how-to/fail-over-a-kubernetes-node.md             # the same for your own cluster\n"
        "    docs/explanation/proof-of-death.md                     # what counts as proof, and what does not"
    )
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
