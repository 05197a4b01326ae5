"""Policies: which roles a call needs. Names and defaults are those of the APIs that we serve, plus our own.

They can be overridden in a policy file in oslo.policy's language. Source: the policy references of the Bare Metal and
the Introspection service; ``ferroscope policy list`` prints the table.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ferroscope.api.auth.identity import Identity
from ferroscope.config.followed import ConfigFileError, Followed, read_text
from ferroscope.contracts.store import Clock


class PolicyRule(NamedTuple):
    """``check`` is in oslo.policy's language; ``node.owner`` and ``node.lessee`` are projects of the node at hand."""

    name: str
    check: str
    description: str


def _any(*checks: str) -> str:
    return " or ".join(f"({check})" for check in checks)


# Personas of the Bare Metal service's published policies. Project roles count for the owner or lessee of a node only.
_SYSTEM_ADMIN: Final = "role:admin and system_scope:all"
_SYSTEM_MEMBER: Final = "(role:member and system_scope:all) or rule:service_role"
_SYSTEM_READER: Final = "(role:reader and system_scope:all) or (role:service and system_scope:all) or rule:service_role"
_SYSTEM_SERVICE: Final = "role:service and system_scope:all"
_OWNER: Final = "project_id:%(node.owner)s"
_LESSEE: Final = "project_id:%(node.lessee)s"
_OWNER_OR_LESSEE: Final = f"({_OWNER} or {_LESSEE})"
_OWNER_SERVICE: Final = f"role:service and {_OWNER}"
_OWNER_ADMIN: Final = f"role:admin and {_OWNER}"
_OWNER_MANAGER: Final = f"role:manager and {_OWNER}"

_MEMBER: Final = _any(_SYSTEM_MEMBER, f"role:member and {_OWNER_OR_LESSEE}", _SYSTEM_SERVICE)
_READER: Final = _any(_SYSTEM_READER, f"role:reader and {_OWNER_OR_LESSEE}", _OWNER_SERVICE)
_OWNER_READER: Final = _any(_SYSTEM_READER, _SYSTEM_SERVICE, f"role:reader and {_OWNER}", _OWNER_SERVICE)
_OWNER_MEMBER: Final = _any(_SYSTEM_MEMBER, _SYSTEM_SERVICE, f"role:member and {_OWNER}", _OWNER_SERVICE)
_OWNER_ADMINS: Final = _any(_SYSTEM_MEMBER, _SYSTEM_SERVICE, _OWNER_ADMIN, _OWNER_MANAGER, _OWNER_SERVICE)
_ADMIN_OR_OWNER_ADMINS: Final = _any(_SYSTEM_ADMIN, _SYSTEM_SERVICE, _OWNER_ADMIN, _OWNER_MANAGER, _OWNER_SERVICE)
_OPERATOR: Final = _any(
    _SYSTEM_MEMBER,
    _SYSTEM_SERVICE,
    f"role:member and {_OWNER}",
    f"role:admin and {_LESSEE}",
    f"role:manager and {_LESSEE}",
    _OWNER_SERVICE,
)
_ANY_READER: Final = "role:reader or role:service"
# The Introspection service's defaults allow an admin of any project everything. Here projects own nodes, so an admin
# of a project may do what concerns the project's own nodes. Rules concern all nodes.
_RULE_ADMIN: Final = _any(_SYSTEM_ADMIN, _SYSTEM_SERVICE, "rule:service_role")
_INTROSPECTION_ADMIN: Final = _any(_SYSTEM_ADMIN, _SYSTEM_SERVICE, "rule:service_role", _OWNER_ADMIN, _OWNER_SERVICE)
_INTROSPECTION_READER: Final = _any(_SYSTEM_READER, _OWNER_ADMIN, _OWNER_SERVICE)
_EVERYBODY: Final = ""
_NOBODY: Final = "!"

