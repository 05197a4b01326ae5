"""nginx and Apache before the api, as the page has them: large inventories, callers' addresses, links, a path."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fast.docs.pages import page
from tests.support.daemons import MissingServerError
from tests.support.installation import running
from tests.support.processes import PATIENCE, free_port, until
from tests.support.real_service import service

PAGE: Final = page("docs/how-to/put-the-api-behind-a-load-balancer.md")
_NGINX: Final = """\
daemon off;
user {user};
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{}}
http {{
    access_log off;
    {temporary}
{block}
}}
"""
_APACHE: Final = """\
ServerRoot {directory}
ServerName localhost
PidFile {directory}/apache.pid
DefaultRuntimeDir {directory}
ErrorLog {directory}/apache.log
User nobody
Group nogroup
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
{block}
"""
VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.95", "Content-Type": "application/json"}


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
    if found is None:
        raise MissingServerError(f"the tests need {name}; run: make nightly PART=cluster")
    return found


@contextmanager
def proxy(kind: str, directory: Path, api: int, path: str) -> Iterator[int]:
    """Give the port of a proxy, configured by the page's block; ``path``: instead of the whole host."""
    port = free_port()
    (block,) = [one.text for one in PAGE.blocks if one.language == kind]
    block = block.replace("192.0.2.5:6385", f"127.0.0.1:{port}").replace("192.0.2.11:6385", f"127.0.0.1:{api}")
    if path:
        block = block.replace("location / {", f"location {path}/ {{").replace("ProxyPass / ", f"ProxyPass {path}/ ")
        block = block.replace(f"proxy_pass http://127.0.0.1:{api};", f"proxy_pass http://127.0.0.1:{api}/;")
    config = directory / f"{kind}.conf"
    if kind == "nginx":
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "\n    ".join(f"{one}_temp_path {directory}/{one};" for one in kinds)
        config.write_text(_NGINX.format(user=getpass.getuser(), directory=directory, temporary=temporary, block=block))
        command = [program("nginx"), "-c", str(config)]
    else:
        config.write_text(_APACHE.format(directory=directory, block=block))
        command = [program("apache2"), "-f", str(config), "-D", "FOREGROUND"]
    with running(kind, directory, command, lambda: call(port, "GET", f"{path}/v1/")[0] == 200):
        yield port


def call(port: int, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, body=content, headers=VERSION | headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text
    except OSError:
        return 0, None
    finally:
        connection.close()


def inventory(mac: str, size: int) -> dict[str, Any]:
    """Return what a ramdisk sends, with so many bytes that nobody needs."""
    machine = {
        "interfaces": [{"name": "eth0", "mac_address": mac}],
        "cpu": {"count": 4, "architecture": "x86_64"},
        "memory": {"physical_mb": 4096},
        "disks": [],
        "boot": {"current_boot_mode": "uefi"},
    }
    return {"inventory": machine, "plugin_data": {"more": "x" * size}}


@pytest.mark.parametrize("path", ["", "/baremetal"], ids=["host", "path"])
@pytest.mark.parametrize("kind", ["nginx", "apache"])
def test_a_proxy_as_the_page_has_it_passes_everything_on(tmp_path: Path, kind: str, path: str) -> None:
    tmp_path.chmod(0o755)
    public = f"[api]\npublic_url = http://127.0.0.1:1{path}\n" if path else ""
    with (
        service(tmp_path, f"[api]\ntrusted_proxies = 127.0.0.1\n{public}") as api,
        proxy(kind, tmp_path, int(api.url.rpartition(":")[2]), path) as port,
    ):
        status, shown = call(port, "GET", f"{path}/v1/")
        own = f"http://127.0.0.1:{1 if path else port}{path}/v1/"
        assert (status, shown["version"]["links"][0]["href"]) == (200, own)
        assert call(port, "GET", f"{path}/v1/nodes/no%2Fsuch")[0] == 404
        mac = "52:54:00:00:00:01"
        node = call(port, "POST", f"{path}/v1/nodes", {"name": "n", "driver": "fake-hardware"})[1]["uuid"]
        assert call(port, "POST", f"{path}/v1/ports", {"node_uuid": node, "address": mac})[0] == 201
        for target, state in (("manage", "manageable"), ("inspect", "inspect wait")):
            asked = call(port, "PUT", f"{path}/v1/nodes/{node}/states/provision", {"target": target})
            assert asked[0] == 202
            assert until(lambda wanted=state: api.node(node)["provision_state"] == wanted)  # type: ignore[misc]
        source = {"X-Forwarded-For": "198.51.100.7"}  # whoever says that of himself is not believed
        large = inventory(mac, 1_900_000)
        assert call(port, "POST", f"{path}/v1/continue_inspection", large, **source)[0] == 202
        assert until(lambda: api.node(node)["provision_state"] == "manageable")
        assert call(port, "GET", f"{path}/v1/nodes/{node}/inventory")[1]["inventory"]["cpu"]["count"] == 4
        assert "198.51.100.7" not in json.dumps(call(port, "GET", f"{path}/v1/nodes/{node}/timeline"))
        assert call(port, "POST", f"{path}/v1/continue_inspection", inventory(mac, 2_200_000))[0] == 413
