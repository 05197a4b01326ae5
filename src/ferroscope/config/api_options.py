"""Options of the APIs: listeners, who may call, limits, and the web page."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from oslo_config import types

from ferroscope.config.declaration import Opt
from ferroscope_client.core.values import is_loopback as is_loopback

# Servers listen on these addresses, but no client can connect to them.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # they are replaced


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[api]``: listeners and limits. A port of 0 disables that listener."""

    host: Annotated[
        tuple[str, ...],
        Opt(
            "Addresses to listen on. localhost: this host only (127.0.0.1, and ::1 if available); '::': all addresses, "
            "IPv4 and IPv6. Ramdisks cannot reach localhost."
        ),
    ] = ("localhost",)
    auth_strategy: Annotated[
        Literal["noauth", "http_basic", "keystone"],
        Opt(
            "Authentication of callers: noauth (none; only for listeners on this host, see allow_anonymous), "
            "http_basic (http_basic_auth_user_file) or keystone ([keystone_authtoken])."
        ),
    ] = "noauth"
    http_basic_auth_user_file: Annotated[
        str,
        Opt(
            "File of users with lines NAME:BCRYPT-HASH:ROLE,...; roles: admin, manager, member, reader (the default) "
            "and service. It is read again when it changes."
        ),
    ] = "/etc/ferroscope/htpasswd"
    allow_anonymous: Annotated[
        bool,
        Opt(
            "Allow auth_strategy = noauth on listeners that other hosts can reach. Anyone who reaches them has full "
            "control of all machines."
        ),
    ] = False
    bare_metal_port: Annotated[int, Opt("Port of the Bare Metal API; 0 disables it.", type=types.Port())] = 6385
    introspection_port: Annotated[int, Opt("Port of the Introspection API; 0 disables it.", type=types.Port())] = 5050
    threads: Annotated[int, Opt("Maximum number of concurrent requests of one api process.", ge=1)] = 4
    public_url: Annotated[
        str, Opt("Base URL for links, if the API is behind a proxy. Empty: from the request's Host header.")
    ] = ""
    allowed_hosts: Annotated[
        tuple[str, ...],
        Opt(
            "Additional host names by which clients may call the APIs, such as the name of a load balancer; "
            ".example.org allows all subdomains, * any name. Always allowed: IP addresses, localhost, the host's name, "
            "[api] host, and the hosts of public_url and of the callback URLs. Other names get 421 (DNS rebinding)."
        ),
    ] = ()
    enable_ui: Annotated[
        bool,
        Opt("Serve the web page at /ui, with the authentication and policies of the API."),
    ] = True
    max_body_size: Annotated[
        int,
        Opt("Maximum size of a request body, in bytes; larger ones get 413. A typical inventory has 40 KB.", ge=1024),
    ] = 2 * 1024 * 1024
    max_limit: Annotated[int, Opt("Maximum number of items in one page of a list.", ge=1)] = 1000
    max_page_size: Annotated[
        int, Opt("Maximum bytes of one page of a list, unless its only item is larger; the rest follows.", ge=4096)
    ] = 8 * 1024 * 1024
    enable_ramdisk_endpoints: Annotated[
        bool, Opt("Serve the unauthenticated endpoints for ramdisks (continue_inspection, lookup, heartbeat).")
    ] = True
    heartbeat_timeout: Annotated[int, Opt("Maximum seconds between heartbeats of a ramdisk.", ge=1)] = 300
    tls_certificate_file: Annotated[
        str,
        Opt(
            "Certificate of the listeners in PEM format, followed by its intermediate certificates; both APIs and the "
            "metrics port then serve HTTPS only. Read again when it changes. Empty: plain HTTP."
        ),
    ] = ""
    tls_key_file: Annotated[str, Opt("Private key of tls_certificate_file in PEM format, not encrypted.")] = ""
    tls_minimum_version: Annotated[Literal["1.2", "1.3"], Opt("Oldest version of TLS that is accepted.")] = "1.2"
    tls_ciphers: Annotated[
        str,
        Opt(
            "Cipher suites of TLS 1.2, in OpenSSL's notation; TLS 1.3 suites are fixed. The default has forward "
            "secrecy and authenticated encryption. Old BMCs, and iPXE before 2022, may need AES128-SHA256 added."
        ),
    ] = "ECDHE+AESGCM:ECDHE+CHACHA20"
    tls_client_certificates: Annotated[
        Literal["off", "optional", "required"],
        Opt(
            "Whether to ask clients for a certificate: required rejects connections without one, ramdisks and health "
            "checks included; optional accepts them, but rejects invalid certificates."
        ),
    ] = "off"
    tls_client_ca_file: Annotated[
        str,
        Opt("CA certificates that sign client certificates, and optionally their revocation lists, in PEM format."),
    ] = ""
    tls_client_roles_file: Annotated[
        str,
        Opt(
            "File of the roles of client certificates with lines KIND:NAME:ROLE,...; the kind of a name is CN, the "
            "common name, or DNS, mail or URI, a name of subjectAltName. With auth_strategy http_basic or keystone, a "
            "client with a listed name needs no other credentials. It is read again when it changes."
        ),
    ] = ""
    drain_delay: Annotated[
        float,
        Opt(
            "Seconds after SIGTERM during which only the health check fails; set it behind a load balancer.",
            ge=0,
            le=60,
        ),
    ] = 0.0
    enable_metrics: Annotated[
        bool,
        Opt(
            "Serve GET /metrics for Prometheus, without a login unless the policy ferroscope:metrics:get requires one."
        ),
    ] = True
    header_timeout: Annotated[float, Opt("Timeout in seconds for receiving the header of a request.", ge=0.1)] = 15.0
    body_timeout: Annotated[
        float,
        Opt(
            "Timeout in seconds for receiving the body of a request. A client has as much time to read a response, "
            "plus a second for each 64 KiB.",
            ge=0.1,
        ),
    ] = 60.0
    idle_timeout: Annotated[float, Opt("Seconds that a connection is kept open between requests.", ge=0.1)] = 60.0
    max_connections: Annotated[
        int,
        Opt(
            "Maximum number of connections of one process; above it, the one that has been idle longest is closed.",
            ge=16,
        ),
    ] = 4096
    max_connections_per_source: Annotated[
        int,
        Opt("The same limit for one source address (IPv6: one /64); trusted proxies are exempt.", ge=1),
    ] = 256
    max_buffered: Annotated[
        int,
        Opt(
            "Maximum bytes of incomplete bodies and unread responses in one process; above it, the oldest is dropped.",
            ge=1024 * 1024,
        ),
    ] = 64 * 1024 * 1024
    max_requests_per_source: Annotated[
        int,
        Opt(
            "Maximum number of requests of one source address that wait or run in one process; above it, 429 "
            "(ramdisks: 503). Behind a trusted proxy, the address that it reports counts.",
            ge=1,
        ),
    ] = 384
    max_concurrent_requests: Annotated[
        int,
        Opt(
            "Maximum number of requests of one source address that run at the same time in one process; above it, 429. "
            "0: no limit but threads. The calls of ramdisks are not counted.",
            ge=0,
        ),
    ] = 0
    request_rate: Annotated[
        float,
        Opt(
            "Requests per second of one source address above which it gets 429, in one process, after a burst of 200; "
            "0: no limit.",
            ge=0,
        ),
    ] = 0.0
    max_lease_names: Annotated[
        int, Opt("Maximum number of lease names of one caller: of a user, or of a source address.", ge=0)
    ] = 250
    max_project_nodes: Annotated[
        int,
        Opt(
            "Maximum number of nodes of a project that its own callers enroll, each of them with a mean of 20 ports "
            "and port groups; 0: no limit.",
            ge=0,
        ),
    ] = 1000
    max_project_bytes: Annotated[
        int,
        Opt(
            "Maximum bytes of a project's nodes, their ports and port groups, and of inspection data in the database; "
            "as max_project_nodes.",
            ge=0,
        ),
    ] = 1024 * 1024 * 1024
    lease_quotas: Annotated[
        dict[str, str],
        Opt(
            "Other limits, such as backup/:10,controller:500: of the names of one caller below a prefix, and of all "
            "names of a user. The longest prefix counts, then the user; 0 allows none."
        ),
    ] = {}
    trusted_proxies: Annotated[
        tuple[str, ...],
        Opt(
            "Addresses or networks of proxies whose X-Forwarded-For is trusted, such as 192.0.2.10,10.0.0.0/24; limits "
            "by source address then apply to the clients behind them."
        ),
    ] = ()
    failure_rate: Annotated[
        float,
        Opt(
            "Rate of failed calls of ramdisks and BMCs (lookups, callbacks, heartbeats, boot scripts, disks), per "
            "second, above which a source address gets 429, after a burst of 100; what is waited for gets through up "
            "to ten times that. "
            "0: no limit. Wrong passwords are counted apart, for each name, at most 20 in a burst. An IPv6 /64 counts "
            "as one address.",
            ge=0,
        ),
    ] = 1.0

    @property
    def tls(self) -> bool:
        """Whether the listeners serve HTTPS."""
        return bool(self.tls_certificate_file)

    @property
    def loopback_only(self) -> bool:
        """Whether other hosts can reach the API only through a proxy on this host."""
        return all(is_loopback(host) for host in self.host)

    @property
    def url(self) -> str:
        """The URL of the Bare Metal API as clients reach it, "" if there is none; best from this host."""
        return self.url_at(self._local_host) if self.bare_metal_port else ""

    def url_at(self, host: str) -> str:
        """Return the URL of the Bare Metal API on a host, unless the configuration has another, public one."""
        return self.public_url.rstrip("/") or self._own_url(host)

    @property
    def page_url(self) -> str:
        """The URL of the web page, "" if there is none; best from other hosts, because servers have no browser.

        If a proxy serves the API below a path, the page is not there: its links begin with /ui.
        """
        if not self.bare_metal_port or not self.enable_ui:
            return ""
        if self.public_url and not urlsplit(self.public_url).path.strip("/"):
            return f"{self.url}/ui"
        reachable = next((host for host in self.host if host not in _ANY and not is_loopback(host)), "")
        return f"{self._own_url(reachable or self._local_host)}/ui"

    @property
    def _local_host(self) -> str:
        host = "127.0.0.1" if "localhost" in self.host or not self.host else self.host[0]
        return _ANY.get(host, host)

    def _own_url(self, host: str) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.bare_metal_port}"
