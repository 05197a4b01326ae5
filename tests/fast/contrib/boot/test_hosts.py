"""A boot host finds itself in the list of all boot hosts."""

from __future__ import annotations

import socket

import pytest

from ferroscope.contrib.boot.addresses import own_name


@pytest.mark.parametrize(
    ("called", "hosts", "name"),
    [
        ("boot1", ("boot1", "boot2"), "boot1"),
        ("boot1.example.org", ("boot1", "boot2"), "boot1"),
        ("boot1.example.org", ("boot1", "boot1.example.org"), "boot1.example.org"),
        ("other.example.org", ("boot1", "boot2"), "other.example.org"),
    ],
)
def test_a_host_is_known_with_its_domain_or_without(
    monkeypatch: pytest.MonkeyPatch, called: str, hosts: tuple[str, ...], name: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: called)
    assert own_name(hosts) == name
