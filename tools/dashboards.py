"""``python -m tools.dashboards``: write the Grafana dashboards of ``dashboards.yaml`` to deploy/grafana; or check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import click
import msgspec

_DIRECTORY: Final = Path(__file__).parents[1] / "deploy" / "grafana"
_WIDTH: Final = 8
_HEIGHTS: Final = {"stat": 4, "timeseries": 8, "table": 8}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``unit`` as Grafana names it; ``queries``: PromQL expression -> legend."""

    title: str
    unit: str
    queries: dict[str, str]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dashboard; its panels are in rows of three."""

    title: str
    panels: list[Panel]


# file -> dashboard
DASHBOARDS: Final = msgspec.yaml.decode(Path(__file__).with_suffix(".yaml").read_bytes(), type=dict[str, Dashboard])


def render(file: str) -> str:
    """Return the JSON of a dashboard."""
    found = DASHBOARDS[file]
    dashboard = {
        "title": found.title,
        "uid": f"ferroscope-{file.removesuffix('.json')}",
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "15s",
        "time": {"from": "now-6h", "to": "now"},
        "tags": ["ferroscope"],
        "links": [{"type": "dashboards", "tags": ["ferroscope"], "title": "Ferroscope", "asDropdown": True}],
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]
        },
        "panels": _placed(found.panels),
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    found, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x == 3 * _WIDTH:
            x, y, height = 0, y + height, 0
        height = max(height, _HEIGHTS[panel.kind])
        found.append(_panel(panel, number, {"h": _HEIGHTS[panel.kind], "w": _WIDTH, "x": x, "y": y}))
        x += _WIDTH
    return found


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    instant = panel.kind == "table"
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            | ({"instant": True, "format": "table"} if instant else {})
            for at, (expression, legend) in enumerate(panel.queries.items())
        ],
    }


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a dashboard is not up to date.")
def dashboards(check: bool) -> None:
    """Write the Grafana dashboards."""
    outdated = [file for file in DASHBOARDS if not _is_current(_DIRECTORY / file)]
    if check and outdated:
        raise click.ClickException(f"not up to date: {', '.join(outdated)}\n  run: python -m tools.dashboards")
    for file in outdated:
        (_DIRECTORY / file).write_text(render(file), encoding="utf-8")
        click.echo(f"wrote deploy/grafana/{file}")


def _is_current(path: Path) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == render(path.name)


if __name__ == "__main__":
    dashboards()
