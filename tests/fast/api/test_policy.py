"""Policies: the published defaults for each kind of caller, and the traps of comparing texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.api.auth.identity import ANYBODY, Identity, local
from ferroscope.api.auth.policy import RULES, Policy, PolicyTarget
from ferroscope.api.routes import ROUTES
from ferroscope.config.followed import ConfigFileError
from ferroscope.contrib.openstack import keystone
from ferroscope.runtime.system import SystemClock
from tests.support.manual_clock import ManualClock
from tests.support.rows import each

OWNED = PolicyTarget(owner="p-owner", lessee="p-lessee")


def identity(role: str, project: str | None = None) -> Identity:
    return local("somebody", "http_basic", [role], project=project)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy(SystemClock())


@pytest.mark.parametrize(
    ("name", "who", "target", "allowed"),
    [
        ("baremetal:node:delete", identity("admin"), OWNED, True),
        ("baremetal:node:delete", identity("member"), OWNED, False),
        ("baremetal:node:delete:self_owned_node", identity("admin", "p-owner"), OWNED, True),
        ("baremetal:node:delete:self_owned_node", identity("admin", "p-lessee"), OWNED, False),
        ("baremetal:node:get", identity("reader"), PolicyTarget(), True),
        ("baremetal:node:get", identity("reader", "p-owner"), OWNED, True),
        ("baremetal:node:get", identity("reader", "p-lessee"), OWNED, True),
        ("baremetal:node:get", identity("admin", "p-stranger"), OWNED, False),
        ("baremetal:node:get:last_error", identity("reader", "p-lessee"), OWNED, False),
        ("baremetal:node:set_provision_state", identity("member", "p-lessee"), OWNED, False),
        ("baremetal:node:set_provision_state", identity("manager", "p-lessee"), OWNED, True),
        ("baremetal:node:set_power_state", identity("member", "p-lessee"), OWNED, True),
        ("baremetal:node:update:owner", identity("admin", "p-owner"), OWNED, False),
        ("show_password", identity("admin"), OWNED, False),
        ("public_api", Identity(user="x", method="none"), PolicyTarget(), True),
        ("no:such:policy", identity("admin"), OWNED, False),
    ],
)
def test_defaults(policy: Policy, name: str, who: Identity, target: PolicyTarget, allowed: bool) -> None:
    assert policy.allows(name, who, target) is allowed


def test_a_node_without_an_owner_does_not_belong_to_those_without_a_project(policy: Policy) -> None:
    # In the language of policies both would be the text "None".
    who = local("operator", "http_basic", ["manager"])
    assert not policy.allows("baremetal:node:set_boot_device", Identity(user="u", method="token", roles=who.roles))
    assert not policy.allows("baremetal:port:delete", who)


def test_anybody_may_do_everything_but_see_passwords(policy: Policy) -> None:
    for rule in RULES:
        if rule.name not in ("show_password", "service_role") and "self_owned" not in rule.name:
            assert policy.allows(rule.name, ANYBODY), rule.name


def test_each_route_has_a_policy() -> None:
    assert {route.policy for route in ROUTES} <= {rule.name for rule in RULES}


def test_a_file_overrides_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text('"baremetal:node:delete": "role:member and system_scope:all"\n')
    changed = Policy(SystemClock(), file=str(file))
    assert changed.allows("baremetal:node:delete", identity("member"))
    assert not changed.allows("baremetal:node:create", identity("member"))


def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path) -> None:
    file, now = tmp_path / "policy.yaml", [0.0]
    clock = SystemClock()
    clock.monotonic = lambda: now[0]  # type: ignore[method-assign]
    file.write_text('"baremetal:node:delete": "role:member"\n')
    changed = Policy(clock, file=str(file))
    for text, creates in (
        ('"baremetal:node:create": "role:member"\n', True),
        ("- broken\n", True),
        ("# none\n", False),
    ):
        file.write_text(text)
        now[0] += 1.5
        assert not changed.allows("baremetal:node:delete", identity("member"))
        assert changed.allows("baremetal:node:create", identity("member")) is creates


def test_a_file_that_was_emptied_allows_nothing_that_it_forbade(tmp_path: Path) -> None:
    file, clock = tmp_path / "policy.yaml", ManualClock()
    file.write_text('"baremetal:node:delete": "!"\n')
    changed = Policy(clock, file=str(file))
    for text in ("", "\n", '"baremetal:node:delete": "!"\n'):
        file.write_text(text)
        clock.now += 1.5
        assert not changed.allows("baremetal:node:delete", identity("admin"))


def test_metrics_are_as_open_as_the_other_documents_or_as_their_own_policy_says(tmp_path: Path) -> None:
    nobody, file = Identity(user="x", method="none"), tmp_path / "policy.yaml"
    for text, documents, metrics in (
        ("", True, True),
        ('"public_api": "role:reader"\n', False, False),
        ('"ferroscope:metrics:get": "role:reader"\n', True, False),
        ('"public_api": "role:reader"\n"ferroscope:metrics:get": ""\n', False, True),
    ):
        file.write_text(text)
        policy = Policy(SystemClock(), file=str(file))
        assert (policy.allows("public_api", nobody), policy.allows("ferroscope:metrics:get", nobody)) == (
            documents,
            metrics,
        )


@pytest.mark.parametrize(
    "text",
    ['"a": "rule:"b', '"baremetal:node:get": "role:a or or"\n', '"baremetal:node:get": "rule:nowhere"\n', "- list\n"],
)
def test_a_broken_file_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(ConfigFileError, match="policy file"):
        Policy(SystemClock(), file=str(file))


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(ConfigFileError, match="not found"):
        Policy(SystemClock(), file="/nowhere/policy.yaml")


def test_higher_roles_imply_lower_ones() -> None:
    assert identity("admin").roles == {"admin", "manager", "member", "reader"}
    assert identity("service").roles == {"service"}
    assert identity("reader").system_scope
    assert not identity("reader", "p").system_scope


@pytest.mark.parametrize(
    ("check", "same"),
    [
        ("role:member", True),
        ("user_id:boss", False),
        ("rule:service_role or 'boss':%(user_name)s", False),
        ("http://policies.example/check", False),
    ],
)
def test_callers_have_the_same_rights_unless_a_check_may_be_about_a_user(
    tmp_path: Path, check: str, *, same: bool
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f'"baremetal:node:delete": "{check}"\n')
    policy = Policy(SystemClock(), file=str(file))
    one, other = (local(user, "http_basic", ["admin"]) for user in ("one", "other"))
    assert (policy.rights_of(one) == policy.rights_of(other)) is same
    assert policy.rights_of(one) != policy.rights_of(local("one", "http_basic", ["reader"]))
    assert policy.rights_of(one) != policy.rights_of(local("one", "http_basic", ["admin"], project="p"))


@each(
    ("project", "domain", "allowed"),
    [
        ("service", "Default", True),
        ("service", "evil", False),
        ("service", None, False),
        ("other", "Default", False),
    ],
)
def test_the_service_project_is_that_of_the_configured_domain(project: str, domain: str | None, allowed: bool) -> None:
    headers = {"X-User-Id": "u", "X-Roles": "service", "X-Project-Id": "1", "X-Project-Name": project}
    who = keystone.identity_of(headers | ({"X-Project-Domain-Name": domain} if domain else {}))
    for name in ("service_role", "baremetal:node:list_all", "ferroscope:audit:get", "ferroscope:lease:hold"):
        assert Policy(SystemClock()).allows(name, who, OWNED) is allowed, name
    cloud = Policy(SystemClock(), service_project="other", service_domain="evil")
    assert not cloud.allows("service_role", who)


def test_users_and_tokens_of_this_service_have_its_only_domain(policy: Policy) -> None:
    assert policy.allows("service_role", identity("service", "service"))
    assert not policy.allows("service_role", identity("service", "other"))
