"""The group ``ferroscope node``: which of its commands is in which file."""

from __future__ import annotations

import click

from ferroscope.cli.lookup import NODE_HELP
from ferroscope.cli.node import cables, inbox, log, look, verbs, write
from ferroscope.cli.output import Group


@click.group(cls=Group, help=f"Enrol, list, show and change nodes.\n\n{NODE_HELP}")
def node() -> None:
    """Has no options of its own."""


for _command in (
    look.list_nodes,
    look.show,
    write.create,
    write.set_node,
    write.delete,
    verbs.manage,
    verbs.provide,
    verbs.abort,
    verbs.power,
    look.ports,
    look.inventory,
    cables.lldp,
    look.show_timeline,
    log.log,
    look.validate,
    inbox.inbox,
    inbox.approve,
    inbox.reject,
    inbox.rejected,
    inbox.readmit,
):
    node.add_command(_command)
