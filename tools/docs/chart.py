"""What of the Helm chart is generated: what its values may be, with every option that the code declares, and alerts.

A misspelt or impossible option is then refused by ``helm install``, and not by a pod. Options that are secret have no
place in it: a ConfigMap is for everybody to read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, get_args

from oslo_config import types

from ferroscope.config.sections import options as declared_options
from ferroscope.config.sections import sections
from ferroscope.config.service_options import LogLevel
from ferroscope.contrib.kubernetes.options import CLUSTER_NAME, UNHEALTHY_LIMIT

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 1}
_PORT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 65535}
_WORDS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
_ANYTHING: Final[Schema] = {"type": "object"}
_CONFIG: Final[Schema] = {"$ref": "#/$defs/config"}


_URL: Final = r"^https?://[^/?#\s]\S*$"
_NETWORK: Final = r"^[0-9A-Fa-f]*[:.][0-9A-Fa-f:.]*(/[0-9]{1,3})?$"
_DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
# What only a look at the whole configuration refuses; the same in the form of each value. Empty is possible, too.
_PATTERNS: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "api.public_url", "inspector.callback_endpoint_override", "inspector.forward_unknown_to",
            "inspection_rules.api_call_targets", "s3.endpoint", "swift.auth_url", "swift.endpoint", "registry.url",
            "ironic.endpoint_override", "ironic.auth_url", "boot.callback_url", "boot.machine_script_url",
            "boot.http_url", "failover.api_servers", "tracing.endpoint", "keystone_authtoken.www_authenticate_uri",
            "keystone_authtoken.auth_url",
        ),
        _URL,
    ),
    **dict.fromkeys(("api.trusted_proxies", "drivers.bmc_networks", "notifications.networks"), _NETWORK),
    "api.lease_quotas": "^[0-9]+$",
    "coordination.namespace": _DNS_LABEL,
    "drivers.ca_directory": "^/",
    "failover.cluster": f"^({CLUSTER_NAME.pattern})$",
    "failover.label_namespaces": _DNS_LABEL,
    "failover.max_unhealthy": f"^({UNHEALTHY_LIMIT.pattern})$",
    "inspector.ramdisk_iso": rf"^/|{_URL}",
    "log.levels": f"^({'|'.join(get_args(LogLevel))})$",
    "pxe_filter.interfaces": r"^[^\s/:]{1,15}$",
}  # fmt: skip


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return found | ({"required": list(required)} if required else {})


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _form(pattern: str, **more: Any) -> Schema:
    return {"type": "string", "pattern": pattern, **more}


def _optional(pattern: str) -> Schema:
    return _form(f"^$|{pattern}")


_OBJECT_NAME: Final = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_LABEL_VALUES: Final[Schema] = {
    "type": "object",
    "additionalProperties": _form("^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$"),
}
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY: Final[Schema] = {
    "type": ["string", "number"],
    "pattern": r"^([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$",
    "minimum": 0,
}
_QUANTITIES: Final[Schema] = {"type": "object", "additionalProperties": _QUANTITY}
_RESOURCES: Final = _object(requests=_QUANTITIES, limits=_QUANTITIES, claims=_list(_ANYTHING))
_TOLERATION: Final = _object(
    key=_TEXT, operator={"enum": ["Exists", "Equal", "Lt", "Gt"]}, value=_TEXT,
    effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}, tolerationSeconds={"type": "integer"},
)  # fmt: skip
_AFFINITY: Final = _object(nodeAffinity=_ANYTHING, podAffinity=_ANYTHING, podAntiAffinity=_ANYTHING)
_NODE_POLICY: Final[Schema] = {"enum": ["Honor", "Ignore"]}
_SPREAD: Final = _object(
    ("topologyKey", "maxSkew", "whenUnsatisfiable"),
    topologyKey=_NAME, maxSkew=_COUNT, whenUnsatisfiable={"enum": ["DoNotSchedule", "ScheduleAnyway"]},
    minDomains=_COUNT, labelSelector=_ANYTHING, matchLabelKeys=_list(_NAME), nodeAffinityPolicy=_NODE_POLICY,
    nodeTaintsPolicy=_NODE_POLICY,
)  # fmt: skip


def _role(**more: Schema) -> Schema:
    return _object(
        config=_CONFIG, resources=_RESOURCES, nodeSelector=_LABEL_VALUES, tolerations=_list(_TOLERATION),
        priorityClassName=_optional(_OBJECT_NAME), annotations=_WORDS, **more,
    )  # fmt: skip


_SPREADS: Final = {"affinity": _AFFINITY, "topologySpreadConstraints": _list(_SPREAD)}
_EGRESS: Final = _object(("port", "protocol"), port=_PORT, protocol={"enum": ["TCP", "UDP", "SCTP"]})
_SERVICE: Final = _object(type={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, annotations=_WORDS)
_IMAGE: Final = _object(
    repository=_form(r"^[A-Za-z0-9][-A-Za-z0-9._:]*(/[A-Za-z0-9][-A-Za-z0-9._]*)*$"),
    tag=_optional("^[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}$"),
    digest=_optional("^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"),
    pullPolicy={"enum": ["", "Always", "IfNotPresent", "Never"]}, pullSecrets=_list(_form(_OBJECT_NAME)),
)  # fmt: skip
_FILE: Final = _object(("secret", "path"), secret=_form(_OBJECT_NAME), path=_form("^/."))
_VALUES: Final[dict[str, Schema]] = {
    "image": _IMAGE,
    "fullnameOverride": {"type": "string", "pattern": "^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$", "maxLength": 40},
    "database": _object(secret=_form(_OBJECT_NAME), port=_PORT),
    "users": _object(secret=_optional(_OBJECT_NAME)),
    "secretFiles": _list(_FILE),
    "checkSecrets": _FLAG,
    "config": _CONFIG,
    "api": _role(replicas=_COUNT, service=_SERVICE, **_SPREADS),
    "worker": _role(replicas=_COUNT, **_SPREADS),
    "failover": _role(enabled=_FLAG, replicas=_COUNT, **_SPREADS),
    "pxeFilter": _role(enabled=_FLAG, namespace=_form(_DNS_LABEL)),
    "migration": _object(enabled=_FLAG, resources=_RESOURCES),
    "networkPolicies": _object(enabled=_FLAG, egress=_list(_EGRESS)),
    "monitors": _object(enabled=_FLAG, interval=_form("^[1-9][0-9]*(ms|s|m|h)$")),
    "prometheusRule": _object(enabled=_FLAG, labels=_LABEL_VALUES),
    "global": _ANYTHING,  # which Helm adds, when this chart is a part of another one
}


def _has(path: str, value: Schema) -> Schema:
    """Return the schema of values that have this one; ``path`` has dots."""
    for name in reversed(path.split(".")):
        value = {"type": "object", "required": [name], "properties": {name: value}}
    return value


# Of the controller, what is in its own config goes before what is in that of all roles.
_OF_CONTROLLER: Final = "failover.config.failover"
_MODE_LABEL: Final[Schema] = {
    "anyOf": [
        _has(f"{_OF_CONTROLLER}.mode", {"const": "label"}),
        {
            "allOf": [
                _has("config.failover.mode", {"const": "label"}),
                {"not": _has(f"{_OF_CONTROLLER}.mode", {"const": "proof"})},
            ]
        },
    ]
}
_SELECTS_PODS: Final[Schema] = {
    "allOf": [
        {"anyOf": [_has(f"{place}.{option}", filled) for place in (_OF_CONTROLLER, "config.failover")]}
        for option, filled in (("label_selector", {"minProperties": 1}), ("label_namespaces", {"minItems": 1}))
    ]
}


def schema() -> str:
    """Return the file."""
    described = {
        section: _object(**{one.name: _option(section, one) for one in declared_options()[section] if not one.secret})
        for section in sections()
    }
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Generated by make docs from ferroscope.config.options: do not edit.",
        **_object(**_VALUES),
        "if": _MODE_LABEL,
        "then": _SELECTS_PODS,
        "$defs": {"config": _object(**described)},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _option(section: str, option: Any) -> Schema:
    pattern = _PATTERNS.get(f"{section}.{option.name}")
    if pattern is not None and option.default == "":
        pattern = f"^$|{pattern}"
    found = _type(option.type, pattern)
    return {**(_list(found) if option.multi else found), "description": option.help}


def _type(kind: Any, pattern: str | None = None) -> Schema:
    """Return what a value of a type of oslo.config looks like in YAML; ``pattern``: what its texts match."""
    if isinstance(kind, types.Integer | types.Float):
        found: Schema = {"type": "integer" if isinstance(kind, types.Integer) else "number"}
        limits = {"minimum": kind.min, "maximum": kind.max}
        return found | {name: value for name, value in limits.items() if value is not None}
    if isinstance(kind, types.Boolean):
        return _FLAG
    if isinstance(kind, types.List):
        return _list(_type(kind.item_type, pattern))
    if isinstance(kind, types.Dict):
        values: Schema = {"type": ["string", "number", "boolean"]} if pattern is None else _matching(pattern)
        return {"type": "object", "additionalProperties": values}
    if isinstance(kind, types.String) and kind.choices:
        return {"enum": list(kind.choices)}
    regex = getattr(kind, "regex", None)
    if regex:  # as JSON Schema writes it
        return _TEXT | {"pattern": regex.pattern.replace(r"\A", "^").replace(r"\Z", "$")}
    return _TEXT if pattern is None else _matching(pattern)


def _matching(pattern: str) -> Schema:
    """Return the schema of texts that match, written as a number where they are one: ``--set`` makes 3 a number."""
    if not re.search(pattern, "1"):
        return _TEXT | {"pattern": pattern}
    return {"type": ["string", "integer"], "pattern": pattern, "minimum": 0 if re.search(pattern, "0") else 1}


_RULES: Final = Path(__file__).parents[2] / "deploy/prometheus/ferroscope.rules.yml"
_GENERATED: Final = "# Generated by make docs from deploy/prometheus/ferroscope.rules.yml: do not edit.\n"


def rules() -> str:
    """Return the alerts for the chart, which can include no file outside of its directory."""
    return _GENERATED + _RULES.read_text(encoding="utf-8")


def prometheus_rule() -> str:
    """Return the alerts as a resource of the Prometheus Operator."""
    head = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: ferroscope
  namespace: ferroscope
spec:
"""
    lines = _RULES.read_text(encoding="utf-8").splitlines(keepends=True)
    return _GENERATED + head + "".join(f"  {line}" if line.strip() else line for line in lines)
