"""Options of the service itself: database, workers, leases, drivers, logging and metrics."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from oslo_config import types

from ferroscope.config.declaration import Opt
from ferroscope.core.delivery import DeliveryPolicy
from ferroscope.core.model import DEFAULT, FAST, LeaseProfile

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

# Additional drivers that ``ferroscope all --simulator`` enables.
SIMULATED: Final = ("sim", "fake-hardware")


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[database]``: the database and its timeouts; ``load`` fills in the default file."""

    connection: Annotated[
        str,
        Opt(
            "SQLAlchemy URL: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME. "
            "Write $$ for $, and %40 for @. For PostgreSQL, HOST may be a list: HOST:PORT,HOST:PORT. "
            "Empty: SQLite in /var/lib/ferroscope for root and for users who can write "
            "there, otherwise in ~/.local/state/ferroscope ($XDG_STATE_HOME/ferroscope).",
            secret=True,
        ),
    ] = ""
    pool_size: Annotated[int, Opt("Maximum number of connections of one process.", ge=2)] = 12
    busy_timeout: Annotated[
        float, Opt("Seconds to retry a transaction on lock conflicts before it fails with 503.", ge=0.1)
    ] = 5.0
    connect_timeout: Annotated[int, Opt("Timeout for connecting, in seconds.", ge=1)] = 5
    statement_timeout: Annotated[float, Opt("Timeout of one statement, in seconds.", ge=1)] = 5.0
    outage_retries: Annotated[
        int, Opt("Number of consecutive failed heartbeats after which a process exits (code 69); 0: never.", ge=0)
    ] = 60
    retry_interval: Annotated[float, Opt("Maximum seconds between retries of a transaction.", ge=0.001)] = 0.05


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[worker]``: the lanes, the queue and the members.

    ``threads`` 0: the number of processors, at least 4. ``bmc_slots`` 0: 128 for each of them, or 16 with an
    attached Ironic.
    """

    threads: Annotated[
        int,
        Opt(
            "Compute threads of one process (hooks and rules on callbacks); 0: the number of processors, at least 4.",
            ge=0,
        ),
    ] = 0
    bmc_slots: Annotated[
        int,
        Opt(
            "Maximum number of requests of one process that wait for BMCs; 0: 128 for each processor, or 16 with an "
            "attached Ironic.",
            ge=0,
        ),
    ] = 0
    requests_per_bmc: Annotated[
        int,
        Opt(
            "Maximum number of requests of one process to one BMC at a time, each for another system behind it (a "
            "chassis manager, for example). One system gets one request at a time.",
            ge=1,
        ),
    ] = 4
    get_timeout: Annotated[float, Opt("Seconds to wait for a request before checking the queue again.", ge=0.01)] = 3.0
    max_attempts: Annotated[int, Opt("Number of attempts at a request before its inspection fails.", ge=1)] = 3
    interrupted: Annotated[
        Literal["rerun", "error"],
        Opt("How to handle a strict request whose worker died: rerun it, or fail the inspection."),
    ] = "rerun"
    member_ttl: Annotated[
        float, Opt("Seconds without a heartbeat after which a process is considered dead.", ge=0.5)
    ] = 6.0
    graceful_timeout: Annotated[float, Opt("Seconds for running tasks to finish after SIGTERM.", ge=0)] = 30.0
    reboot_throttle: Annotated[
        float, Opt("Minimum seconds between power-ons, across all hosts; 0: no throttling.", ge=0)
    ] = 0.0

    @property
    def heartbeat_seconds(self) -> float:
        """Seconds between the heartbeats of a process: it may miss two of them without being considered dead."""
        return self.member_ttl / 4

    def delivery(self) -> DeliveryPolicy:
        return DeliveryPolicy(max_attempts=self.max_attempts, interrupted=self.interrupted)


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[lease]``: how fast leadership fails over; ``profile`` is a preset, ``custom`` uses ``ttl``."""

    profile: Annotated[
        Literal["default", "fast", "custom"],
        Opt("How fast leadership fails over: default (6 s), fast (3 s), or custom (ttl)."),
    ] = "default"
    ttl: Annotated[float, Opt("Seconds after which a lease expires without renewal (profile custom).", ge=1)] = 6.0

    def numbers(self) -> LeaseProfile:
        """Return the effective values, in seconds.

        A custom lease has the proportions of the default. A longer one is renewed as often as that: candidates take
        over early from a leader that is silent, and one that was free again is soon taken.
        """
        presets = {"default": DEFAULT, "fast": FAST}
        part = self.ttl / DEFAULT.ttl
        soon = min(part, 1.0)
        custom = LeaseProfile(
            ttl=self.ttl, renew=DEFAULT.renew * soon, poll=DEFAULT.poll * soon, margin=DEFAULT.margin * part
        )
        return presets.get(self.profile, custom)


class DriverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[drivers]``: the enabled BMC drivers, their timeouts, and the BMCs that they may connect to."""

    enabled: Annotated[
        tuple[str, ...],
        Opt(
            "Enabled drivers: redfish, ipmi; idrac, which is redfish with the names of interfaces that clients of "
            "Ironic use for Dell machines; sim for the simulator; fake-hardware (or fake), which accepts every "
            "command and does nothing; and drivers of other installed packages."
        ),
    ] = ("redfish", "ipmi")
    command_timeout: Annotated[
        float, Opt("Timeout in seconds of a BMC command, or of each request of one that makes progress.", ge=0.1)
    ] = 10.0
    inventory_timeout: Annotated[
        float,
        Opt(
            "Timeout of slow BMC commands, in seconds: reading the whole hardware inventory, inserting virtual media, "
            "and commands that make progress.",
            ge=0.1,
        ),
    ] = 60.0
    power_timeout: Annotated[float, Opt("Timeout in seconds for a power state to change after a command.", ge=0.1)] = (
        60.0
    )
    soft_power_off_timeout: Annotated[
        float,
        Opt("Timeout in seconds for an operating system to shut down or restart after a soft power command.", ge=0.1),
    ] = 600.0
    bmc_networks: Annotated[
        tuple[str, ...],
        Opt(
            "Networks of BMCs, such as 192.0.2.0/24,2001:db8::/64; drivers connect to no other address, whatever a "
            "name resolves to. Empty: any address except loopback, link-local, multicast and cloud metadata addresses, "
            "which must be listed."
        ),
    ] = ()
    allow_http_passwords: Annotated[
        bool, Opt("Send passwords to BMCs over plain HTTP, where they can be intercepted. For simulated BMCs.")
    ] = False
    ca_directory: Annotated[
        str, Opt("Directory on the workers that contains the CA files or directories for redfish_verify_ca of nodes.")
    ] = "/etc/ferroscope/ca"


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[log]``: structured lines on standard error."""

    level: Annotated[LogLevel, Opt("Minimum level.")] = "info"
    levels: Annotated[
        dict[str, str],
        Opt("Levels of individual loggers, such as ferroscope.worker:debug, ferroscope.access:warning."),
    ] = {}
    format: Annotated[Literal["console", "json"], Opt("Format of log lines: console or JSON.")] = "console"
    access: Annotated[
        bool,
        Opt("Log each API call: source, method, path without the query string, status, bytes, milliseconds."),
    ] = False


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[tracing]``: traces of inspections for OpenTelemetry, which needs the extra ``all``."""

    endpoint: Annotated[
        str,
        Opt(
            "URL to which spans are sent by OTLP over HTTP, such as http://192.0.2.5:4318/v1/traces; empty: traces are "
            "off."
        ),
    ] = ""


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[metrics]``: a separate port for the metrics of processes without an API.

    The certificate and the authentication are those of ``[api]``, the policy is that of ``GET /metrics``.
    """

    host: Annotated[str, Opt("Address to serve metrics on; '::': all addresses, IPv4 and IPv6.")] = "127.0.0.1"
    port: Annotated[
        int,
        Opt(
            "Port for the metrics of the other roles, or the next free one; 0: none. The api serves GET /metrics.",
            type=types.Port(),
        ),
    ] = 0
