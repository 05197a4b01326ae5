"""``[coordination]``: what is refused at the start, by which name, and without showing a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.coordination_options import CoordinationSettings, client_options, place, problem
from ferroscope.config.errors import SetupError
from ferroscope.config.load import files_with_secrets, load
from ferroscope.config.options import Settings
from ferroscope.liveness.service import check
from tests.support.rows import each

PASSWORD = "hunter2"


@each(
    "url",
    [
        "etcd3+http://192.0.2.1:2379",
        "zookeeper://zk1:2181?hosts=zk2:2181,zk3:2181",
        f"redis://ferroscope:{PASSWORD}@192.0.2.1:6379?ssl=true",
    ],
)
def test_the_services_that_were_tried_are_accepted(url: str) -> None:
    assert problem(CoordinationSettings(backend="tooz", backend_url=url)) == ""
    assert PASSWORD not in place(CoordinationSettings(backend="tooz", backend_url=url))


@each(
    ("backend", "url", "named"),
    [
        ("tooz", "", "backend_url is not set"),
        ("sql", "redis://192.0.2.1", "backend is sql"),
        ("tooz", "memcached://192.0.2.1", "etcd3+http"),
        ("tooz", "file:///tmp/locks", "zookeeper"),
        ("tooz", "redis://", "redis"),
        ("tooz", f"redis://x:{PASSWORD}@192.0.2.1:port", "backend_url is not a valid URL"),
        ("tooz", f"etcd3+https://x:{PASSWORD}@192.0.2.1", "client certificates"),
        ("tooz", "redis://192.0.2.1?membership_timeout=60", "session_timeout"),
        ("tooz", "zookeeper://192.0.2.1?timeout=60", "session_timeout"),
        ("tooz", "zookeeper://192.0.2.1?handler=eventlet", "handler"),
        ("tooz", "etcd3+https://192.0.2.1?ca_cert=/no/such.pem", "/no/such.pem"),
    ],
)
def test_half_a_section_and_wrong_urls_are_refused_by_name(backend: str, url: str, named: str) -> None:
    coordination = CoordinationSettings(backend=backend, backend_url=url)  # type: ignore[arg-type]
    with pytest.raises(SetupError) as refused:
        check(Settings(coordination=coordination))
    assert "[coordination] backend" in refused.value.summary
    assert named in refused.value.summary
    assert PASSWORD not in f"{refused.value.summary}{refused.value.advice}"


def test_the_url_is_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "f.conf"
    file.write_text(f"[coordination]\nbackend = tooz\nbackend_url = redis://x:{PASSWORD}@192.0.2.1\n")
    assert load([str(file)]).coordination.session_timeout == 3
    assert files_with_secrets([str(file)]) == [file]


@each("scheme", ["etcd3+http", "zookeeper", "redis"])
def test_no_call_outlasts_a_session(scheme: str) -> None:
    settings = CoordinationSettings(backend="tooz", backend_url=f"{scheme}://192.0.2.1", session_timeout=4)
    options = client_options(settings)
    pauses = options.pop("connection_retry", {"max_delay": 0})
    assert max(*options.values(), pauses["max_delay"]) == 4
