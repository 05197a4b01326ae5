"""Options of the service itself: its processes, what they listen on, and what they talk to."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from oslo_config import types

from ferroscope.config.declaration import Opt
from ferroscope.core.delivery import DeliveryPolicy
from ferroscope.core.model import DEFAULT, FAST, LeaseProfile

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

# What ``ferroscope all --simulator`` enables besides.
SIMULATED: Final = ("sim", "fake-hardware")


def is_loopback(host: str) -> bool:
    """Whether what listens on ``host`` can be reached from this host alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[api]``: listeners and limits. A port of 0 disables that listener."""

    host: Annotated[
        tuple[str, ...],
        Opt(
            "Addresses to listen on. localhost: this host alone (127.0.0.1, and ::1 where there is one); '::' is every "
            "address, IPv4 too. Ramdisks cannot reach localhost."
        ),
    ] = ("localhost",)
    bare_metal_port: Annotated[int, Opt("Port of the Bare Metal API; 0 disables it.", type=types.Port())] = 6385
    introspection_port: Annotated[int, Opt("Port of the Introspection API; 0 disables it.", type=types.Port())] = 5050
    threads: Annotated[int, Opt("Requests answered at the same time by one api process.", ge=1)] = 4
    public_url: Annotated[str, Opt("Base URL in links behind a proxy. Default: the request's Host header.")] = ""
    max_body_size: Annotated[
        int,
        Opt("Largest request body, in bytes; a larger one is answered 413. Inventories of 40 KB are usual.", ge=1024),
    ] = 2 * 1024 * 1024
    max_json_depth: Annotated[int, Opt("Deepest nesting that a request body may have.", ge=1)] = 25
    max_limit: Annotated[int, Opt("Most items in one page of a list.", ge=1)] = 1000
    enable_ramdisk_endpoints: Annotated[
        bool, Opt("Serve the unauthenticated endpoints for ramdisks (continue_inspection, lookup, heartbeat).")
    ] = True
    heartbeat_timeout: Annotated[int, Opt("Longest interval between heartbeats, in seconds.", ge=1)] = 300
    drain_delay: Annotated[
        float,
        Opt("Seconds after SIGTERM for which only the health check fails; set it behind a load balancer.", ge=0, le=60),
    ] = 0.0
    enable_metrics: Annotated[bool, Opt("Serve GET /metrics for Prometheus, without authentication.")] = True
    header_timeout: Annotated[
        float, Opt("Seconds until the header of a request must have come, all of it.", ge=0.1)
    ] = 15.0
    body_timeout: Annotated[
        float,
        Opt(
            "Seconds until the body of a request must have come, all of it. A client has as long to read an answer, "
            "and a second more for each 64 KiB.",
            ge=0.1,
        ),
    ] = 60.0
    idle_timeout: Annotated[float, Opt("Seconds for which a connection is kept between requests.", ge=0.1)] = 60.0
    max_connections: Annotated[
        int,
        Opt(
            "Most connections of one process; beyond that the one whose client has been silent for longest is closed.",
            ge=16,
        ),
    ] = 4096
    max_connections_per_source: Annotated[
        int,
        Opt(
            "The same for connections from one source address (of IPv6: one /64), those of trusted proxies apart.", ge=1
        ),
    ] = 256
    max_buffered: Annotated[
        int,
        Opt(
            "Bytes of half-sent bodies and unread answers that one process keeps; beyond that the oldest is given up.",
            ge=1024 * 1024,
        ),
    ] = 64 * 1024 * 1024
    trusted_proxies: Annotated[
        tuple[str, ...],
        Opt(
            "Addresses or networks of proxies whose X-Forwarded-For is believed, such as 192.0.2.10,10.0.0.0/24; "
            "limits by source address then count those behind them."
        ),
    ] = ()
    failure_rate: Annotated[
        float,
        Opt(
            "Failed lookups and refused callbacks per second that one source address may have before it gets 429; 0: "
            "no limit. An IPv6 /64 counts as one address.",
            ge=0,
        ),
    ] = 1.0
    failure_burst: Annotated[int, Opt("How many of them it may have at once.", ge=1)] = 100

    @property
    def loopback_only(self) -> bool:
        """Whether no other host can reach the API, unless a proxy on this one passes it on."""
        return all(is_loopback(host) for host in self.host)


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[database]``: where the truth lives, and how long to wait for it; ``options`` fills in the default place."""

    connection: Annotated[
        str,
        Opt(
            "SQLAlchemy URL: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME. "
            "In it $$ stands for $, %40 for @. Empty: SQLite in /var/lib/ferroscope for root and for whoever may write "
            "there, else in ~/.local/state/ferroscope ($XDG_STATE_HOME/ferroscope).",
            secret=True,
        ),
    ] = ""
    pool_size: Annotated[int, Opt("Connections that one process keeps at the most.", ge=2)] = 12
    busy_timeout: Annotated[float, Opt("Seconds to try when others are in the way, before a 503.", ge=0.1)] = 5.0
    connect_timeout: Annotated[int, Opt("Seconds to wait for a connection.", ge=1)] = 5
    statement_timeout: Annotated[float, Opt("Longest time of one statement, in seconds.", ge=1)] = 5.0
    outage_retries: Annotated[
        int,
        Opt("Heartbeats in a row without an answer after which a process stops itself (exit code 69); 0: never.", ge=0),
    ] = 60
    retry_interval: Annotated[float, Opt("Longest pause between two tries, in seconds.", ge=0.001)] = 0.05
    poll_interval: Annotated[
        float, Opt("Poll interval of the queue in seconds, where no notification arrives.", ge=0.01)
    ] = 0.25


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[worker]``: the lanes, the queue and the members.

    ``threads`` 0: the number of processors. ``bmc_slots`` 0: 128 for each of them.
    """

    threads: Annotated[
        int,
        Opt("Threads of one process that compute (hooks and rules on callbacks); 0: the number of processors.", ge=0),
    ] = 0
    bmc_slots: Annotated[
        int, Opt("How many requests of one process wait for BMCs at the same time; 0: 128 for each processor.", ge=0)
    ] = 0
    get_timeout: Annotated[float, Opt("Seconds to wait for a request before asking again.", ge=0.01)] = 3.0
    max_attempts: Annotated[int, Opt("Deliveries of one request before its inspection fails.", ge=1)] = 3
    interrupted: Annotated[
        Literal["rerun", "error"],
        Opt("What becomes of a strict request whose worker died: run it again, or fail the inspection."),
    ] = "rerun"
    retry_delay: Annotated[float, Opt("Seconds before a request is tried again.", ge=0)] = 1.0
    member_ttl: Annotated[float, Opt("Seconds without a heartbeat until a process is considered dead.", ge=0.5)] = 6.0
    heartbeat_interval: Annotated[float, Opt("Seconds between a process's heartbeats.", ge=0.1)] = 1.5
    graceful_timeout: Annotated[float, Opt("Seconds for running tasks to end after SIGTERM.", ge=0)] = 30.0
    reboot_throttle: Annotated[float, Opt("Least seconds between two power-ons, over all hosts; 0: none.", ge=0)] = 0.0

    def delivery(self) -> DeliveryPolicy:
        return DeliveryPolicy(max_attempts=self.max_attempts, interrupted=self.interrupted)


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[lease]``: how fast leadership moves on; ``profile`` is a preset, ``custom`` takes the numbers."""

    profile: Annotated[
        Literal["default", "fast", "custom"],
        Opt("How fast leadership moves on: default (6 s), fast (3 s), or the numbers below."),
    ] = "default"
    ttl: Annotated[float, Opt("Seconds that a lease lives without renewal (profile custom).", ge=1)] = 6.0
    renew: Annotated[float, Opt("Seconds between two renewals (profile custom).", ge=0.1)] = 1.5
    poll: Annotated[
        float, Opt("Seconds between two tries of a candidate that nobody wakes up (profile custom).", ge=0.05)
    ] = 0.5
    margin: Annotated[float, Opt("Seconds by which a leader stops before its lease ends (profile custom).", ge=0.1)] = (
        1.0
    )

    def numbers(self) -> LeaseProfile:
        """Return the numbers that apply, in seconds."""
        presets = {"default": DEFAULT, "fast": FAST}
        custom = LeaseProfile(ttl=self.ttl, renew=self.renew, poll=self.poll, margin=self.margin)
        return presets.get(self.profile, custom)


class DriverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[drivers]``: which are offered, and how long a BMC may take."""

    enabled: Annotated[
        tuple[str, ...],
        Opt(
            "The drivers that nodes may have: redfish, ipmi; sim for the simulator; fake-hardware (or fake), a BMC "
            "that agrees to everything and does nothing; and those of other installed packages."
        ),
    ] = ("redfish", "ipmi")
    command_timeout: Annotated[float, Opt("Hard deadline of one BMC command, in seconds.", ge=0.1)] = 10.0
    command_tries: Annotated[
        int,
        Opt(
            "How often a Redfish or IPMI BMC is asked at most within one command, where trying again may help.",
            ge=1,
            le=100,
        ),
    ] = 4
    inventory_timeout: Annotated[
        float,
        Opt(
            "Hard deadline of what takes a BMC longer, in seconds: reading all hardware, inserting a virtual medium.",
            ge=0.1,
        ),
    ] = 60.0
    power_timeout: Annotated[float, Opt("Seconds for the power state to follow a command.", ge=0.1)] = 60.0
    power_poll_interval: Annotated[float, Opt("Seconds between two looks at a power state that lags.", ge=0.001)] = 0.05
    bmc_networks: Annotated[
        tuple[str, ...],
        Opt(
            "Networks that BMCs are in, such as 192.0.2.0/24,2001:db8::/64: no driver connects to any other address, "
            "whatever a name resolves to. Empty: everywhere."
        ),
    ] = ()
    allow_http_passwords: Annotated[
        bool, Opt("Log in to BMCs by http, without TLS: anybody on the way can read the password. For simulated BMCs.")
    ] = False
    ca_directory: Annotated[
        str, Opt("The directory on the workers below which redfish_verify_ca of a node finds its CA file or directory.")
    ] = "/etc/ferroscope/ca"


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[log]``: structured lines on standard error."""

    level: Annotated[LogLevel, Opt("Least level that is logged.")] = "info"
    levels: Annotated[
        dict[str, str],
        Opt("Other levels for parts of the service, such as ferroscope.worker:debug, ferroscope.access:warning."),
    ] = {}
    format: Annotated[Literal["console", "json"], Opt("Lines for people or for machines.")] = "console"
    access: Annotated[
        bool,
        Opt("A line for each call of the APIs: source, method, path without its query, status, bytes, milliseconds."),
    ] = False


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[metrics]``: a port of its own for the metrics of processes without the API. 0: none."""

    host: Annotated[str, Opt("Address to serve metrics on; '::' is every address, IPv4 too.")] = "127.0.0.1"
    port: Annotated[
        int,
        Opt(
            "Port for the metrics of workers, or the next one that is free; 0: none. The api has GET /metrics.",
            type=types.Port(),
        ),
    ] = 0
