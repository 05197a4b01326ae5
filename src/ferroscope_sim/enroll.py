"""Enrolls a fleet through the Bare Metal API, as an operator's script would: nodes, PXE ports, manage.

It can be repeated at any time: existing nodes are kept, and the address of a simulator that moved to another port is
corrected. It waits for the verification of the BMCs, and reports errors per machine instead of stopping.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import urllib3

from ferroscope_client.core.json_safety import ready
from ferroscope_sim.client import ControlError, FleetClient
from ferroscope_sim.inventory import bmc_address, pxe_mac
from ferroscope_sim.model import SimMember

# A minimal client of the Bare Metal API, with persistent connections.
#
# Source: the Bare Metal API reference, microversion 1.80. Transient errors (503, a lost connection) are retried, which
# is safe because every call here is idempotent; urllib3 would log each of its own retries.

_VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.80"}
_MAX_THREADS: Final = 8
_MAX_TRIES: Final = 6
_FIRST_PAUSE_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 0.25


class BareMetalError(Exception):
    """The API returned an error; the message is its own."""


class EnrolledNode(msgspec.Struct, frozen=True):
    """The fields of a node that enrollment needs."""

    uuid: str
    name: str | None = None
    provision_state: str = "enroll"
    driver_info: dict[str, Any] = {}
    last_error: str | None = None


class NodePage(msgspec.Struct, frozen=True):
    """One page of nodes; ``next`` is the URL of the next one."""

    nodes: list[EnrolledNode]
    next: str | None = None


ready(EnrolledNode, NodePage)


class BareMetal:
    """The calls that enrollment needs. Thread-safe; ``url`` is the API's root."""

    def __init__(self, url: str, *, threads: int, headers: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self._pool = urllib3.PoolManager(
            maxsize=threads, block=True, retries=False, timeout=30.0, headers={**_VERSION, **(headers or {})}
        )

    def wait_up(self, seconds: float) -> bool:
        """Return whether the API has responded within ``seconds``, with any status."""
        end = time.monotonic() + seconds
        while True:
            try:
                self._pool.request("GET", f"{self._url}/v1/")
            except urllib3.exceptions.HTTPError:
                if time.monotonic() > end:
                    return False
                time.sleep(_POLL_SECONDS)
            else:
                return True

    def call(
        self, method: str, path: str, body: object = None, *, accept: Iterable[int] = ()
    ) -> urllib3.BaseHTTPResponse:
        """Return the response if it is 2xx, or a status in ``accept``; otherwise raise ``BareMetalError``."""
        answer = self._answer(method, path, body)
        if answer.status >= 300 and answer.status not in accept:
            raise BareMetalError(f"{method} {path}: {answer.status} {_message(answer.data)}")
        return answer

    def _answer(self, method: str, path: str, body: object) -> urllib3.BaseHTTPResponse:
        for attempt in range(_MAX_TRIES):
            last = attempt == _MAX_TRIES - 1
            try:
                answer = self._pool.request(method, self._url + path, json=body)
            except urllib3.exceptions.HTTPError as error:
                if last:
                    raise BareMetalError(f"cannot reach the Bare Metal API at {self._url}: {error}") from error
            else:
                if last or answer.status != 503:
                    return answer
            time.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def _message(data: bytes) -> str:
    """Return the readable part of an error body, which may be JSON within JSON."""
    text = data.decode(errors="replace")
    try:
        document = msgspec.json.decode(text)["error_message"]
        fault = msgspec.json.decode(document) if isinstance(document, str) else document
        return str(fault["faultstring"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return text[:200]


DRIVER: Final = "sim"
_LOOK_SECONDS: Final = 0.1


class Enrolment(msgspec.Struct, frozen=True):
    """The result for a fleet, by name. ``failed`` has the reason for each name."""

    created: tuple[str, ...] = ()
    existing: tuple[str, ...] = ()
    failed: dict[str, str] = {}


def enroll(
    members: Sequence[SimMember],
    *,
    api_url: str,
    sim_address: str | Mapping[str, str],
    headers: Mapping[str, str] | None = None,
    wait: float = 60.0,
    patience: float = 0.0,
) -> Enrolment:
    """Enroll ``members``; return the result. ``sim_address``: ``IP:PORT`` of all BMCs, or of each by name.

    Waits up to ``patience`` seconds for the API, then up to ``wait`` seconds until the BMCs are verified. ``headers``
    are added to each call (a token). ``BareMetalError`` if the API cannot be reached, or does not support the
    simulator's driver.
    """
    api = BareMetal(api_url, threads=_MAX_THREADS, headers=headers)
    news: dict[str, bool] = {}
    failed: dict[str, str] = {}
    try:
        api.wait_up(patience)
        _check_driver(api)
        with ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="enroll") as pool:
            results = pool.map(lambda member: _enroll_one(api, member, _place(member, sim_address)), members)
            for member, result in zip(members, results, strict=True):
                if isinstance(result, BareMetalError):
                    failed[member.name] = str(result)
                else:
                    news[member.name] = result
        unverified = _wait_verified(api, news.keys(), wait)
    finally:
        api.close()
    return Enrolment(
        created=tuple(name for name, new in news.items() if new and name not in unverified),
        existing=tuple(name for name, new in news.items() if not new and name not in unverified),
        failed=failed | unverified,
    )


def write_machines(path: Path, members: Sequence[SimMember], sim_address: str | Mapping[str, str]) -> None:
    """Write a file for ``ferroscope node import``."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("name", "driver", "macs", *(f"driver_info/{key}" for key in _driver_info(SimMember("", 1), ""))))
        for member in members:
            info = _driver_info(member, _place(member, sim_address))
            rows.writerow((member.name, DRIVER, pxe_mac(member.number), *info.values()))


def _driver_info(member: SimMember, sim_address: str) -> dict[str, str]:
    return {
        "sim_address": sim_address,
        "sim_node": member.name,
        "sim_bmc_address": bmc_address(member.number),
    }


def _check_driver(api: BareMetal) -> None:
    """Raise ``BareMetalError`` if the API cannot be reached, or does not support the simulator's driver."""
    if api.call("GET", f"/v1/drivers/{DRIVER}", accept=(404,)).status == 404:
        raise BareMetalError(
            f"the driver {DRIVER} is not enabled in the service; start it with: ferroscope all --simulator, "
            f"or add {DRIVER} to [drivers] enabled of its api and worker processes"
        )


def _place(member: SimMember, sim_address: str | Mapping[str, str]) -> str:
    return sim_address if isinstance(sim_address, str) else sim_address[member.name]


def _enroll_one(api: BareMetal, member: SimMember, sim_address: str) -> bool | BareMetalError:
    """Return whether the node is new; errors are returned too, so that the others continue."""
    try:
        node, new = _node(api, member, sim_address)
        _port(api, node, pxe_mac(member.number))
        if node.provision_state == "enroll":
            api.call("PUT", f"/v1/nodes/{node.uuid}/states/provision", {"target": "manage"})
    except BareMetalError as error:
        return error
    return new


def _node(api: BareMetal, member: SimMember, sim_address: str) -> tuple[EnrolledNode, bool]:
    driver_info = _driver_info(member, sim_address)
    body = {"name": member.name, "driver": DRIVER, "driver_info": driver_info}
    answer = api.call("POST", "/v1/nodes", body, accept=(409,))
    if answer.status != 409:
        return msgspec.json.decode(answer.data, type=EnrolledNode), True
    existing = api.call("GET", f"/v1/nodes/{quote(member.name)}", accept=(404,))
    if existing.status == 404:  # not the name is taken, but the BMC
        raise BareMetalError(f"{answer.status} {_message(answer.data)}")
    node = msgspec.json.decode(existing.data, type=EnrolledNode)
    _check_free(node, sim_address)
    patch = [
        {"op": "add", "path": f"/driver_info/{key}", "value": value}
        for key, value in driver_info.items()
        if node.driver_info.get(key) != value
    ]
    if patch:
        api.call("PATCH", f"/v1/nodes/{node.uuid}", patch)
    return node, False


def _check_free(node: EnrolledNode, sim_address: str) -> None:
    """Raise ``BareMetalError`` if another running simulator has the node's machine."""
    other_address = node.driver_info.get("sim_address")
    name = node.driver_info.get("sim_node")
    if not isinstance(other_address, str) or other_address == sim_address or not isinstance(name, str):
        return
    try:
        with FleetClient(other_address, timeout=1.0) as client:
            taken = name in client.status([name]).nodes
    except (ControlError, msgspec.DecodeError, msgspec.ValidationError):
        return
    if taken:
        raise BareMetalError(
            f"the simulator at {other_address} already runs this machine; use other numbers, for example --first 1001"
        )


def _port(api: BareMetal, node: EnrolledNode, mac: str) -> None:
    answer = api.call("POST", "/v1/ports", {"node_uuid": node.uuid, "address": mac}, accept=(409,))
    if answer.status != 409:
        return
    listing = api.call("GET", f"/v1/ports?address={mac}&fields=node_uuid")
    owners = [str(port["node_uuid"]) for port in msgspec.json.decode(listing.data)["ports"]]
    if node.uuid not in owners:
        raise BareMetalError(f"MAC {mac} already belongs to another node: {', '.join(owners)}")


def _wait_verified(api: BareMetal, names: Collection[str], wait: float) -> dict[str, str]:
    """Return the names that did not become manageable in time, with the reason."""
    end = time.monotonic() + wait
    while any(node.name in names for node in _in_state(api, "verifying")) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    unverified = [*_in_state(api, "enroll"), *_in_state(api, "verifying")]
    return {
        node.name: node.last_error or f"still {node.provision_state} after {wait:g} s"
        for node in unverified
        if node.name is not None and node.name in names
    }


def _in_state(api: BareMetal, state: str) -> list[EnrolledNode]:
    """Return all nodes in the provision state, page by page."""
    nodes: list[EnrolledNode] = []
    marker = ""
    while True:
        path = f"/v1/nodes?provision_state={state}&fields=uuid,name,provision_state,last_error{marker}"
        page = msgspec.json.decode(api.call("GET", path).data, type=NodePage)
        nodes.extend(page.nodes)
        if page.next is None or not page.nodes:
            return nodes
        marker = f"&marker={page.nodes[-1].uuid}"