# fmt: off
RULES: Final[tuple[PolicyRule, ...]] = (
    PolicyRule("public_api", _EVERYBODY, "Version documents, health check and OpenAPI document"),
    PolicyRule("service_role",
         "role:service and project_name:%(config.service_project_name)s and "
         "project_domain_name:%(config.service_project_domain_name)s",
         "A service user of the cloud, as the other rules use it"),
    PolicyRule("show_password", _NOBODY, "See passwords in driver_info instead of ******"),

    PolicyRule("baremetal:node:create", _any(_SYSTEM_ADMIN, _SYSTEM_SERVICE), "Enroll or approve a node"),
    PolicyRule("baremetal:node:create:self_owned_node", "(role:admin) or (role:service)",
         "Enroll a node that the caller's project owns"),
    PolicyRule("baremetal:node:list", _ANY_READER, "List the nodes of the caller's project"),
    PolicyRule("baremetal:node:list_all", _SYSTEM_READER, "List all nodes"),
    PolicyRule("baremetal:node:get", _READER, "Get a node"),
    PolicyRule("baremetal:node:get:last_error", _OWNER_READER, "See last_error of a node"),
    PolicyRule("baremetal:node:get:reservation", _OWNER_READER, "See reservation of a node"),
    PolicyRule("baremetal:node:get:driver_internal_info", _OWNER_READER, "See driver_internal_info of a node"),
    PolicyRule("baremetal:node:get:driver_info", _OWNER_READER, "See driver_info of a node, secrets masked"),
    PolicyRule("ferroscope:bmc:get_answers", _SYSTEM_READER,
         "See what a BMC answered when a call of it failed; others see the reason code and the advice"),
    PolicyRule("baremetal:node:update", _MEMBER, "Update a node"),
    PolicyRule("baremetal:node:update_extra", _MEMBER, "Update extra of a node"),
    PolicyRule("baremetal:node:update:driver_info", _OWNER_MEMBER, "Update driver_info of a node"),
    PolicyRule("baremetal:node:update:properties", _OWNER_MEMBER, "Update properties of a node"),
    PolicyRule("baremetal:node:update:name", _OWNER_MEMBER, "Rename a node"),
    PolicyRule("baremetal:node:update:instance_uuid", _OWNER_MEMBER, "Update instance_uuid of a node"),
    PolicyRule("baremetal:node:update:owner", _SYSTEM_MEMBER, "Change the owner of a node"),
    PolicyRule("baremetal:node:update:lessee", _OWNER_MEMBER, "Change the lessee of a node"),
    PolicyRule("baremetal:node:update:chassis_uuid", _SYSTEM_ADMIN, "Change the chassis of a node"),
    PolicyRule("baremetal:node:update:driver_interfaces", _OWNER_ADMINS, "Change driver and interfaces of a node"),
    PolicyRule("baremetal:node:update:conductor_group", _SYSTEM_MEMBER, "Change the conductor group of a node"),
    PolicyRule("baremetal:node:update:disable_power_off", _SYSTEM_ADMIN, "Change disable_power_off of a node"),
    PolicyRule("baremetal:node:update_instance_info", _OPERATOR, "Update instance_info and instance_name of a node"),
    PolicyRule("baremetal:node:update:network_data", _OWNER_MEMBER, "Update network_data of a node"),
    PolicyRule("baremetal:node:update:shard", _SYSTEM_ADMIN, "Change the shard of a node"),
    PolicyRule("baremetal:node:update:parent_node", _SYSTEM_MEMBER, "Change the parent of a node"),
    PolicyRule("baremetal:node:update:retired", _OWNER_MEMBER, "Retire a node"),
    PolicyRule("baremetal:node:disable_cleaning", _SYSTEM_ADMIN, "Set automated_clean of a node to false"),
    PolicyRule("ferroscope:label:set", _OWNER_MEMBER, "Set labels of a node, which select what hardware is expected"),
    PolicyRule("baremetal:node:delete", _SYSTEM_ADMIN, "Delete a node; reject a discovered one"),
    PolicyRule("baremetal:node:delete:self_owned_node", _OWNER_ADMIN, "Delete a node that the caller's project owns"),
    PolicyRule("baremetal:node:validate", _OPERATOR, "Validate a node"),
    PolicyRule("baremetal:node:set_maintenance", _OPERATOR, "Set maintenance, by either way"),
    PolicyRule("baremetal:node:clear_maintenance", _OPERATOR, "Clear maintenance, by either way"),
    PolicyRule("baremetal:node:get_boot_device", _OWNER_ADMINS, "Get the boot device"),
    PolicyRule("baremetal:node:set_boot_device", _OWNER_ADMINS, "Set the boot device"),
    PolicyRule("baremetal:node:vmedia:get", _READER, "List the virtual media of a machine"),
    PolicyRule("baremetal:node:vmedia:attach", _MEMBER, "Attach an image to a virtual drive of a machine"),
    PolicyRule("baremetal:node:vmedia:detach", _MEMBER, "Detach images from the virtual drives of a machine"),
    PolicyRule("baremetal:node:get_states", _READER, "Get the states of a node"),
    PolicyRule("baremetal:node:set_power_state", _MEMBER, "Switch the power of a machine"),
    PolicyRule("baremetal:node:set_provision_state", _OPERATOR, "Manage, inspect, abort and provide a node"),
    PolicyRule("baremetal:node:traits:list", _READER, "List traits"),
    PolicyRule("baremetal:node:traits:set", _OWNER_ADMINS, "Add a trait to a node, or replace all"),
    PolicyRule("baremetal:node:traits:delete", _OWNER_ADMINS, "Remove traits from a node"),
    PolicyRule("baremetal:node:firmware:get", _READER, "List the firmware components of a node"),
    PolicyRule("baremetal:node:history:get", _OWNER_READER, "See history and timeline of a node"),
    PolicyRule("baremetal:node:inventory:get", _OWNER_READER, "See inventories and the ramdisk's log"),
    PolicyRule("baremetal:node:ipa_heartbeat", _EVERYBODY, "Heartbeat of a ramdisk, proven by its agent token"),

    PolicyRule("baremetal:port:list", _ANY_READER, "List the ports of nodes of the caller's project"),
    PolicyRule("baremetal:port:list_all", _SYSTEM_READER, "List all ports"),
    PolicyRule("baremetal:port:get", _READER, "Get a port"),
    PolicyRule("baremetal:port:create", _ADMIN_OR_OWNER_ADMINS, "Create a port"),
    PolicyRule("baremetal:port:update", _OWNER_ADMINS, "Update a port"),
    PolicyRule("baremetal:port:delete", _ADMIN_OR_OWNER_ADMINS, "Delete a port"),

    PolicyRule("baremetal:portgroup:list", _ANY_READER, "List the port groups of nodes of the caller's project"),
    PolicyRule("baremetal:portgroup:list_all", _SYSTEM_READER, "List all port groups"),
    PolicyRule("baremetal:portgroup:get", _READER, "Get a port group"),
    PolicyRule("baremetal:portgroup:create", _ADMIN_OR_OWNER_ADMINS, "Create a port group"),
    PolicyRule("baremetal:portgroup:update", _OWNER_ADMINS, "Update a port group"),
    PolicyRule("baremetal:portgroup:delete", _ADMIN_OR_OWNER_ADMINS, "Delete a port group"),

    PolicyRule("baremetal:chassis:get", _SYSTEM_READER, "List chassis"),
    PolicyRule("baremetal:chassis:create", _SYSTEM_ADMIN, "Create a chassis"),
    PolicyRule("baremetal:chassis:update", _SYSTEM_MEMBER, "Update a chassis"),
    PolicyRule("baremetal:chassis:delete", _SYSTEM_ADMIN, "Delete a chassis"),

    PolicyRule("baremetal:conductor:get", _SYSTEM_READER, "List the hosts with workers"),
    PolicyRule("baremetal:shards:get", _SYSTEM_READER, "List shards"),

    PolicyRule("baremetal:allocation:list", _ANY_READER, "List allocations of the caller's project: there are none"),
    PolicyRule("baremetal:allocation:list_all", _SYSTEM_READER, "List all allocations: there are none"),
    PolicyRule("baremetal:deploy_template:get", _SYSTEM_READER, "List deploy templates: there are none"),
    PolicyRule("baremetal:runbook:list", _ANY_READER, "List the runbooks of the caller's project: there are none"),
    PolicyRule("baremetal:runbook:list_all", _SYSTEM_READER, "List all runbooks: there are none"),
    PolicyRule("baremetal:volume:list", _ANY_READER, "List volumes of nodes of the caller's project: there are none"),
    PolicyRule("baremetal:volume:list_all", _SYSTEM_READER, "List all volumes: there are none"),
    PolicyRule("baremetal:node:vif:list", _READER, "List the VIFs of a node: there are none"),
    PolicyRule("baremetal:node:bios:get", _READER, "List the BIOS settings of a node: there are none"),

    PolicyRule("baremetal:driver:get", _SYSTEM_READER, "List drivers"),
    PolicyRule("baremetal:driver:get_properties", _SYSTEM_READER, "List the properties of a driver"),
    PolicyRule("baremetal:driver:ipa_lookup", _EVERYBODY, "Lookup by a ramdisk"),
    PolicyRule("baremetal:driver:ipa_continue_inspection", _EVERYBODY, "Callback of a ramdisk"),

    PolicyRule("baremetal:inspection_rule:get", _SYSTEM_READER, "List inspection rules"),
    PolicyRule("baremetal:inspection_rule:create", _SYSTEM_ADMIN, "Create an inspection rule"),
    PolicyRule("baremetal:inspection_rule:update", _SYSTEM_ADMIN, "Update an inspection rule"),
    PolicyRule("baremetal:inspection_rule:delete", _SYSTEM_ADMIN, "Delete inspection rules"),
    PolicyRule("baremetal:inspection_rule:explain", _SYSTEM_ADMIN, "Dry-run inspection rules on stored data"),

    PolicyRule("introspection:continue", _EVERYBODY, "Callback of a ramdisk"),
    PolicyRule("introspection:status", _INTROSPECTION_READER, "Get the status of introspections"),
    PolicyRule("introspection:start", _INTROSPECTION_ADMIN, "Start an introspection"),
    PolicyRule("introspection:abort", _INTROSPECTION_ADMIN, "Abort an introspection"),
    PolicyRule("introspection:data", _INTROSPECTION_ADMIN, "Get introspection data"),
    PolicyRule("introspection:reapply", _INTROSPECTION_ADMIN, "Reapply introspection to stored data"),
    PolicyRule("introspection:rule:get", _RULE_ADMIN, "Get introspection rules"),
    PolicyRule("introspection:rule:create", _RULE_ADMIN, "Create an introspection rule"),
    PolicyRule("introspection:rule:delete", _RULE_ADMIN, "Delete introspection rules"),

    PolicyRule("ferroscope:secret:reference", _any(_SYSTEM_MEMBER, _SYSTEM_SERVICE),
         "Set references to secrets (secret://) in driver_info, which are sent to the BMC of the node"),
    PolicyRule("ferroscope:expectation:get", _SYSTEM_READER, "Show what hardware is expected"),
    PolicyRule("ferroscope:expectation:set", _SYSTEM_ADMIN, "Set the expected hardware, and check nodes against it"),
    PolicyRule("ferroscope:inbox:get", _SYSTEM_READER, "List rejected machines, and machines whose calls were refused"),
    PolicyRule("ferroscope:metrics:get", "rule:public_api", "Get metrics, from the api and from the metrics port"),
    PolicyRule("ferroscope:status:get", _SYSTEM_READER, "See the status of the service"),
    PolicyRule("ferroscope:audit:get", _SYSTEM_READER, "See audit events"),
    PolicyRule("ferroscope:search", _ANY_READER, "Search nodes by hardware; others than one's own need node:list_all"),
    PolicyRule("ferroscope:inspection:reapply", _OPERATOR, "Process stored data again"),
    PolicyRule("ferroscope:lease:list", _ANY_READER, "List the leases that the caller may see"),
    PolicyRule("ferroscope:lease:get", _SYSTEM_READER, "See leases"),
    PolicyRule("ferroscope:lease:hold", _any(_SYSTEM_MEMBER, _SYSTEM_SERVICE),
         "Acquire, renew and release leases; %(lease.name)s and %(lease.prefix)s, up to the slash, may be checked"),
    PolicyRule("ferroscope:lease:forget", _SYSTEM_ADMIN, "Delete the name of a lease, also of one that is held"),
)
# fmt: on


