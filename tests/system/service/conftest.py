"""Servers of tests, which end with these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.service.small_server import Running, Small, Start


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Running] = []

    def begin(app: Any = None, **options: Any) -> Running:
        running.append(Running(app or Small(), **options))
        return running[-1]

    yield begin
    for one in running:
        one.close()
