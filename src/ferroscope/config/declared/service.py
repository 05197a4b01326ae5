"""Options of the service itself: its processes, what they listen on, and what they talk to."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

API: Final = (
    cfg.ListOpt(
        "host",
        default=["localhost"],
        help="Addresses to listen on. localhost: this host alone (127.0.0.1, and ::1 where there is one); "
        "'::' is every address, IPv4 too. Ramdisks cannot reach localhost.",
    ),
    cfg.PortOpt("bare_metal_port", default=6385, help="Port of the Bare Metal API; 0 disables it."),
    cfg.PortOpt("introspection_port", default=5050, help="Port of the Introspection API; 0 disables it."),
    cfg.IntOpt("threads", default=4, min=1, help="Requests answered at the same time by one api process."),
    cfg.StrOpt(
        "public_url", default="", help="Base URL in links, where a proxy changes it; empty: as the client named us."
    ),
    cfg.IntOpt(
        "max_body_size",
        default=2 * 1024 * 1024,
        min=1024,
        help="Largest request body, in bytes; a larger one is answered 413. Inventories of 40 KB are usual.",
    ),
    cfg.IntOpt("max_json_depth", default=25, min=1, help="Deepest nesting that a request body may have."),
    cfg.IntOpt("max_limit", default=1000, min=1, help="Most items in one page of a list."),
    cfg.BoolOpt(
        "enable_ramdisk_endpoints",
        default=True,
        help="Serve the unauthenticated endpoints for ramdisks (continue_inspection, lookup, heartbeat).",
    ),
    cfg.IntOpt("heartbeat_timeout", default=300, min=1, help="Longest interval between heartbeats, in seconds."),
    cfg.FloatOpt(
        "drain_delay",
        default=0.0,
        min=0.0,
        max=60.0,
        help="Seconds after SIGTERM for which only the health check fails; set it behind a load balancer.",
    ),
    cfg.BoolOpt("enable_metrics", default=True, help="Serve GET /metrics for Prometheus, without authentication."),
    cfg.FloatOpt(
        "header_timeout", default=15.0, min=0.1, help="Seconds until the header of a request must have come, all of it."
    ),
    cfg.FloatOpt(
        "body_timeout",
        default=60.0,
        min=0.1,
        help="Seconds until the body of a request must have come, all of it. A client has as long to read an answer, "
        "and a second more for each 64 KiB.",
    ),
    cfg.FloatOpt(
        "idle_timeout", default=60.0, min=0.1, help="Seconds for which a connection is kept between requests."
    ),
    cfg.IntOpt(
        "max_connections",
        default=4096,
        min=16,
        help="Most connections of one process; beyond that the one whose client has been silent for longest is closed.",
    ),
    cfg.IntOpt(
        "max_connections_per_source",
        default=256,
        min=1,
        help="The same for connections from one source address (of IPv6: one /64), those of trusted proxies apart.",
    ),
    cfg.IntOpt(
        "max_buffered",
        default=64 * 1024 * 1024,
        min=1024 * 1024,
        help="Bytes of half-sent bodies and unread answers that one process keeps; beyond that the oldest is given up.",
    ),
    cfg.ListOpt(
        "trusted_proxies",
        default=[],
        help="Addresses or networks of proxies whose X-Forwarded-For is believed, such as 192.0.2.10,10.0.0.0/24; "
        "limits by source address then count those behind them.",
    ),
    cfg.FloatOpt(
        "failure_rate",
        default=1.0,
        min=0.0,
        help="Failed lookups and refused callbacks per second that one source address may have before it gets 429; "
        "0: no limit. An IPv6 /64 counts as one address.",
    ),
    cfg.IntOpt("failure_burst", default=100, min=1, help="How many of them it may have at once."),
)


DATABASE: Final = (
    cfg.StrOpt(
        "connection",
        default="",
        secret=True,
        help="SQLAlchemy URL: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME. "
        "In it $$ stands for $, %40 for @. Empty: SQLite in /var/lib/ferroscope for root and for whoever may write "
        "there, else in ~/.local/state/ferroscope ($XDG_STATE_HOME/ferroscope).",
    ),
    cfg.IntOpt("pool_size", default=12, min=2, help="Connections that one process keeps at the most."),
    cfg.FloatOpt("busy_timeout", default=5.0, min=0.1, help="Seconds to try when others are in the way, before a 503."),
    cfg.IntOpt("connect_timeout", default=5, min=1, help="Seconds to wait for a connection."),
    cfg.FloatOpt("statement_timeout", default=5.0, min=1.0, help="Longest time of one statement, in seconds."),
    cfg.IntOpt(
        "outage_retries",
        default=60,
        min=0,
        help="Heartbeats in a row without an answer after which a process stops itself (exit code 69); 0: never.",
    ),
    cfg.FloatOpt("retry_interval", default=0.05, min=0.001, help="Longest pause between two tries, in seconds."),
    cfg.FloatOpt(
        "poll_interval", default=0.25, min=0.01, help="Seconds between two looks at the queue where nobody wakes us up."
    ),
)


WORKER: Final = (
    cfg.IntOpt(
        "threads",
        default=0,
        min=0,
        help="Threads of one process that compute (hooks and rules on callbacks); 0: the number of processors.",
    ),
    cfg.IntOpt(
        "bmc_slots",
        default=0,
        min=0,
        help="How many requests of one process wait for BMCs at the same time; 0: 128 for each processor.",
    ),
    cfg.FloatOpt("get_timeout", default=3.0, min=0.01, help="Seconds to wait for a request before asking again."),
    cfg.IntOpt("max_attempts", default=3, min=1, help="Deliveries of one request before its inspection fails."),
    cfg.StrOpt(
        "interrupted",
        default="rerun",
        choices=["rerun", "error"],
        help="What becomes of a strict request whose worker died: run it again, or fail the inspection.",
    ),
    cfg.FloatOpt("retry_delay", default=1.0, min=0.0, help="Seconds before a request is tried again."),
    cfg.FloatOpt("member_ttl", default=6.0, min=0.5, help="Seconds after which a silent process counts as dead."),
    cfg.FloatOpt("heartbeat_interval", default=1.5, min=0.1, help="Seconds between a process's heartbeats."),
    cfg.FloatOpt("graceful_timeout", default=30.0, min=0.0, help="Seconds for running tasks to end after SIGTERM."),
    cfg.FloatOpt(
        "reboot_throttle", default=0.0, min=0.0, help="Least seconds between two power-ons, over all hosts; 0: none."
    ),
)


LEASE: Final = (
    cfg.StrOpt(
        "profile",
        default="default",
        choices=["default", "fast", "custom"],
        help="How fast leadership moves on: default (6 s), fast (3 s), or the numbers below.",
    ),
    cfg.FloatOpt("ttl", default=6.0, min=1.0, help="Seconds that a lease lives without renewal (profile custom)."),
    cfg.FloatOpt("renew", default=1.5, min=0.1, help="Seconds between two renewals (profile custom)."),
    cfg.FloatOpt(
        "poll",
        default=0.5,
        min=0.05,
        help="Seconds between two tries of a candidate that nobody wakes up (profile custom).",
    ),
    cfg.FloatOpt(
        "margin", default=1.0, min=0.1, help="Seconds by which a leader stops before its lease ends (profile custom)."
    ),
)


REGISTRY: Final = (
    cfg.StrOpt(
        "url",
        default="",
        help="Base URL of a Bare Metal API; nodes that it no longer tracks are marked as orphans here, and deleted "
        "after delete_after. Empty: nodes are our own.",
    ),
    cfg.FloatOpt("sync_period", default=30.0, min=0.0, help="Seconds between two comparisons with it; 0: never."),
    cfg.FloatOpt(
        "max_missing",
        default=0.1,
        min=0.0,
        max=1.0,
        help="Which part of our nodes it may lack at most (one node in any case): where it lacks more, or has none at "
        "all, nothing is marked and nothing deleted, and ferroscope status says so.",
    ),
    cfg.FloatOpt(
        "delete_after",
        default=259_200.0,
        min=0.0,
        help="Seconds (3 days) for which a node is an orphan before it is deleted; one that is protected, has an "
        "instance_uuid or is under inspection stays. 0: never.",
    ),
    cfg.FloatOpt("timeout", default=10.0, min=0.1, help="Seconds that one request to it may take."),
    cfg.IntOpt("retries", default=3, min=0, help="How often a request to it is tried again."),
)


DRIVERS: Final = (
    cfg.ListOpt(
        "enabled",
        default=["redfish", "ipmi"],
        help="The drivers that nodes may have: redfish, ipmi; sim for the simulator; fake-hardware (or fake), "
        "a BMC that agrees to everything and does nothing.",
    ),
    cfg.FloatOpt("command_timeout", default=10.0, min=0.1, help="Hard deadline of one BMC command, in seconds."),
    cfg.IntOpt(
        "command_tries",
        default=4,
        min=1,
        max=100,
        help="How often a Redfish or IPMI BMC is asked at most within one command, where trying again may help.",
    ),
    cfg.FloatOpt(
        "inventory_timeout",
        default=60.0,
        min=0.1,
        help="Hard deadline of what takes a BMC longer, in seconds: reading all hardware, inserting a virtual medium.",
    ),
    cfg.FloatOpt("power_timeout", default=60.0, min=0.1, help="Seconds for the power state to follow a command."),
    cfg.FloatOpt(
        "power_poll_interval", default=0.05, min=0.001, help="Seconds between two looks at a power state that lags."
    ),
    cfg.ListOpt(
        "bmc_networks",
        default=[],
        help="Networks that BMCs are in, such as 192.0.2.0/24,2001:db8::/64: no driver connects to any other address, "
        "whatever a name resolves to. Empty: everywhere.",
    ),
    cfg.BoolOpt(
        "allow_http_passwords",
        default=False,
        help="Log in to BMCs by http, without TLS: anybody on the way can read the password. For simulated BMCs.",
    ),
    cfg.StrOpt(
        "ca_directory",
        default="/etc/ferroscope/ca",
        help="The directory on the workers below which redfish_verify_ca of a node finds its CA file or directory.",
    ),
)


METRICS: Final = (
    cfg.StrOpt("host", default="127.0.0.1", help="Address to serve metrics on; '::' is every address, IPv4 too."),
    cfg.PortOpt(
        "port",
        default=0,
        help="Port for the metrics of workers, or the next one that is free; 0: none. The api has GET /metrics.",
    ),
)


LOG: Final = (
    cfg.StrOpt(
        "level", default="info", choices=["debug", "info", "warning", "error"], help="Least level that is logged."
    ),
    cfg.DictOpt(
        "levels",
        default={},
        help="Other levels for parts of the service, such as ferroscope.worker:debug, ferroscope.access:warning.",
    ),
    cfg.StrOpt("format", default="console", choices=["console", "json"], help="Lines for people or for machines."),
    cfg.BoolOpt(
        "access",
        default=False,
        help="A line for each call of the APIs: source, method, path without its query, status, bytes, milliseconds.",
    ),
)
