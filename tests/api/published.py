"""Operations of JSON patches, and what tests of published behavior of the Bare Metal service share."""

from __future__ import annotations

from typing import Any

from tests.api.service import Service


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def provisioned(service: Service, state: str) -> str:
    """Enrol a node in a provision state; return its path."""
    path = f"/v1/nodes/{service.enrol()}"
    service.alter(path.rpartition("/")[2], provision_state=state)
    return path
