"""What no database, broker or BMC is needed to refuse is refused before anything is opened, and all of it at once."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import structlog

from ferroscope.config.errors import OptionRefusedError, StartError
from ferroscope.config.load import load
from ferroscope.contrib.boot.pxe_filter import process
from ferroscope.runtime import preflight
from ferroscope.runtime.hosted import Application
from ferroscope.runtime.system import Reload

_ALL = ("api", "worker", "periodic")


def _written(directory: Path, text: str) -> list[str]:
    file = directory / "f.conf"
    file.write_text(text.replace("DIR", str(directory)))
    return [str(file)]


def _refusal(directory: Path, text: str, *roles: str) -> OptionRefusedError:
    settings = load(_written(directory, text))
    with pytest.raises(OptionRefusedError) as caught:
        process.check_start(settings) if roles == ("pxe-filter",) else preflight.check(settings, roles)
    return caught.value


_MISTAKES = {
    "api": [
        ("http_basic_auth_user_file", "[api]\nauth_strategy = http_basic\nhttp_basic_auth_user_file = DIR/none\n"),
        ("auth_strategy is keystone", "[api]\nauth_strategy = keystone\n"),
        ("policy_file", "[oslo_policy]\npolicy_file = DIR/none\n"),
        ("tls_certificate_file", "[api]\ntls_certificate_file = DIR/none\ntls_key_file = DIR/none\n"),
        ("[api] host", "[api]\nhost = 0.0.0.0\n"),
        ("forward_ca_file", "[inspector]\nforward_unknown_to = https://h/v1/continue\nforward_ca_file = DIR/none\n"),
        ("/none", "[inspection_rules]\nbuilt_in_rules = DIR/none\n"),
        ("[auto_discovery] driver", "[auto_discovery]\nenabled = true\n"),
    ],
    "worker": [
        ("[inspector] hooks", "[inspector]\nhooks = xyzzy\n"),
        ("[drivers] enabled", "[drivers]\nenabled = xyzzy\n"),
        ("[registry] backend", "[registry]\nbackend = ironic\n"),
        ("[secrets] sources", "[secrets]\nsources = xyzzy\n"),
        ("[storage] backend", "[storage]\nbackend = s3\n"),
        ("[coordination] backend", "[coordination]\nbackend = tooz\n"),
    ],
    "periodic": [
        (
            "[notifications] target",
            '[notifications]\ntarget = {"name": "a", "url": "http://h/", "secret": "DIR/none"}\n',
        ),
    ],
    "pxe-filter": [
        ("[pxe_filter] interfaces", "[pxe_filter]\nbackends = nftables\n"),
        ("'nftable'", "[pxe_filter]\ninterfaces = eth0\nbackends = nftable\n"),
        ("inspector_connection", "[pxe_filter]\ninterfaces = eth0\ninspector_connection = nonsense\n"),
    ],
    "failover": [("kubeconfig", "[failover]\nkubeconfig = DIR/none\n")],
    "": [  # of every role
        ("[database] connection", "[database]\nconnection = nonsense\n"),
        ("[database] connection", "[database]\nconnection = postgresql+xyzzy://h/n\n"),
        ("[secrets] key_file", "[secrets]\nkey_file = DIR/none\n"),
        ("[bus]", "[bus]\ntransport_url = rabbit://h/?ssl=true&ssl_ca_file=DIR/none\n"),
        ("[metrics] host", "[metrics]\nhost = 0.0.0.0\nport = 9000\n"),
        ("[tracing] endpoint", "[tracing]\nendpoint = nonsense\n"),
    ],
}


@pytest.mark.parametrize(
    ("role", "named", "text"),
    [(role, *mistake) for role, mistakes in _MISTAKES.items() for mistake in mistakes],
)
def test_a_mistake_is_refused_by_the_roles_that_it_would_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, named: str, text: str
) -> None:
    monkeypatch.setattr(socket.socket, "bind", _no_port)
    monkeypatch.setattr(socket.socket, "connect", _no_port)
    for one in [role] if role else ["api", "worker", "pxe-filter", "failover"]:
        roles = ("worker", "periodic") if one == "periodic" else (one,)
        assert [said for said in _refusal(tmp_path, text, *roles).problems if named in said], one
    assert [path.name for path in tmp_path.iterdir()] == ["f.conf"], "no database either"


def _no_port(*_: object) -> None:
    raise AssertionError("nothing must be opened")


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    mistakes = "[inspector]\nhooks = xyzzy\n[drivers]\nenabled = xyzzy\n[oslo_policy]\npolicy_file = DIR/none\n"
    assert len(_refusal(tmp_path, mistakes, *_ALL).problems) == 3


@pytest.mark.parametrize("roles", [_ALL, ("api",), ("worker", "periodic")])
def test_the_defaults_are_not_refused(tmp_path: Path, roles: tuple[str, ...]) -> None:
    preflight.check(load(_written(tmp_path, "")), roles)


def test_a_reload_with_an_unknown_option_is_refused_and_said(tmp_path: Path) -> None:
    files = _written(tmp_path, "[log]\nlevel = error\n")
    reload = Reload(load(files), "test", lambda: load(files))
    before = reload.settings
    _written(tmp_path, "[log]\nlevel = debug\nlevls = x:debug\n")
    with structlog.testing.capture_logs() as said:
        reload()
    (refused,) = [event for event in said if "stays in use" in event["event"]]  # other threads may log, too
    assert refused["log_level"] == "error"
    assert "f.conf:3" in refused["why"]
    assert "levels" in refused["why"]
    assert reload.settings is before


@pytest.mark.parametrize("text", ["[databse]\n", "[oslo_policy]\npolicy_file = DIR/none\n"])
def test_another_web_server_does_not_start_either(tmp_path: Path, text: str) -> None:
    files = _written(tmp_path, "[api]\nallow_anonymous = true\n" + text)
    with pytest.raises(StartError):
        Application(files).check()


def test_another_web_server_may_ignore_what_is_unknown(tmp_path: Path) -> None:
    Application(_written(tmp_path, "[api]\nallow_anonymous = true\n[databse]\n"), lenient_config=True).check()
