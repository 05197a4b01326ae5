"""``ferroscope import inspector`` of data that a real ironic-inspector stored in a real Swift, with a real Keystone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ferroscope.core.model import Node
from ferroscope_client.cli.main import main
from ferroscope_client.core.states import Provision
from tests.api.service import Service
from tests.support.inspector import DATA, FINISHED, UNKNOWN, configure, fill
from tests.support.keystone import DOMAIN, PASSWORD, PROJECT, USER, Cloud, cloud

_STORED = """\
store_data = swift
[swift]
{login}
region_name = two
valid_interfaces = internal,public
container = from-inspector
"""
_USER = f"""\
auth_type = password
username = {USER}
password = {PASSWORD}
user_domain_name = {DOMAIN}
project_name = {PROJECT}
project_domain_name = {DOMAIN}
auth_url = """


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("cloud")) as running:
        yield running


def imported(conf: Path, database: str, *more: str) -> Result:
    return CliRunner().invoke(main, ["import", "inspector", str(conf), "--database", database, "-o", "json", *more])


def results(done: Result) -> dict[str, str]:
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return {item["uuid"]: item["result"] for item in report["items"]}


def test_data_in_swift_is_imported(swift: Cloud, sqlite_url: str, tmp_path: Path) -> None:
    conf, source = tmp_path / "inspector.conf", f"sqlite:///{tmp_path / 'inspector.db'}"
    configure(source, conf, _STORED.format(login=_USER + swift.identity.url))
    fill(conf)
    service = Service(sqlite_url)
    try:
        node = Node(uuid=FINISHED, driver="fake-hardware", provision_state=Provision.MANAGEABLE)
        service.store.write(lambda tx: tx.nodes.add(node))
        assert results(imported(conf, sqlite_url))[FINISHED] == "imported"
        theirs = {name: json.loads((DATA / f"{name}.json").read_text()) for name in ("processed", "unprocessed")}
        data = service.introspection.get(f"/v1/introspection/{FINISHED}/data").json
        assert {key: data[key] for key in theirs["processed"]} == theirs["processed"]
        unprocessed = service.introspection.get(f"/v1/introspection/{FINISHED}/data/unprocessed").json
        assert unprocessed == theirs["unprocessed"]
        # By an application credential; the user and the project are named in a section of their own.
        ident, secret = swift.application
        login = (
            "auth_section = login\n[login]\nauth_type = v3applicationcredential\n"
            f"application_credential_id = {ident}\napplication_credential_secret = {secret}\n"
            f"auth_url = {swift.identity.url}\n"
        )
        text = _STORED.format(login="").replace("[swift]", "[swift]\nauth_section = login")
        configure(source, conf, text + login.partition("\n")[2])
        found = results(imported(conf, sqlite_url, "--create", "manageable", "--driver", "fake-hardware"))
        assert (found[FINISHED], found[UNKNOWN]) == ("already imported", "created")
        assert service.introspection.get(f"/v1/introspection/{UNKNOWN}/data").json["inventory"]["cpu"]
    finally:
        service.close()
    _is_refused_without_its_password(conf, source, sqlite_url, swift)


def _is_refused_without_its_password(conf: Path, source: str, database: str, swift: Cloud) -> None:
    wrong = _USER.replace(PASSWORD, "wr0ng-pa55")
    for login, expected in (
        (wrong + swift.identity.url, "credentials"),
        (_USER + "http://127.0.0.1:9/v3", "Keystone"),
        ("auth_type = nonsense", "auth_type"),
        ("auth_section = nowhere", "nowhere"),
    ):
        configure(source, conf, _STORED.format(login=login))
        done = imported(conf, database)
        assert (done.exit_code, "[ironic]" in done.output) == (1, False)
        assert expected in done.output
        assert not {"wr0ng-pa55", PASSWORD} & set(done.output.replace(":", " ").split())
