"""Credentials on the wire: what a service gets, what it gets not, and what people are told when it refuses them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from tests.support.redfish import self_signed
from tests.system.cli.console import Shell
from tests.system.cli.scripted import Answer, Serve

TOKEN = "fst_0123456789ab_" + "t" * 43
OK: Answer = (200, {}, b'{"nodes": []}')
UNAUTHORIZED: Answer = (401, {"WWW-Authenticate": "Bearer"}, b'{"error_message": "{\\"faultstring\\": \\"no\\"}"}')
FORBIDDEN: Answer = (403, {}, b'{"error_message": "{\\"faultstring\\": \\"baremetal:node:delete is denied\\"}"}')


def test_without_credentials_a_login_is_asked_for_with_the_ways_to_do_it(serve: Serve) -> None:
    result = Shell(serve(UNAUTHORIZED).url)("node", "list", check=Exit.UNAUTHENTICATED)
    assert result.stdout == ""
    for way in ("--os-cloud", "FERROSCOPE_TOKEN", "FERROSCOPE_USERNAME", "ferroscope token create"):
        assert way in result.stderr


def test_rejected_credentials_are_named_by_their_origin_only(serve: Serve) -> None:
    server = serve(UNAUTHORIZED)
    result = Shell(server.url, FERROSCOPE_TOKEN=TOKEN)("node", "list", check=Exit.UNAUTHENTICATED)
    assert "FERROSCOPE_TOKEN" in result.stderr
    assert TOKEN not in result.output
    assert len(server.asked) == 1


def test_a_missing_role_has_a_code_of_its_own_and_the_services_reason(serve: Serve) -> None:
    result = Shell(serve(FORBIDDEN).url, FERROSCOPE_TOKEN=TOKEN)("node", "list", check=Exit.FORBIDDEN)
    assert "baremetal:node:delete is denied" in result.stderr
    assert "FERROSCOPE_TOKEN" in result.stderr
    assert TOKEN not in result.output


@pytest.mark.parametrize("status", [302, 308])
def test_nothing_follows_a_redirect_to_another_host(serve: Serve, status: int) -> None:
    other = serve(OK)
    server = serve((status, {"Location": f"{other.url}/v1/nodes"}, b""))
    result = Shell(server.url, FERROSCOPE_TOKEN=TOKEN)("node", "list", check=Exit.FAILURE)
    assert other.url in result.stderr
    assert other.asked == []


def test_an_unknown_cloud_is_reported_before_anything_is_sent(serve: Serve) -> None:
    server = serve(OK)
    for words in (("node", "list", "--os-cloud", "nowhere"), ("--os-cloud", "nowhere", "node", "list")):
        result = Shell(server.url)(*words, check=Exit.USAGE)
        assert "nowhere" in result.stderr
        assert "clouds.yaml" in result.stderr
    assert server.asked == []


def test_openstacksdk_that_is_not_installed_is_named(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openstack.config", None)
    result = Shell(serve(OK).url, OS_CLOUD="mine")("node", "list", check=Exit.USAGE)
    assert "openstack" in result.stderr
    assert "inject ferroscope-client openstacksdk" in result.stderr


def test_a_private_authority_is_trusted_by_its_file_and_nobody_else(serve: Serve, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = serve(OK, tls=context)
    url = server.url.replace("http://", "https://")
    refused = Shell(url, FERROSCOPE_TOKEN=TOKEN)("node", "list", check=Exit.UNREACHABLE)
    assert "certificate" in refused.stderr
    assert server.asked == []
    Shell(url, FERROSCOPE_TOKEN=TOKEN, FERROSCOPE_CACERT=str(certificate))("node", "list", check=0)
    assert server.asked[0][2]["X-Auth-Token"] == TOKEN
    missing = Shell(url, FERROSCOPE_CACERT="/nonexistent/ca.pem")("node", "list", check=Exit.USAGE)
    assert "FERROSCOPE_CACERT" in missing.stderr
