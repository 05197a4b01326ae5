"""What inspections left of a node: its stored inventory with the plugin data, fetched and written to a file."""

from __future__ import annotations

from pathlib import Path

import click

from ferroscope.cli.client import Api, ApiError, Json, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import label
from ferroscope.cli.output import Output


def fetch(api: Api, node: Json, revision: str | None = None) -> Json:
    """Return the node's newest inventory, or that of a revision; ``Failure`` where there is none.

    Where no inspection has finished, it is what the last one brought that failed, as the ramdisk sent it.
    """
    if revision is None:
        try:
            return api.get(node_path(node["uuid"], "inventory"))
        except ApiError as exc:
            if exc.status != 404:
                raise
            failed = _unprocessed(api, node)
        if failed is not None:
            return failed
    try:
        found: Json = api.get(node_path(node["uuid"], "inventory"), revision=revision)
    except ApiError as exc:
        if exc.status != 404:
            raise
        name = label(node)
        lacking, advice = "inventory", f"inspect it: ferroscope inspect {name} --watch"
        if revision is not None:
            lacking, advice = "such inventory", f"ferroscope inventory list {name}"
        raise Failure(f"{name} has no {lacking}: {exc.message}", exit_code=Exit.NOT_FOUND, advice=advice) from None
    return found


def _unprocessed(api: Api, node: Json) -> Json | None:
    """Return the newest inventory of an inspection that failed, and say so; None where there is none."""
    try:
        found = api.get(node_path(node["uuid"], "inventory"), revision="-1")
    except ApiError:
        return None
    message = "no inspection of it has finished; this is what the failed one brought, as the ramdisk sent it"
    click.echo(f"{message}: ferroscope node timeline {label(node)}", err=True)
    return found


def save(found: Json, file: Path, out: Output) -> None:
    """Write it as JSON; ``Failure``. It is what ``ferroscope inspect reapply --data`` reads."""
    import json

    try:
        file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as exc:
        raise Failure(f"{file} cannot be written: {exc.strerror}") from None
    out.say(f"saved to {file}")
