"""``prometheus-sd``: targets for the file-based and the HTTP-based service discovery of Prometheus.

Source: the Prometheus documentation, ``file_sd_config`` and ``http_sd_config``. Fields of the node are meta labels,
which relabeling can turn into labels; Prometheus drops the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from ferroscope.contracts.plugins import ExportOptions
from ferroscope.contrib.dcim.exporters.tables import write_json_list
from ferroscope_client.core import bmc_place

_META: Final = "__meta_ferroscope_"
_TEXTS: Final = ("uuid", "name", "provision_state", "power_state", "driver", "owner", "resource_class")
_HARDWARE: Final = ("vendor", "product", "serial", "ip")
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z", re.ASCII)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_]+", re.ASCII)


class PrometheusExporter:
    """The parameter ``target`` is one of ``TARGETS``; ``port`` is added to it. Nodes without it are left out."""

    fields: Final = (*_TEXTS, "maintenance", "labels", "hardware", "driver_info")

    def __init__(self, options: ExportOptions) -> None:
        parameters = options.only(target="name", port="")
        if parameters["target"] not in TARGETS:
            raise ValueError(f"invalid target {parameters['target'][:40]!r}: expected one of {', '.join(TARGETS)}")
        if parameters["port"] and not (
            parameters["port"].isascii() and parameters["port"].isdigit() and int(parameters["port"]) < 65536
        ):
            raise ValueError(f"invalid port {parameters['port'][:40]!r}")
        self._host = TARGETS[parameters["target"]]
        self._port = parameters["port"]

    def write(self, nodes: Iterable[Mapping[str, Any]], output: BinaryIO) -> None:
        """See ``contracts.plugins.Exporter``."""
        write_json_list(self._groups(nodes), output)

    def _groups(self, nodes: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for node in nodes:
            host = self._host(node)
            if host is not None:
                target = f"{host}:{self._port}" if self._port else host
                yield {"targets": [target], "labels": meta_labels(node)}


def meta_labels(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of the node that are known, as labels."""
    hardware = node.get("hardware") or {}
    fields = {name: node.get(name) for name in _TEXTS} | {name: hardware.get(name) for name in _HARDWARE}
    fields["bmc"] = _bmc(node)
    fields["maintenance"] = str(bool(node.get("maintenance"))).lower()
    fields |= {f"label_{_UNFIT.sub('_', key)}": value for key, value in (node.get("labels") or {}).items()}
    return {f"{_META}{name}": value for name, value in fields.items() if value is not None}


def _name(node: Mapping[str, Any]) -> str | None:
    return node["name"] or None


def _ip(node: Mapping[str, Any]) -> str | None:
    address = (node.get("hardware") or {}).get("ip")
    return None if address is None else _in_url(address)


def _bmc(node: Mapping[str, Any]) -> str | None:
    """Return the host of the BMC, as a URL would have it."""
    return _in_url(next((host for _, host in bmc_place.hosts(node.get("driver_info") or {})), ""))


def _in_url(host: str) -> str | None:
    if bmc_place.is_address(host):
        return f"[{host}]" if ":" in host else host
    return host if _HOST.match(host) else None


TARGETS: Final = {"name": _name, "bmc": _bmc, "ip": _ip}
"""Where a target's host comes from: the node's name, its BMC's address, or the machine's address."""
