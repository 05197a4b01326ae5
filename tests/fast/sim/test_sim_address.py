"""What ``driver_info`` of a node with the driver ``sim`` must say."""

from __future__ import annotations

import pytest

from ferroscope.bmc.sim.driver import Endpoint, SimBmc, locate
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each


@each(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7623", "127.0.0.1", 7623),
        ("localhost:1", "127.0.0.1", 1),
        ("[::1]:65535", "::1", 65535),
        ("10.1.2.3:80", "10.1.2.3", 80),
    ],
)
def test_an_address_is_an_ip_and_a_port(text: str, host: str, port: int) -> None:
    assert locate({"sim_address": text, "sim_node": "sim-1"}) == (Endpoint(host, port, text), "sim-1")


@each(
    "text",
    [
        *("", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:+80"),
        *("::1:80", "[::1:80", "[]:80", "127.0.0.1:\u0661", "127.0.0.1:123456", None, 7623, ["127.0.0.1:80"]),
    ],
)
def test_anything_else_is_refused_for_good(text: object) -> None:
    driver_info: Document = {"sim_address": text, "sim_node": "sim-1"}
    with pytest.raises(BmcError, match="sim_address") as caught:
        locate(driver_info)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.DRIVER_INFO_INVALID)


@each("name", [None, "", 5, "x" * 256])
def test_the_machine_needs_a_name(name: object) -> None:
    with pytest.raises(BmcError, match="sim_node") as caught:
        locate({"sim_address": "127.0.0.1:80", "sim_node": name})
    assert (caught.value.transient, caught.value.reason) == (False, Reason.DRIVER_INFO_INVALID)


def test_validate_says_what_is_wrong_and_asks_nobody() -> None:
    bmc = SimBmc()
    node = Node(uuid="1", driver="sim", driver_info={"sim_address": "127.0.0.1:1", "sim_node": "sim-1"})
    assert bmc.validate(node) is None
    assert "sim_node" in str(bmc.validate(Node(uuid="1", driver="sim")))
