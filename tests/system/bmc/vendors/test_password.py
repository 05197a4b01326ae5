"""Changing the account's password, with the BMC of each vendor, and with what BMCs are known to do wrong."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors.dell import IDRAC9
from tests.support.vendors.logins import VIEWER
from tests.support.vendors.openbmc import ALL as OPENBMC
from tests.support.vendors.personality import Accounts, Etags, Sessions
from tests.support.vendors.service import Service, node_of, serving

NEW = "new-Pass.word_12"
PLAIN = OPENBMC[0]


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """sushy logs what it sends and what is answered."""
    with caplog.at_level("DEBUG"):
        yield
    assert [record for record in caplog.records if record.name.startswith("sushy")] == []
    assert not any(secret in caplog.text for secret in (NEW, PASSWORD))


def fails(bmc: RedfishBmc, service: Service, password: str = NEW, **more: Any) -> BmcError:
    """Return the error of the change, which has neither password in it."""
    with pytest.raises(BmcError) as caught:
        bmc.set_password(node_of(service, **more), password)
    said = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert password not in said
    assert PASSWORD not in said
    return caught.value


def serving_with(**changes: Any) -> Any:
    return serving(msgspec.structs.replace(PLAIN, **changes))


def test_the_new_password_is_proven_and_the_other_accounts_are_left_alone(service: Service, bmc: RedfishBmc) -> None:
    bmc.set_password(node_of(service), NEW)
    assert service.logins.passwords == {USER: NEW, VIEWER: PASSWORD}
    assert (service.logins.changes, service.logins.rejected) == (1, service.personality.accounts.late)
    bmc.log_in(node_of(service, password=NEW))
    assert bmc.get_power(node_of(service, password=NEW)) is Power.OFF


def test_a_wrong_password_is_sent_once(service: Service, bmc: RedfishBmc) -> None:
    for call in (bmc.log_in, lambda node: bmc.set_password(node, NEW)):
        before = service.logins.rejected
        with pytest.raises(BmcError) as caught:
            call(node_of(service, password="wrong-" + PASSWORD))
        assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_CREDENTIALS)
        assert service.logins.rejected == before + 1
    assert service.logins.passwords[USER] == PASSWORD


def test_an_open_session_does_not_prove_a_password(service: Service, bmc: RedfishBmc) -> None:
    node = node_of(service)
    bmc.get_power(node)
    service.logins.passwords[USER] = NEW
    bmc.get_power(node)
    with pytest.raises(BmcError) as caught:
        bmc.log_in(node)
    assert caught.value.reason is Reason.BMC_CREDENTIALS


@pytest.mark.parametrize("etags", [Etags(style="weak", missing=428), Etags(style="strong", missing=412, stale=1)])
def test_etags_are_sent_as_the_bmc_wants_them(bmc: RedfishBmc, etags: Etags) -> None:
    with serving_with(etags=etags) as service:
        bmc.set_password(node_of(service), NEW)
        assert (service.logins.passwords[USER], service.logins.changes) == (NEW, 1)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_is_one(bmc: RedfishBmc, status: int) -> None:
    with serving_with(accounts=Accounts(status=status)) as service:
        bmc.set_password(node_of(service), NEW)
        assert service.logins.passwords[USER] == NEW


def test_the_action_is_used_where_it_is_required(bmc: RedfishBmc) -> None:
    with serving_with(accounts=Accounts(action=True)) as service:
        bmc.set_password(node_of(service), NEW)
        assert service.logins.passwords[USER] == NEW


@pytest.mark.parametrize("auth_type", ["auto", "session", "basic"])
def test_a_password_that_must_be_changed_first_is_changed(bmc: RedfishBmc, auth_type: str) -> None:
    """DMTF/Redfishtool#107."""
    with serving_with(accounts=Accounts(demanded=True)) as service:
        bmc.set_password(node_of(service, redfish_auth_type=auth_type), NEW)
        assert service.logins.passwords[USER] == NEW
        assert bmc.get_power(node_of(service, password=NEW)) is Power.OFF


def test_a_bmc_without_a_free_session_is_asked_without_one(bmc: RedfishBmc) -> None:
    with serving_with(sessions=Sessions(limit=2)) as service:
        service.logins.occupy()
        bmc.set_password(node_of(service), NEW)
        assert (service.logins.passwords[USER], service.logins.rejected) == (NEW, 0)


@pytest.mark.parametrize(
    "accounts", [Accounts(least=20), Accounts(most=12), Accounts(most=12, told=False, echoes=True)]
)
def test_a_password_against_the_rules_of_the_bmc_is_refused(bmc: RedfishBmc, accounts: Accounts) -> None:
    with serving_with(accounts=accounts) as service:
        error = fails(bmc, service)
        assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)
        assert (service.logins.passwords[USER], service.logins.changes) == (PASSWORD, 0)


@pytest.mark.parametrize("password", [NEW, PASSWORD + "-and-more"])
def test_no_beginning_or_end_of_a_password_is_left_where_a_message_is_cut(bmc: RedfishBmc, password: str) -> None:
    for verbose in range(60, 300, 4):
        accounts = Accounts(most=len(password) - 1, told=False, echoes=True, verbose=verbose)
        with serving_with(accounts=accounts) as service:
            error = str(fails(bmc, service, password))
        assert not any(part in error for part in (password[:5], password[-5:])), (verbose, error)


def test_what_is_accepted_and_not_done_is_refused(bmc: RedfishBmc) -> None:
    with serving_with(accounts=Accounts(ignored=True)) as service:
        error = fails(bmc, service)
        assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)
        bmc.log_in(node_of(service))


def test_a_password_that_does_not_work_is_taken_back(bmc: RedfishBmc) -> None:
    """The BMC rejects more logins with it than are tried, so the session that is still open writes the old one.

    dell/iDRAC-Redfish-Scripting#126: it knows later what it has accepted.
    """
    with serving_with(accounts=Accounts(late=2)) as service:
        error = fails(bmc, service)
        assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)
        assert service.logins.passwords[USER] == PASSWORD
        bmc.log_in(node_of(service))


@pytest.mark.parametrize("lockout", [1, 2, 3])
def test_a_change_that_fails_locks_no_account(bmc: RedfishBmc, lockout: int) -> None:
    with serving_with(accounts=Accounts(ignored=True, lockout=lockout)) as service:
        with pytest.raises(BmcError):
            bmc.set_password(node_of(service), NEW)
        if lockout > 1:
            bmc.log_in(node_of(service))


def test_neither_password_is_unclear(bmc: RedfishBmc) -> None:
    with serving_with(accounts=Accounts(late=5)) as service:
        written = service.logins.change

        def once(user: str, password: Any) -> None:
            if service.logins.changes == 0:
                written(user, password)

        service.logins.change = once  # type: ignore[method-assign]  # what else it gets, it loses
        error = fails(bmc, service)
        assert (error.transient, error.reason) == (False, Reason.BMC_PASSWORD_UNCLEAR)


def test_an_account_that_is_not_listed_is_refused(bmc: RedfishBmc) -> None:
    with serving_with() as service:
        service.logins.passwords["other"] = PASSWORD
        error = fails(bmc, service, user="other")
        assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)


def test_the_slots_of_an_idrac_are_read_only_as_far_as_needed(bmc: RedfishBmc) -> None:
    with serving(IDRAC9) as service:
        bmc.set_password(node_of(service), NEW)
        read = {one.path for one in service.asked if "/Accounts/" in one.path}
        assert len(read) == 2, "the first slot and the second one, which is the user's"
