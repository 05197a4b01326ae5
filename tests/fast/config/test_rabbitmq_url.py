"""Transport URLs of RabbitMQ: what oslo.messaging accepts, and errors that show no password."""

from __future__ import annotations

import pytest

from ferroscope.config.messaging_options import BrokerTls, parse_url
from ferroscope.config.options import BusSettings
from tests.support.rows import each


def hosts(url: str) -> list[tuple[str, int, str, str]]:
    return [(one.host, one.port, one.user, one.password) for one in parse_url(url).hosts]


def test_each_host_has_its_own_account_and_port() -> None:
    url = "rabbit://u:p%40%2C%2F@h1:5673,v:q@[::1]:5672,h3/cloud"
    assert hosts(url) == [("h1", 5673, "u", "p@,/"), ("::1", 5672, "v", "q"), ("h3", 5672, "guest", "guest")]
    assert parse_url(url).virtual_host == "cloud"


@each(("path", "virtual_host"), [("", "/"), ("/", "/"), ("//", "/"), ("/a%2Fb", "a/b"), ("/x?ssl=0", "x")])
def test_virtual_host(path: str, virtual_host: str) -> None:
    assert parse_url(f"rabbit://h{path}").virtual_host == virtual_host


def test_tls_is_set_by_the_scheme_the_parameters_or_the_ca_file_of_a_target() -> None:
    assert parse_url("rabbit://h").tls is None
    assert parse_url("amqps://h").hosts[0].port == 5671
    url = "rabbit://h/?ssl=True&ssl_ca_file=/ca&ssl_cert_file=/c&ssl_key_file=/k"
    assert parse_url(url).tls == BrokerTls(ca_file="/ca", certificate_file="/c", key_file="/k")
    assert parse_url("rabbit://h", tls=BrokerTls(ca_file="/ca")).tls == BrokerTls(ca_file="/ca")
    assert parse_url("rabbit://h/?ssl=false", tls=BrokerTls()).tls is None


@each(
    "url",
    [
        "rabbit",
        "rabbit://",
        "http://u:hunter2@h/",
        "rabbit://u:hunter2@/x",
        "rabbit://u:hunter2@h:x/",
        "rabbit://u:hunter2@h:70000/",
        "rabbit://u:hunter2@h:0/",
        "rabbit://u:hunter2@h/?heartbeat=x",
        "rabbit://u:hunter2@h/?ssl=perhaps",
        "rabbit://u:hunter2@h/?ssl_ca_file=/ca",
        "rabbit://u:hunter2@h/?ssl=1&ssl_cert_file=/c",
        "rabbit://u:hunter2@h h/",
        "rabbit://u:hun#ter2@h/",
        "rabbit://u:hun/ter2@h/",
    ],
)
def test_an_invalid_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError) as error:
        BusSettings(transport_url=url).broker()
    assert "[bus] transport_url" in str(error.value)
    assert "ter2" not in str(error.value)


def test_no_representation_shows_a_password() -> None:
    assert "hunter2" not in repr(parse_url("rabbit://u:hunter2@h/"))