class PolicyTarget(NamedTuple):
    """What a call is about: the projects of the node, or the name of the lease; None where there are none."""

    owner: str | None = None
    lessee: str | None = None
    lease: str | None = None


_NO_TARGET: Final = PolicyTarget()
# Seconds after which decisions are made anew.
_CACHE_SECONDS: Final = 5.0
_MAX_DECISIONS: Final = 10_000


class Policy:
    """Decides with oslo.policy. One instance serves all threads.

    Decisions are remembered for some seconds: a list asks for thousands, and evaluating one takes 50 microseconds.
    """

    def __init__(
        self, clock: Clock, *, file: str = "", service_project: str = "service", service_domain: str = "Default"
    ) -> None:
        """``service_domain``: that of the service project. ``ConfigFileError``: the file is unreadable or wrong."""
        self._clock = clock
        self._service_project, self._service_domain = service_project, service_domain
        self._lock = threading.Lock()
        self._decisions: dict[tuple[str, Identity, PolicyTarget], bool] = {}
        self._until = 0.0
        self._file = file
        self._running = False
        files = [Path(file)] if file else []
        self._followed = Followed("policies", files, self._read, clock=clock.monotonic)
        self._checks = self._followed.value
        self._running = True

    def _read(self) -> _PolicyChecks:
        if self._running and self._file and not Path(self._file).read_bytes().strip():
            # The file is being written, or the disk is full. That must not allow what was forbidden.
            raise ConfigFileError(
                f"policy file {self._file} is empty: to have the defaults again, leave a comment in it"
            )
        return _PolicyChecks(_enforcer(self._file))

    def allows(self, name: str, identity: Identity, target: PolicyTarget = _NO_TARGET) -> bool:
        """Whether ``identity`` may do what the policy ``name`` guards; an unknown name is refused."""
        key = (name, identity, target)
        with self._lock:
            now, checks = self._clock.monotonic(), self._followed.value
            if now >= self._until or len(self._decisions) >= _MAX_DECISIONS or checks is not self._checks:
                self._checks = checks
                self._decisions.clear()
                self._until = now + _CACHE_SECONDS
            decision = self._decisions.get(key)
            if decision is None:
                decision = self._decisions[key] = self._evaluate(name, identity, target)
        return decision

    def _evaluate(self, name: str, identity: Identity, target: PolicyTarget) -> bool:
        # Absent values are left out: oslo.policy compares texts, and "None" would be equal to "None".
        values = {"node.owner": target.owner, "node.lessee": target.lessee, "lease.name": target.lease}
        if target.lease:
            values["lease.prefix"] = target.lease.partition("/")[0]
        values = {name: value for name, value in values.items() if value}
        values["config.service_project_name"] = self._service_project
        values["config.service_project_domain_name"] = self._service_domain
        credentials = identity.credentials()
        if identity.project_name and identity.method != "keystone":
            # The operator of this service has set the project; only Keystone has several domains.
            credentials["project_domain_name"] = self._service_domain
        return bool(self._checks.enforcer.enforce(name, values, credentials))

    def rights_of(self, identity: Identity) -> Identity:
        """Return the part of the identity that decides: callers with equal rights may do the same."""
        if self._followed.value.name_users:
            return identity
        return msgspec.structs.replace(identity, user="", user_id="")


