"""The reference of the api's limits: in which order they apply, and how they add up, with the numbers of the code."""

from __future__ import annotations

from typing import Final

from ferroscope import transition
from ferroscope.api import rate_limit
from ferroscope.api.auth import failures
from ferroscope.api.baremetal import notes, quotas
from ferroscope.api.http import conditions, decoding, large_lists
from ferroscope.api.service import leases
from ferroscope.config.options import (
    ApiSettings,
    AuditSettings,
    InspectorSettings,
    WorkerSettings,
)
from ferroscope.contrib.ui import session
from ferroscope.core import lookup, saved_search
from ferroscope.db import nodes as db_nodes
from ferroscope.db import requests
from ferroscope.db.leases import MOST_CANDIDATES
from ferroscope.hardware import parts
from ferroscope.http_server import connection as http_connection
from ferroscope.http_server import incoming as http_incoming
from ferroscope.http_server import limits as http_limits
from ferroscope.http_server import server
from ferroscope.periodic import notifications
from ferroscope.remote import resolver
from ferroscope.rules import data as rule_data
from ferroscope_client.core import advice, json_safety, values

_MIB: Final = 1024 * 1024
# Measured: what a body of the default maximum size takes at most while it is decoded, and an idle connection.
_DECODED_MIB: Final = 30
# A page of the default maximum size, and a group of nodes that is decoded, in the worst case.
_LIST_MIB: Final = 110
_CONNECTION_KIB: Final = 4
_TLS_CONNECTION_KIB: Final = 30


