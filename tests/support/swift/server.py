"""A whole OpenStack Swift of one process: account, container, object and proxy server, with S3 in front.

Run by the interpreter of ``.swift-venv``, never by ours: Swift uses eventlet. ``server.py DIRECTORY
PORT`` keeps its data in DIRECTORY and survives being killed, as Swift does: an answer
of 201 is on the disk. The account is ``test``, its user ``tester``, the key ``testing``. With a third
argument, Keystone's URL, accounts and users are Keystone's, and it speaks no S3.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import eventlet

eventlet.patcher.monkey_patch()

from eventlet import wsgi  # noqa: E402
from swift.common import utils  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402

STORAGE = ("account", "container", "object")
PROXY = """
[DEFAULT]
swift_dir = {directory}
log_level = WARNING
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck {auth} proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:s3api]
use = egg:swift#s3api
s3_acl = no
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
"""
# Validated tokens are not remembered: a test that revokes one wants it refused.
KEYSTONE = """
[filter:authtoken]
paste.filter_factory = keystonemiddleware.auth_token:filter_factory
www_authenticate_uri = {url}
auth_url = {url}
auth_type = password
username = swift
password = SWIFT
project_name = service
user_domain_name = Default
project_domain_name = Default
delay_auth_decision = true
token_cache_time = -1
[filter:keystoneauth]
use = egg:swift#keystoneauth
operator_roles = member
"""
SERVER = """
[DEFAULT]
swift_dir = {directory}
devices = {directory}/devices
mount_check = false
log_level = WARNING
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""


class Cache:
    """What Swift has a memcached for: tokens, and what it knows of containers."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Any]] = {}

    def get(self, key: str, **_options: Any) -> Any:
        until, value = self._known.get(key, (0.0, None))
        return value if until > time.time() else None

    def set(self, key: str, value: Any, time: float = 0, **_options: Any) -> None:
        self._known[key] = (_now() + (time or 86400), value)

    def incr(self, key: str, delta: int = 1, time: float = 0, **_options: Any) -> int:
        value = (self.get(key) or 0) + delta
        self.set(key, value, time)
        return value

    def delete(self, key: str, **_options: Any) -> None:
        self._known.pop(key, None)


def _now() -> float:
    return time.time()


class Silent:
    """A log that keeps nothing: requests are the tests' business."""

    def write(self, _text: str) -> None:
        """Forget it."""

    def flush(self) -> None:
        """Nothing is kept."""


def prepare(directory: Path, ports: dict[str, int], keystone: str) -> None:
    (directory / "devices" / "d1").mkdir(parents=True, exist_ok=True)
    conf = "[swift-hash]\nswift_hash_path_suffix = tests\n[storage-policy:0]\nname = one\ndefault = yes\n"
    (directory / "swift.conf").write_text(conf)
    auth = "authtoken keystoneauth" if keystone else "s3api tempauth"
    more = KEYSTONE.format(url=keystone) if keystone else ""
    (directory / "proxy.conf").write_text(PROXY.format(directory=directory, auth=auth) + more)
    for kind in STORAGE:
        (directory / f"{kind}.conf").write_text(SERVER.format(directory=directory, kind=kind))
        builder = RingBuilder(4, 1, 1)
        place = {"region": 1, "zone": 1, "weight": 1, "ip": "127.0.0.1", "port": ports[kind], "device": "d1"}
        builder.add_dev(place)
        builder.rebalance()
        builder.get_ring().save(str(directory / f"{kind}.ring.gz"))


def main(directory: Path, port: int, keystone: str = "") -> None:
    sockets = {kind: eventlet.listen(("127.0.0.1", 0)) for kind in STORAGE}
    prepare(directory, {kind: sock.getsockname()[1] for kind, sock in sockets.items()}, keystone)
    utils.set_swift_dir(str(directory))
    utils.validate_hash_conf()
    for kind, sock in sockets.items():
        app = loadapp(str(directory / f"{kind}.conf"), global_conf={"log_name": kind})
        eventlet.spawn(wsgi.server, sock, app, log=Silent(), log_output=False)
    proxy, cache = loadapp(str(directory / "proxy.conf"), global_conf={"log_name": "proxy"}), Cache()

    def with_cache(env: dict[str, Any], start_response: Any) -> Any:
        return proxy({**env, "swift.cache": cache}, start_response)

    wsgi.server(eventlet.listen(("127.0.0.1", port)), with_cache, log=Silent(), log_output=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), *sys.argv[3:])
