"""Apache httpd serves the application over TLS."""

from __future__ import annotations

import socket
import ssl
import warnings
from pathlib import Path
from typing import Final

import pytest
import urllib3

from tests.support.certificates import Authority
from tests.support.processes import PATIENCE
from tests.support.web_servers import KINDS

_VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.96"}
_ANYBODY: Final = "allow_anonymous = true\n"
_HTTP: Final = urllib3.PoolManager(retries=False, timeout=PATIENCE)


def test_apache_serves_both_apis_over_https(tmp_path: Path, sqlite_url: str) -> None:
    authority = Authority(tmp_path)
    server = KINDS["apache"](tmp_path, sqlite_url, _ANYBODY, tls=authority.issue("server"))
    try:
        server.wait_ready()
        with urllib3.PoolManager(ca_certs=str(authority.ca), retries=False, timeout=PATIENCE) as http:
            root = http.request("GET", f"{server.url}/v1")
            assert root.headers["Strict-Transport-Security"]
            assert root.json()["links"][0]["href"] == f"{server.url}/v1/"
            body = {"name": "n", "driver": "fake-hardware"}
            assert http.request("POST", f"{server.url}/v1/nodes", json=body, headers=_VERSION).status == 201
            introspection = http.request("GET", f"https://127.0.0.1:{server.introspection}/v1").json()
            assert introspection["resources"][0]["links"][0]["href"].startswith("https://")
        plain = _HTTP.request("GET", server.url.replace("https", "http") + "/v1")
        assert plain.status == 400
        old = ssl.create_default_context(cafile=str(authority.ca))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", server.bare_metal), 20) as raw, pytest.raises(ssl.SSLError):
            old.wrap_socket(raw, server_hostname="127.0.0.1")
    finally:
        server.played.end()