def render() -> str:
    """Return the page."""
    api = ApiSettings()
    body, buffered = api.max_body_size // _MIB, api.max_buffered // _MIB
    connections = api.max_connections * _CONNECTION_KIB // 1024
    tls = api.max_connections * _TLS_CONNECTION_KIB // 1024
    decoded = api.threads * _DECODED_MIB
    lists = large_lists.AT_ONCE * _LIST_MIB
    failed = f"{rate_limit.FAILURE_BURST}, then {api.failure_rate:g} per second"
    rows = [
        ("bytes of a header", f"{http_incoming.HEAD_BYTES // 1024} KiB", "", "431, the connection ends"),
        ("form of a request", "RFC 9112, strictly", "", "400 or 501, the connection ends"),
        ("fields of a header", f"{http_incoming.MAX_FIELDS}", "", "431, the connection ends"),
        ("seconds for TLS handshake and header", f"{api.header_timeout:g}", "header_timeout", "408 or closed"),
        ("seconds for a body, and for reading a response", f"{api.body_timeout:g}", "body_timeout", "408 or closed"),
        ("seconds between requests", f"{api.idle_timeout:g}", "idle_timeout", "closed"),
        ("connections of a process", f"{api.max_connections:,}", "max_connections",
         "the longest idle one of the source with most is closed"),
        ("connections of a source", f"{api.max_connections_per_source}", "max_connections_per_source",
         "its longest idle one is closed"),
        ("pipelined requests of a connection", f"{http_connection._MAX_PIPELINED_REQUESTS}", "", "closed"),
        ("bytes of a body", f"{body} MiB", "max_body_size", "413"),
        ("chunks of a body",
         f"{http_incoming.MAX_SMALL_CHUNKS:,}, and one per {http_incoming.MIN_CHUNK_BYTES} bytes", "",
         "400, the connection ends"),
        ("bytes of incomplete requests and unread responses", f"{buffered} MiB", "max_buffered",
         "the oldest of the source with most is closed"),
        ("requests that wait for a thread", f"{http_limits._MAX_QUEUED_REQUESTS}", "",
         "nothing more is read, first from a source with as many as are left; deadlines also wait"),
        ("bytes of requests that wait for a thread", f"{buffered} MiB", "max_buffered", "the same"),
        ("requests of a source that wait or run", f"{api.max_requests_per_source}", "max_requests_per_source",
         "429; ramdisks get 503, which they repeat"),
        ("requests that run", f"{api.threads}", "threads", "others wait"),
        (f"requests that run with a body of more than {http_connection.LONG_BYTES // 1024} KiB",
         f"{api.threads // 2}", "threads", "others wait, and let shorter ones pass"),
        ("host name", "the service's names", "allowed_hosts", "421"),
        ("requests of a source that run", _number(api.max_concurrent_requests), "max_concurrent_requests", "429"),
        (f"requests of a source per second, after a burst of {rate_limit.REQUEST_BURST}", _number(api.request_rate),
         "request_rate", "429"),
        ("bytes of a JSON document, other than a callback", f"{decoding.MAX_DOCUMENT_SIZE // _MIB} MiB", "", "413"),
        ("bytes of a heartbeat", f"{decoding.MAX_HEARTBEAT_SIZE // 1024} KiB", "", "413"),
        ("levels of JSON", f"{json_safety.MAX_DEPTH}", "", "400"),
        ("objects and arrays of JSON", f"{json_safety.MAX_CONTAINERS:,}", "", "400, before it is decoded"),
        ("values of JSON", f"{json_safety.MAX_VALUES_PER_CONTAINER * json_safety.MAX_CONTAINERS:,}", "",
         "400, before it is decoded"),
        ("JSON values, if one of them must be repaired", f"{json_safety.MAX_REPAIRED_VALUES:,}", "", "400"),
        ("failed calls of ramdisks and BMCs, of a source", failed, "failure_rate",
         "429, a body before it is decoded, except for awaited machines, up to "
         f"{rate_limit.FLOOD_FACTOR} times as many, and for callers with the right secret, token or key"),
        ("addresses of a machine that called", f"{db_nodes.MAX_CALLERS}", "", "the oldest are forgotten"),
        ("unknown machines whose refused calls are kept, of a source",
         f"{advice.MAX_REFUSED_CALLERS_OF_SOURCE}; {lookup.MAX_REFUSED_CALLERS} of all", "",
         "the oldest of the source with most are forgotten"),
        ("bytes of discovered machines that wait",
         f"{lookup.MEAN_WAITING_BYTES // 1024} KiB for each machine that may wait", "", "404"),
        ("wrong passwords of a name from a source", f"{failures.BURST_FAILURES}, then {api.failure_rate:g} per second",
         "failure_rate", "429; access tokens, and passwords in use, are not affected"),
        ("wrong passwords from a source",
         f"{failures.BURST_FAILURES}, then {api.failure_rate:g} per second, and 3 of each name",
         "failure_rate", "the same"),
        ("passwords that are hashed at the same time", f"{max(1, api.threads - 2)}", "threads", "503"),
        ("MAC addresses of a machine in a lookup or callback", f"{lookup.MAX_MACS}", "",
         f"400; {rate_limit.GUESSES_PER_FAILURE} count as one failed call"),
        ("logins of a user at the web page", f"{session.MAX_SESSIONS}", "", "the oldest one ends"),
        ("nodes of a project that its own callers enroll", f"{api.max_project_nodes:,}", "max_project_nodes", "403"),
        ("ports and port groups of a project's nodes", f"{api.max_project_nodes * quotas.PORTS_PER_NODE:,}",
         "max_project_nodes", "403"),
        ("bytes of a project's nodes, ports and inspection data", f"{api.max_project_bytes // _MIB:,} MiB",
         "max_project_bytes", "403"),
        ("items in a page of a list", f"{api.max_limit:,}", "max_limit", "a shorter page"),
        ("bytes of a page of a list", f"{api.max_page_size // _MIB} MiB", "max_page_size",
         "a shorter page, with a link to the next one"),
        ("lists of more than 1 MiB that are made at once", f"{large_lists.AT_ONCE}", "", "others wait, then 503"),
    ]  # fmt: skip
    table = "".join(f"| {what} | {value} | {_options(option)} | {then} |\n" for what, value, option, then in rows)
    resources = "".join(f"| {' | '.join(row)} |\n" for row in _resources(api))
    return f"""\
<!-- Generated by `make docs` from the options and constants of the api; do not edit. -->
# API limits

Each process counts separately: with `--processes N`, the limits of a host are N times as high. [ADR
029](../adr/029-how-limits-add-up.md) has the reasons, [the options](configuration.md#api) the exact meaning.

## In the order in which they apply

| what | default | option in [api] | above it |
|---|---|---|---|
{table}
A *source* is the address of a connection, or, behind a proxy in `[api] trusted_proxies`, the address that the proxy
reports; an IPv6 /{values.IPV6_PREFIX} counts as one. Connections of a trusted proxy have no limit of their own,
since many clients share them. Health checks, version documents and the calls of ramdisks do not count against
`max_concurrent_requests` and `request_rate`.

A 429 has `Retry-After`, except for python-ironicclient, which breaks on it. A rejected request has changed nothing.

## What a caller can use up, besides

*Anyone* needs no account, but reaches the listener. *Projects* are callers whose rights end at the nodes of a project.

| resource | who can use it up | bound | test |
|---|---|---|---|
{resources}
An audit event and a timeline entry take about 0.5 KB of the database for each change. Only the rate of calls, and the
time for which they are kept, bound their number: set `request_rate` if you do not trust the callers of projects.

## How they add up

One process uses at most

* {buffered} + {buffered} MiB for incomplete and for queued requests of clients,
* {connections} MiB for {api.max_connections:,} connections ({_CONNECTION_KIB} KiB each); with TLS {tls} MiB
  ({_TLS_CONNECTION_KIB} KiB each, once the handshake is complete),
* about {lists} MiB for {large_lists.AT_ONCE} large lists, however many and however large nodes they are about,
* {decoded} MiB for {api.threads} bodies that are decoded at the same time ({_DECODED_MIB} MiB each in the worst case),
* about 100 MiB for itself.

The systemd unit of the api sets `MemoryMax` above the sum. If you raise `max_connections`, `max_buffered` or `threads`,
raise it too. The limit of open files (`LimitNOFILE`) must exceed `max_connections` by {http_limits._OTHER_FILES};
otherwise fewer connections are accepted. If no descriptor is left, the listener pauses for {server._PAUSE_SECONDS:g} s.

## Wrong passwords

Brute force is limited by name and source, and by source. So who shares an address with an attacker (NAT, a proxy that
is not trusted, other users of a host, for whom 127.0.0.0/8 and ::1 are one source) can still log in:

* An access token has 256 bits. It is always checked, and a wrong one is not counted.
* A password that was right is remembered for 12 hours since its last use, in each process. Until the file of users
  changes it, or the process ends, it is accepted whatever others do.
* A wrong password that is only repeated, as by a program that has an old one, is not counted.
* The limit of a name does not concern other names. If the whole source is over its limit, each name still has
  {failures.BURST_MISTYPED} tries, and a name that nobody tries to guess gets the last free check.

What remains: an attacker who guesses the password of the same name, or invents a name for each guess, delays the first
login from his address in 12 hours: the wait ends as soon as one of the checks, one each second, is for the right
password. Give programs tokens, and set `trusted_proxies`.

## If many clients share an address

Machines behind NAT, or all clients behind a load balancer that is not in `trusted_proxies`, are one source. The default
{api.max_requests_per_source} requests and {api.max_connections_per_source} idle connections are enough for some
thousands of machines, because a ramdisk calls for a moment only. Set `trusted_proxies` before you raise anything.
"""


