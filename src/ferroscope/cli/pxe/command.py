"""``ferroscope pxe``: the group of what an operator does on a boot host."""

from __future__ import annotations

import click

from ferroscope.cli.output import Group
from ferroscope.cli.pxe.config import config
from ferroscope.cli.pxe.gate import clean, ruleset


@click.group(cls=Group)
def pxe() -> None:
    """Look after the PXE gate of this host and its boot configuration."""


pxe.add_command(ruleset)
pxe.add_command(clean)
pxe.add_command(config)
