"""The accounts of a simulated service, as its documents show them."""

from __future__ import annotations

from tests.support.redfish import USER
from tests.support.vendors.hardware import ROOT, Documents, collect, link, resource
from tests.support.vendors.logins import VIEWER, Logins
from tests.support.vendors.personality import Personality

_SERVICE = f"{ROOT}/AccountService"
# The slots of the accounts that have a name.
_SLOTS = {"2": USER, "3": VIEWER}


def path_of(of: Personality, user: str) -> str:
    """Return the path of a user's account."""
    names = {name: slot for slot, name in _SLOTS.items()}
    return f"{_collection(of)}/{names.get(user, '1') if of.accounts.slots else user}"


def _collection(of: Personality) -> str:
    return f"{_SERVICE}/Accounts" if of.accounts.below == "AccountService" else f"{ROOT}/Managers/{of.manager}/Accounts"


def add_accounts(found: Documents, of: Personality, logins: Logins) -> Documents:
    """Add the account service, its collection and its accounts."""
    rules = of.accounts
    found[ROOT] = found[ROOT] | {"AccountService": link(_SERVICE)}
    found[_SERVICE] = resource(
        "AccountService.v1_10_0.AccountService",
        _SERVICE,
        "AccountService",
        **({"MinPasswordLength": rules.least, "MaxPasswordLength": rules.most} if rules.told else {}),
        AccountLockoutThreshold=rules.lockout,
        Accounts=link(_collection(of)),
        **({"RequireChangePasswordAction": True} if rules.action else {}),
    )
    names = [str(slot) for slot in range(1, rules.slots + 1)] if rules.slots else [VIEWER, USER]
    collect(found, _collection(of), names, of)
    for name in names:
        path = f"{_collection(of)}/{name}"
        user = _SLOTS.get(name, "") if rules.slots else name
        target = {"target": f"{path}/Actions/ManagerAccount.ChangePassword"}
        found[path] = resource(
            "ManagerAccount.v1_8_0.ManagerAccount",
            path,
            name,
            UserName=user,
            Password=None,
            Enabled=bool(user),
            PasswordChangeRequired=user in logins.demanded,
            **({"Actions": {"#ManagerAccount.ChangePassword": target}} if rules.action else {}),
        )
    return found
