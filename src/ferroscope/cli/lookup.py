"""NODE on the command line: a name, a UUID, a MAC address or a BMC address all name a node.

Names, UUIDs and MACs are looked up by the service. It has no search by BMC address, so that is
looked for here, in the ``…_address`` fields of every node's ``driver_info``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import click

from ferroscope.cli.client import Api, ApiError, Json, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.text import short
from ferroscope.core import values

NODE_HELP: Final = "NODE is a name, a UUID, a MAC address or a BMC address."

_COMPLETED: Final = 200


def complete_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of nodes that begin so, for the shell; none where the service does not answer at once."""
    from ferroscope.cli.client import DEFAULT_URL
    from ferroscope.core.values import natural

    url = next((found for at in (ctx, ctx.parent, ctx.find_root()) if at and (found := at.params.get("url"))), None)
    try:
        api = Api(str(url or os.environ.get("FERROSCOPE_URL") or DEFAULT_URL), patience=0.0, seconds=2.0)
        names = [node["name"] for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name"))]
    except Failure:
        return []
    return sorted((name for name in names if name and name.startswith(incomplete)), key=natural)[:_COMPLETED]


node_argument = click.argument("ident", metavar="NODE", shell_complete=complete_names)

_ENOUGH: Final = ("uuid", "name", "provision_state")


def find(api: Api, ident: str, *, fields: tuple[str, ...] | None = _ENOUGH) -> Json:
    """Return the one node that ``ident`` names, with these fields (None: all); ``Failure``."""
    mac = values.normalize(ident)
    if mac is not None and ":" in ident:
        return _get(api, _of_mac(api, mac) or _nowhere(ident, "no port has this MAC address"), fields)
    try:
        return _get(api, ident, fields)
    except ApiError as exc:
        if exc.status not in (400, 404):
            raise
    uuid = _of_mac(api, mac) if mac is not None else _of_bmc(api, ident)
    return _get(api, uuid or _nowhere(ident, "no node has this name, UUID, MAC or BMC address"), fields)


def label(node: Json) -> str:
    """Return how a person calls the node."""
    return str(node.get("name") or node["uuid"])


def _get(api: Api, ident: str, fields: tuple[str, ...] | None) -> Json:
    return api.get(node_path(ident), fields=fields)


def _nowhere(ident: str, why: str) -> str:
    raise Failure(
        f"there is no node {short(ident)}: {why}",
        exit_code=Exit.NOT_FOUND,
        advice="see what there is: ferroscope node list",
    )


def _of_mac(api: Api, mac: str) -> str | None:
    ports = api.get("/v1/ports", address=mac, fields=("node_uuid",))["ports"]
    return str(ports[0]["node_uuid"]) if ports else None


def _of_bmc(api: Api, ident: str) -> str | None:
    if "." not in ident and ":" not in ident:
        return None
    nodes = api.pages("/v1/nodes", "nodes", fields=("uuid", "name", "driver_info"))
    found = [node for node in nodes if ident.lower() in addresses(node.get("driver_info") or {})]
    if len(found) > 1:
        names = ", ".join(label(node) for node in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Failure(
            f"{len(found)} nodes have the BMC address {ident}: {names}{more}",
            exit_code=Exit.CONFLICT,
            advice="name the node by its name, UUID or MAC address",
        )
    return str(found[0]["uuid"]) if found else None


def addresses(driver_info: dict[str, Any]) -> set[str]:
    """Return every spelling of the BMC addresses in ``driver_info``: whole, with port, host alone."""
    return set(_spellings(driver_info))


def _spellings(driver_info: dict[str, Any]) -> Iterator[str]:
    for name, value in driver_info.items():
        if not name.endswith("_address") or not isinstance(value, str):
            continue
        text = value.lower()
        yield text
        if text.count(":") > 1 and "/" not in text and "]" not in text:
            continue  # an IPv6 address by itself
        try:
            parts = urlsplit(text if "//" in text else f"//{text}")
        except ValueError:
            continue
        yield parts.netloc.rpartition("@")[2]
        yield parts.hostname or text