def _resources(api: ApiSettings) -> list[tuple[str, str, str, str]]:
    worker, inspector = WorkerSettings(), InspectorSettings()
    days = f"{inspector.retention / 86_400:g} days"
    kept_mib = requests.MAX_REPLIES * conditions._MAX_REPLY_BYTES // _MIB
    return [
        ("processor time for JSON, patches, searches", "anyone",
         "it grows with the bytes only; values are counted before, and searches have a number of conditions",
         "`tests/fast/core/test_json_safety.py`, `tests/fast/api/test_patch.py`, "
         "`tests/fast/core/test_domain_query.py`"),
        ("memory for what is known of sources, tokens and BMCs", "anyone",
         "the oldest of some thousands is forgotten",
         "`tests/fast/api/test_rate_limit.py`, `tests/fast/worker/test_admission.py`"),
        ("log lines", "anyone", "one of a kind in some seconds, with the number left out",
         "`tests/fast/api/test_rate_limit.py`, `tests/fast/api/test_outage_log.py`"),
        ("labels of metrics", "nobody", "routes, methods, states and outcomes of ours", "`tests/api/test_metrics.py`"),
        ("files", "nobody", "bodies and images are never written to a file", ""),
        ("nodes and data of unknown machines", "anyone, if discovery is on",
         "`[auto_discovery]`: a number in all, of a source, and per minute",
         "`tests/api/test_discovery.py`, `tests/api/test_attacks.py`"),
        ("refused calls of unknown machines", "anyone",
         f"{lookup.MAX_REFUSED_CALLERS} machines, each once in {lookup.REPEATED_CALL_SECONDS:g} s",
         "`tests/api/test_refused_callers.py`"),
        ("timeline", "ramdisks", "a refusal once a minute", "`tests/api/test_attacks.py`"),
        ("timeline, outside of inspections", "projects", f"{days}; no number", "`tests/store/test_journal.py`"),
        ("audit events", "projects", f"{AuditSettings().retention_days:g} days; no number",
         "`tests/api/test_audit.py`"),
        ("queue", "projects",
         f"{transition.MAX_WAITING_COMMANDS} commands of a node wait, then 409; one inspection of a node",
         "`tests/api/test_provision.py`"),
        ("replies for an `Idempotency-Key`", "projects",
         f"{conditions._MAX_REPLY_BYTES // 1024} KiB each, and the newest {requests.MAX_REPLIES:,} ({kept_mib} MiB)",
         "`tests/api/test_repeated_calls.py`, `tests/store/sql/test_lost_answers.py`"),
        ("inspections and their data", "projects",
         f"{inspector.retention_number} of a node, {days}; bytes in the database count for `max_project_bytes`, "
         "those in an object store do not",
         "`tests/store/test_retention.py`, `tests/api/test_quotas.py`"),
        ("search index", "projects", f"{parts.MAX_PARTS} parts of a kind of a node",
         "`tests/store/test_search_index.py`"),
        ("saved searches; notes; logins", "projects",
         f"{saved_search.MAX_SEARCHES} of a user; {notes.MAX_NOTES} of a node; {session.MAX_SESSIONS} of a user",
         "`tests/api/test_saved_searches.py`, `tests/api/test_upkeep.py`, `tests/store/test_web_sessions.py`"),
        ("notifications", "projects",
         f"{notifications.MAX_PENDING_EVENTS:,} wait for a target, the oldest is given up",
         "`tests/store/test_outbox.py`"),
        ("threads and subprocesses for BMCs", "projects",
         f"`[worker] bmc_slots`; {worker.requests_per_bmc} requests of a BMC, half of the slots for a network; "
         "as many more threads for silent BMCs. BMCs with a host name count for no network",
         "`tests/fast/worker/test_admission.py`"),
        ("DNS lookups", "projects, by names of BMCs",
         f"{resolver.MAX_LOOKUPS} at a time, of which BMCs get {resolver.MAX_BMC_LOOKUPS}",
         "`tests/system/bmc/test_addresses.py`"),
        ("time and bytes of an answer", "BMCs and other servers", "each call ends by its time-out, and at a size",
         "`tests/system/bmc/test_redfish_nonsense.py`, `tests/system/service/test_lying_peers.py`"),
        ("lease names; those who wait for one", "members of the system",
         f"{api.max_lease_names} of a caller, {leases.MAX_NAMES:,} in all; {MOST_CANDIDATES}",
         "`tests/api/test_leases.py`"),
        ("rules", "administrators", f"{rule_data.MAX_RULES:,}; expressions have a time limit", "`tests/fast/rules`"),
    ]  # fmt: skip


def _number(value: float) -> str:
    return f"{value:g}" if value else "no limit"


def _options(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", ")) if names else ""
