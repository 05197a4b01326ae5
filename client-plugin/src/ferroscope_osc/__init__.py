"""``node list --auto-discovered`` for the commands ``baremetal`` and ``openstack baremetal``.

A hook of cliff, which commands of all OpenStack clients load by entry point. The published client has no argument for
this filter, so it is added to the path of the list that the command is about to ask for; links to further pages have it
from the server. Source: the merge specification, which names the option.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from cliff.hooks import CommandHook


class AutoDiscovered(CommandHook):
    """The option, and the filter."""

    def get_parser(self, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        parser.add_argument(
            "--auto-discovered",
            action="store_true",
            help="Limit list to nodes that were enrolled because their machine called back.",
        )
        return parser

    def get_epilog(self) -> str:
        return ""

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        if parsed_args.auto_discovered:
            nodes = self.cmd.app.client_manager.baremetal.node
            nodes._path = filtered(nodes._path)
        return parsed_args

    def after(self, parsed_args: argparse.Namespace, return_code: int) -> int:
        return return_code


def filtered(path: Callable[[str | None], str]) -> Callable[[str | None], str]:
    """Return ``path``, which makes the path of a request from its resource, with the filter."""

    def with_filter(resource: str | None = None) -> str:
        found = path(resource)
        return f"{found}{'&' if '?' in found else '?'}auto_discovered=true"

    return with_filter
