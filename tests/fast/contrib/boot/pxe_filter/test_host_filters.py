"""Of the processes that guard one network on a host there is one, for as long as it lives."""

from __future__ import annotations

import pytest

from ferroscope.config.errors import StartError
from ferroscope.contrib.boot.pxe_filter.host_filters import instance_lock, is_running


def test_a_second_one_of_the_same_network_is_refused_and_told_why() -> None:
    with instance_lock("test-sole"):
        assert is_running("test-sole")
        with (
            pytest.raises(StartError, match="test-sole"),
            instance_lock("test-sole"),
        ):
            pass
        assert is_running("test-sole")
    assert not is_running("test-sole")


def test_networks_whose_names_are_similar_do_not_meet() -> None:
    with (
        instance_lock("test-sole"),
        instance_lock("test_sole"),
        instance_lock("test.sole"),
    ):
        assert not is_running("test-sol")
