"""The identity of a caller, as policies, the audit log and timelines need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Method = Literal["none", "http_basic", "token", "keystone", "certificate"]

# Keystone lets a role imply the lower ones; identities that do not come from Keystone get the same.
_IMPLIED: Final = {
    "admin": ("admin", "manager", "member", "reader"),
    "manager": ("manager", "member", "reader"),
    "member": ("member", "reader"),
    "reader": ("reader",),
    "service": ("service",),
}
ROLES: Final = tuple(_IMPLIED)


class PasswordLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A user name and a password; without ``project`` and ``system``, for the user's default project.

    ``domain``: that of the user and of the project.
    """

    user: str
    password: str
    project: str = ""
    domain: str = "Default"
    system: bool = False

    def __repr__(self) -> str:
        return f"PasswordLogin(user={self.user!r})"  # never the password, not even in a traceback


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """``user`` is a readable name. ``user_id`` and ``project_id`` are Keystone's; otherwise the name and None.

    ``domain_id`` and ``domain_name``: the project's domain in Keystone; project names are unique within a domain only.

    ``system_scope``: the roles hold for the whole service and not only for one project's nodes.
    """

    user: str
    method: Method
    roles: frozenset[str] = frozenset()
    user_id: str = ""
    project_id: str | None = None
    project_name: str | None = None
    domain_id: str | None = None
    domain_name: str | None = None
    system_scope: bool = False

    @property
    def principal(self) -> str:
        """The name under which limits count this caller; "" without authentication."""
        return "" if self.method == "none" else f"{self.method}:{self.user_id or self.user}"

    def credentials(self) -> dict[str, object]:
        """Return what oslo.policy checks: ``role:``, ``project_id:``, ``system_scope:`` and so on."""
        values = {
            "user_id": self.user_id or self.user,
            "user_name": self.user,
            "project_id": self.project_id,
            "project_name": self.project_name,
            "project_domain_id": self.domain_id,
            "project_domain_name": self.domain_name,
            "system_scope": "all" if self.system_scope else None,
        }
        # Absent values are left out: oslo.policy compares texts, and "None" would be equal to "None".
        return {name: value for name, value in values.items() if value} | {"roles": sorted(self.roles)}

    def __str__(self) -> str:
        return self.user if self.project_name is None else f"{self.user} (project {self.project_name})"


ANYBODY: Final = Identity(
    user="anonymous", method="none", roles=frozenset((*_IMPLIED["admin"], "service")), system_scope=True
)
"""A caller without authentication (``[api] auth_strategy = noauth``): everything is allowed."""


def local(user: str, method: Method, roles: Iterable[str], *, project: str | None = None) -> Identity:
    """Return an identity that this service manages itself; without a project its roles hold for the whole service."""
    implied = frozenset(role for role_name in roles for role in _IMPLIED.get(role_name, (role_name,)))
    return Identity(
        user=user, method=method, roles=implied, project_id=project, project_name=project, system_scope=project is None
    )