class NoPolicy(Policy):
    """Allows everything that some default allows; for services without authentication. Needs no oslo.policy."""

    def __init__(self) -> None:
        """Nothing is read."""

    def allows(self, name: str, identity: Identity, target: PolicyTarget = _NO_TARGET) -> bool:
        return name not in _NOBODYS

    def rights_of(self, identity: Identity) -> Identity:
        return identity


_NOBODYS: Final = frozenset(rule.name for rule in RULES if rule.check == _NOBODY)


# Checks that may tell one user from another with the same roles: by name, or by asking a server that knows both.
_ABOUT_USERS: Final = ("user_id", "user_name", "http:", "https:")


class _PolicyChecks:
    """oslo.policy with all checks; ``name_users``: whether any of them may be about a user."""

    def __init__(self, enforcer: Any) -> None:
        self.enforcer = enforcer
        self.name_users = any(word in str(check) for check in enforcer.rules.values() for word in _ABOUT_USERS)


def _enforcer(file: str) -> Any:
    from oslo_config import cfg
    from oslo_policy import policy

    conf = cfg.ConfigOpts()
    conf([], project="ferroscope", default_config_files=[], default_config_dirs=[])
    enforcer = policy.Enforcer(conf, policy_file="/nonexistent", use_conf=False)
    enforcer.register_defaults([policy.RuleDefault(rule.name, rule.check, rule.description) for rule in RULES])
    try:
        checks = overrides(file)
        enforcer.set_rules(policy.Rules.from_dict(checks), use_conf=False)
        for name, check in checks.items():
            if str(enforcer.rules[name]) == _NOBODY != check.strip():  # how oslo.policy treats what it cannot parse
                raise ConfigFileError(f"policy file {file}: the check of {name} cannot be understood: {check!r}")
        for default in enforcer.registered_rules.values():
            enforcer.rules.setdefault(default.name, default.check)
        enforcer.check_rules(raise_on_violation=True)
    except (policy.InvalidDefinitionError, ValueError) as exc:
        raise ConfigFileError(f"policy file {file}: {exc}") from exc
    return enforcer


