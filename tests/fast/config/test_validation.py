"""Invalid values and contradictory settings are rejected, with the option and the place that it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.load import ConfigurationError, files_with_secrets, load
from tests.support.rows import each


def _refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "f.conf"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load([str(file)])
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[log]\nlevels = ferroscope.worker:loud\n", ("[log] levels", "'loud'", "ferroscope.worker")),
        ("[api]\nbare_metal_port = 5050\n", ("[api] bare_metal_port", "introspection_port", "5050")),
        ("[bus]\nexchange = two words\n", ("exchange", "two words")),
        ("[registry]\nbackend = ironic\nsync_period = 0\n", ("[registry] sync_period is 0", "at most 30")),
        ("[registry]\nbackend = ironic\nsync_period = 31\n", ("[registry] sync_period is 31", "at most 30")),
        ("[failover]\ncluster = Rack_1\n", ("[failover] cluster", "'Rack_1'")),
        ("[failover]\nmax_unhealthy = 0\n", ("[failover] max_unhealthy", "'0'")),
        ("[inspector]\nignored_macs = known,eth0\n", ("ignored_macs", "eth0")),
        ("[inspector]\nignored_macs = ??:??\n", ("[inspector] ignored_macs", "'??:??'", "every MAC address")),
        ("[failover]\nquorum = example.com/etcd\n", ("[failover] quorum", "'example.com/etcd'")),
        ("[failover]\npatience = pool:storage\n", ("[failover] patience", "'pool:storage'")),
        ("[failover]\npatience = pool:storage:nan\n", ("[failover] patience", "'pool:storage:nan'")),
        ("[boot]\ncallback_url = http://10.40.0.041:6385/v1/x\n", ("[boot] callback_url", "10.40.0.33")),
        ("[inspector]\nramdisk_iso = https://10.40.34/ipa.iso\n", ("[inspector] ramdisk_iso", "10.40.0.34")),
        ("[inspector]\nramdisk_iso = http:///10.40.34/ipa.iso\n", ("[inspector] ramdisk_iso", "http:///10.40.34")),
        ("[inspector]\nextra_kernel_params = a=http://0x0a280029/\n", ("extra_kernel_params", "10.40.0.41")),
        ("[api]\nhost = 127.0.0.1,0177.0.0.1\n", ("[api] host", "127.0.0.1")),
        ("[boot]\naddresses = boot1 10.0.0.011\n", ("[boot] addresses", "10.0.0.9")),
        ("[database]\nconnection = postgresql://u:p@h1,170393641/x\n", ("[database] connection", "10.40.0.41")),
        (
            '[notifications]\ntarget = {"name": "hook", "url": "https://10.40.0.041/x"}\n',
            ("[notifications] target", "10.40.0.33"),
        ),
        ("[failover]\napi_servers = https://10.40.34:6443\n", ("[failover] api_servers", "10.40.0.34")),
        ("[failover]\nmode = label\n", ("[failover] mode", "label_selector")),
        ("[failover]\napi_servers = api.example.org:6443\n", ("[failover] api_servers", "'api.example.org:6443'")),
    ],
)
def test_a_contradiction_names_the_options_and_their_values(tmp_path: Path, text: str, named: tuple[str, ...]) -> None:
    message = _refusal(tmp_path, text)
    assert [one for one in named if one not in message] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[lease]\nprofile = custom\nttl = 1\n[worker]\nmember_ttl = 3\n",
        "[api]\nbare_metal_port = 0\nintrospection_port = 0\n",
        "[registry]\nsync_period = 0\n",
        "[registry]\nbackend = ironic\nsync_period = 30\n",
        "[inspector]\nignored_macs = known,02:00:5e,0A-CA-FE-F0-0D-0?\n",
        "[inspector]\nignored_macs =\n",
    ],
)
def test_what_fits_together_is_taken(tmp_path: Path, text: str) -> None:
    file = tmp_path / "f.conf"
    file.write_text(text)
    load([str(file)])


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("[api]\nbare_metal_port = x\n", "[api] bare_metal_port: ", "'x'"),
        ("[api]\nthreads = 0\n", "[api] threads: ", "1"),
        ("[lease]\nprofile = q\n", "[lease] profile: ", "[default, fast, custom]"),
    ],
)
def test_an_invalid_value_is_reported_with_its_option_and_file(
    tmp_path: Path, text: str, option: str, value: str
) -> None:
    message = _refusal(tmp_path, text)
    assert message.startswith(option)
    assert value in message
    assert message.endswith(f"(from {tmp_path}/f.conf:2)")


def test_a_wrong_variable_is_not_blamed_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_API__BARE_METAL_PORT", "x")
    message = _refusal(tmp_path, "[api]\nbare_metal_port = 6385\n")
    assert message.startswith("[api] bare_metal_port: ")
    assert message.endswith("(from OS_API__BARE_METAL_PORT)")


def test_all_that_is_wrong_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.conf"
    file.write_text("[api]\nthreads = x\nbare_metal_port = y\n[databse]\nconnection = z\n[lease]\nttl = $none\n")
    monkeypatch.setenv("OS_API__THREDS", "2")
    with pytest.raises(ConfigurationError) as caught:
        load([str(file)])
    named = [f"{file}:4: ", "OS_API__THREDS", "[api] bare_metal_port", "[api] threads", "[lease] ttl"]
    assert [word for word, text in zip(named, caught.value.problems, strict=True) if word not in text] == []


@each(
    ("connection", "secret"),
    [
        ("postgresql://postgres@127.0.0.1/f", False),
        ("postgresql://me@[::1]:5432/f", False),
        ("sqlite:////var/lib/f.db", False),
        ("postgresql://me:secret@127.0.0.1/f", True),
        ("postgresql://me:sec/ret@127.0.0.1/f", True),
        ("postgresql://127.0.0.1/f?user=me&password=secret", True),
    ],
)
def test_a_connection_is_secret_if_it_has_a_password(tmp_path: Path, connection: str, *, secret: bool) -> None:
    file = tmp_path / "f.conf"
    file.write_text(f"[database]\nconnection = {connection}\n")
    assert (files_with_secrets([str(file)]) == [file]) == secret


@pytest.mark.parametrize("line", ["S3cret", "  S3cret\n", "=S3cret", "[x]\nconnection = a\nb'S3cret'", "[S3cret"])
def test_an_unparsable_line_is_reported_by_its_number_only(tmp_path: Path, line: str) -> None:
    message = _refusal(tmp_path, f"[database]\nconnection =\n\n{line}")
    assert "S3cret" not in message
    assert "f.conf:" in message
