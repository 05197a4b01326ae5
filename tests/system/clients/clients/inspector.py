"""What python-ironic-inspector-client's Python API does; run by ``runner``."""

from __future__ import annotations

from typing import Any

from ironic_inspector_client import ClientV1


def connect(urls: dict[str, str], version: str = "1.13") -> ClientV1:
    """Return a client for that version of the API at least."""
    return ClientV1(inspector_url=urls["introspection"], api_version=version)


def versions(urls: dict[str, str], version: str) -> list[list[int]]:
    """Tell the range of versions that the service offers to a client of ``version``."""
    return [list(bound) for bound in connect(urls, version).server_api_versions()]


def introspect(urls: dict[str, str], nodes: list[str], version: str = "1.13") -> dict[str, Any]:
    """Start all, wait for all; return the last status of each."""
    client = connect(urls, version)
    for node in nodes:
        client.introspect(node)
    finished: dict[str, Any] = client.wait_for_finish(nodes, retry_interval=0.2, max_retries=150)
    return finished


def start(urls: dict[str, str], node: str, manage_boot: bool | None = None) -> None:
    connect(urls).introspect(node, manage_boot=manage_boot)


def wait(urls: dict[str, str], node: str) -> dict[str, Any]:
    finished = connect(urls).wait_for_finish([node], retry_interval=0.2, max_retries=150)
    status: dict[str, Any] = finished[node]
    return status


def give_up_waiting(urls: dict[str, str], node: str) -> None:
    connect(urls).wait_for_finish([node], retry_interval=0.1, max_retries=2)


def get_status(urls: dict[str, str], node: str) -> dict[str, Any]:
    status: dict[str, Any] = connect(urls).get_status(node)
    return status


def list_statuses(urls: dict[str, str], marker: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    statuses: list[dict[str, Any]] = connect(urls).list_statuses(marker=marker, limit=limit)
    return statuses


def abort(urls: dict[str, str], node: str) -> int:
    """Return the status code of the answer."""
    return int(connect(urls).abort(node).status_code)


def get_data(urls: dict[str, str], node: str, processed: bool = True, raw: bool = False) -> Any:
    data = connect(urls).get_data(node, processed=processed, raw=raw)
    return data.decode() if raw else data


def reprocess(urls: dict[str, str], node: str) -> int:
    return int(connect(urls).reprocess(node).status_code)


def reprocess_with(urls: dict[str, str], node: str, data: dict[str, Any]) -> int:
    """Reapply given data: the client has no method for it, but its ``request`` is for what it lacks."""
    answer = connect(urls).request("post", f"/introspection/{node}/data/unprocessed", json=data)
    return int(answer.status_code)


def create_rule(
    urls: dict[str, str], conditions: list[Any], actions: list[Any], description: str | None = None
) -> dict[str, Any]:
    rule: dict[str, Any] = connect(urls).rules.create(conditions, actions, description=description)
    return rule


def import_rule(urls: dict[str, str], rule: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = connect(urls).rules.from_json(rule)
    return made


def list_rules(urls: dict[str, str]) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = connect(urls).rules.get_all()
    return rules


def get_rule(urls: dict[str, str], uuid: str) -> dict[str, Any]:
    rule: dict[str, Any] = connect(urls).rules.get(uuid)
    return rule


def delete_rule(urls: dict[str, str], uuid: str) -> None:
    connect(urls).rules.delete(uuid)


def delete_all_rules(urls: dict[str, str]) -> None:
    connect(urls).rules.delete_all()
