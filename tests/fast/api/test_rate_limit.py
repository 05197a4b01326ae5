"""Where a call comes from, which proxies are trusted, how often a source may fail, and how much is logged."""

from __future__ import annotations

from ferroscope.api.rate_limit import Callers, RefusalCache
from ferroscope.config.options import ApiSettings
from ferroscope.core.lookup import LookupRefusal
from ferroscope.http_server.limits import TrustedProxies
from ferroscope.telemetry.log import QuietLog
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import limit_key
from tests.support.rows import each


@each(
    ("trusted", "peer", "forwarded", "source"),
    [
        ((), "192.0.2.7", "198.51.100.1", "192.0.2.7"),
        ((), "::ffff:192.0.2.7", "", "192.0.2.7"),
        (("192.0.2.0/24",), "192.0.2.7", "198.51.100.1", "198.51.100.1"),
        (("192.0.2.0/24",), "::ffff:192.0.2.7", "198.51.100.1", "198.51.100.1"),
        (("192.0.2.0/24",), "203.0.113.9", "198.51.100.1", "203.0.113.9"),
        # What the caller itself has put in front is not believed.
        (("192.0.2.7",), "192.0.2.7", "10.0.0.1, 198.51.100.1", "198.51.100.1"),
        (("192.0.2.0/24",), "192.0.2.7", "198.51.100.1, 192.0.2.8", "198.51.100.1"),
        (("192.0.2.7",), "192.0.2.7", "198.51.100.1, nonsense", "192.0.2.7"),
        # Some load balancers add the port.
        (("192.0.2.7",), "192.0.2.7", "198.51.100.1:4711", "198.51.100.1"),
        (("192.0.2.0/24",), "192.0.2.7", "198.51.100.1:4711, 192.0.2.8:9", "198.51.100.1"),
        (("192.0.2.7",), "192.0.2.7", "[2001:db8::9]:4711", "2001:db8::9"),
        (("192.0.2.7",), "192.0.2.7", "[2001:db8::9]", "2001:db8::9"),
        (("192.0.2.7",), "192.0.2.7", "2001:db8::9", "2001:db8::9"),
        (("192.0.2.7",), "192.0.2.7", "[2001:db8::9", "192.0.2.7"),
        (("192.0.2.7",), "192.0.2.7", "198.51.100.1:", "192.0.2.7"),
        (("192.0.2.7",), "192.0.2.7", "198.51.100.1:4711:1", "192.0.2.7"),
        (("192.0.2.7",), "192.0.2.7", "", "192.0.2.7"),
        (("2001:db8::/32",), "2001:db8::1", "fe80::1%" + "x" * 5000, "2001:db8::1"),
        ((), "", "", ""),
    ],
)
def test_the_source_is_what_the_last_trusted_proxy_saw(
    trusted: tuple[str, ...], peer: str, forwarded: str, source: str
) -> None:
    environ = {"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_FOR": forwarded}
    assert TrustedProxies(trusted).source(environ) == source


def test_a_source_may_fail_in_a_burst_and_then_at_a_rate() -> None:
    callers = Callers(ApiSettings(failure_rate=0.5), burst=3)
    assert [callers.count_failure("192.0.2.7", 10.0) for _ in range(4)] == [0, 0, 0, 2]
    assert callers.wait("192.0.2.7", 10.0) == 2
    assert callers.wait("192.0.2.8", 10.0) == 0
    assert callers.wait("192.0.2.7", 12.0) == 0
    assert [callers.count_failure("192.0.2.7", 12.0), callers.count_failure("192.0.2.7", 12.0)] == [0, 2]
    assert [callers.count_failure("192.0.2.7", 1000.0) for _ in range(4)] == [0, 0, 0, 2]


def test_no_rate_is_no_limit() -> None:
    callers = Callers(ApiSettings(failure_rate=0.0), burst=1)
    assert [callers.count_failure("192.0.2.7", 0.0) for _ in range(50)] == [0] * 50
    assert callers.wait("192.0.2.7", 0.0) == 0


def test_an_ipv6_network_is_one_caller() -> None:
    assert limit_key("2001:db8::1") == limit_key("2001:db8::ffff:1") != limit_key("2001:db8:0:1::1")
    assert limit_key("::ffff:192.0.2.7") == limit_key("192.0.2.7") == "192.0.2.7"
    assert limit_key("") == ""


def test_sources_without_number_do_not_fill_the_memory() -> None:
    callers = Callers(ApiSettings(failure_rate=1.0), burst=1)
    for number in range(21_000):
        callers.count_failure(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(callers._failures._buckets) == 20_000
    assert callers.wait("10.0.0.0", 0.0) == 0
    assert callers.wait("10.0.82.7", 0.0) == 1


def test_a_burst_is_logged_and_the_rest_is_counted_in_the_next_line() -> None:
    quiet = QuietLog(burst=2, period=10.0)
    assert [quiet.admit(now) for now in (0.0, 1.0, 2.0, 9.9)] == [0, 0, None, None]
    assert [quiet.admit(now) for now in (10.0, 10.1, 10.2)] == [2, 0, None]
    assert quiet.admit(100.0) == 1


def test_a_cached_refusal_expires() -> None:
    cache, refusal = RefusalCache(), LookupRefusal(Reason.DISCOVERY_LIMITED, "too many")
    assert cache.get(0.0) is None
    cache.put(refusal, 5.0)
    assert cache.get(4.9) is refusal
    assert cache.get(5.0) is None