def unknown_policies(checks: Mapping[str, str]) -> list[str]:
    """Return the entries of a file that have no effect, each with the name that was probably meant.

    A misspelled policy keeps its default. It is not an error, because the file may be Ironic's, which has more
    policies. A name that a check refers to (``rule:NAME``) is the file's own.
    """
    names = [rule.name for rule in RULES]
    own = {name for check in checks.values() for name in _REFERENCE.findall(check)}
    texts = []
    for name in checks.keys() - own - set(names):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
        texts.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return sorted(texts)


_REFERENCE: Final = re.compile(r"rule:([^\s()]+)")


def overrides(file: str) -> dict[str, str]:
    """Return the checks by name; ``ConfigFileError``. oslo.policy itself would ignore a file that it cannot read."""
    import yaml

    if not file:
        return {}
    try:
        checks = yaml.safe_load(read_text(Path(file))) or {}
    except FileNotFoundError:
        raise ConfigFileError(f"policy file {file} not found: create it, or unset [oslo_policy] policy_file") from None
    except (ConfigFileError, OSError, yaml.YAMLError) as exc:
        raise ConfigFileError(f"policy file {file}: {exc}") from exc
    if not isinstance(checks, dict) or not all(isinstance(part, str) for pair in checks.items() for part in pair):
        raise ConfigFileError(f"policy file {file}: expected lines of the form 'NAME: CHECK', both of them text")
    return checks
