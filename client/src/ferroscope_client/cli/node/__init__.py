"""``ferroscope node``: the group, and its commands."""

from __future__ import annotations

import click

from ferroscope_client.cli.lookup import NODE_HELP
from ferroscope_client.cli.node import actions, bulk, inbox, show, timeline, upkeep, write
from ferroscope_client.cli.output import Group


@click.group(cls=Group, help=f"Enroll, list, show and change nodes.\n\n{NODE_HELP}")
def node() -> None:
    """Has no options of its own."""


for _command in (
    show.list_nodes,
    show.show,
    write.create,
    write.set_node,
    upkeep.note,
    write.delete,
    bulk.import_nodes,
    bulk.export,
    actions.manage,
    actions.provide,
    actions.abort,
    actions.power,
    show.ports,
    show.inventory,
    show.health,
    show.lldp,
    show.show_timeline,
    timeline.log,
    show.validate,
    inbox.inbox,
    inbox.approve,
    inbox.reject,
    inbox.rejected,
    inbox.readmit,
):
    node.add_command(_command)
