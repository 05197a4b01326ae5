"""Constraints between options, which oslo.config cannot check: it sees one option at a time."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final, get_args
from urllib.parse import urlsplit

from ferroscope.config.api_options import ApiSettings
from ferroscope.config.inspection_options import MAX_FORWARDED_CALLBACKS
from ferroscope.config.options import Settings
from ferroscope.config.service_options import LogLevel
from ferroscope_client.core import labels
from ferroscope_client.core.host_spelling import refusal_of_host, refusal_of_url, refusal_of_urls

# Seconds for which a new node of Ironic may be unknown to the PXE filter. Source: the specification for high
# availability of ironic-inspector, which has the same limit and default.
_SYNC_PERIOD: Final = 30.0


def problems(settings: Settings) -> Iterator[str]:
    """Yield each violated constraint, with the values that violate it."""
    api = settings.api
    levels = get_args(LogLevel)
    for part, level in settings.log.levels.items():
        if level not in levels:
            yield f"[log] levels: invalid level {level!r} for {part}; expected one of {', '.join(levels)}"
    if api.bare_metal_port and api.bare_metal_port == api.introspection_port:
        yield (
            f"[api] bare_metal_port and introspection_port are both {api.bare_metal_port}; they must differ "
            "(0 disables one of them)"
        )
    for name, number in api.lease_quotas.items():
        if not number.isdecimal():
            yield f"[api] lease_quotas: {number!r} for {name} is not a number of names"
    registry = settings.registry
    if registry.backend != "embedded" and not 0 < registry.sync_period <= _SYNC_PERIOD:
        yield (
            f"[registry] sync_period is {registry.sync_period:g}, but with backend = {registry.backend} it must be "
            f"greater than 0 and at most {_SYNC_PERIOD:g}: nodes and ports are read from Ironic this often, and a "
            "machine that is new there may boot from the inspection network until then"
        )
    yield from _spelling_problems(settings)
    yield from _tls_problems(api)
    yield from _forwarding_problems(settings)
    yield from _inspection_problems(settings)
    yield from _network_problems(settings)
    for added in settings.parts.values():
        if wrong := getattr(added, "problem", str)():
            yield wrong
    for check in (settings.notifications.targets, settings.bus.broker):
        try:
            check()
        except ValueError as exc:
            yield str(exc)
    if not settings.drivers.ca_directory.startswith("/"):
        yield f"[drivers] ca_directory is {settings.drivers.ca_directory!r}, but must be an absolute path"


def _inspection_problems(settings: Settings) -> Iterator[str]:
    inspector = settings.inspector
    image = inspector.ramdisk_iso
    if image and not image.startswith("/") and (why := refusal_of_url(image)):
        yield f"[inspector] ramdisk_iso: {why}"
    if image.startswith("/") and not settings.callback_base:
        yield (
            f"[inspector] ramdisk_iso is the file {image}, so [inspector] "
            "callback_endpoint_override (or [api] public_url) must say at which URL BMCs reach the API"
        )
    if inspector.reinspect_nodes.strip():
        try:
            labels.selector(inspector.reinspect_nodes)
        except labels.LabelError as exc:
            yield f"[inspector] reinspect_nodes: {exc}"
    try:
        _ = inspector.ignored
    except ValueError as exc:
        yield f"[inspector] ignored_macs: {exc}"


def _network_problems(settings: Settings) -> Iterator[str]:
    networks = {
        "[api] trusted_proxies": settings.api.trusted_proxies,
        "[drivers] bmc_networks": settings.drivers.bmc_networks,
        "[notifications] networks": settings.notifications.networks,
    }
    for option, texts in networks.items():
        for text in texts:
            try:
                ipaddress.ip_network(text)
            except ValueError as exc:
                yield f"{option}: {exc}; expected an address or a network, such as 192.0.2.10 or 10.0.0.0/24"


# Options whose words are hosts; URLs are looked for in all options.
_HOST_OPTIONS: Final = frozenset({"host", "hosts", "addresses", "memcached_servers"})


def _spelling_problems(settings: Settings) -> Iterator[str]:
    """Yield each host that different programs would read as different addresses."""
    for name in settings.names:
        section = settings.section(name)
        for option in section.__struct_fields__:
            value = getattr(section, option)
            why = refusal_of_urls(value)
            if not why and option in _HOST_OPTIONS:
                texts = [value] if isinstance(value, str) else value
                words = [word for text in texts for word in str(text).replace(",", " ").split()]
                why = next(filter(None, (refusal_of_host(_without_port(word)) for word in words)), "")
            if why:
                yield f"[{name}] {option}: {why}"


def _without_port(word: str) -> str:
    host, _, port = word.rpartition(":")
    return host if host and ":" not in host and port.isdecimal() else word


def _forwarding_problems(settings: Settings) -> Iterator[str]:
    inspector, url = settings.inspector, settings.inspector.forward_unknown_to
    if not url:
        return
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.username or parts.password or parts.query or parts.fragment:
        yield (
            "[inspector] forward_unknown_to is not a URL of the form http://HOST:PORT/v1/continue, without a user, a "
            "password and a query"
        )
    if settings.api.threads <= MAX_FORWARDED_CALLBACKS:
        yield (
            f"[api] threads is {settings.api.threads}, but must be more than {MAX_FORWARDED_CALLBACKS} with "
            "[inspector] forward_unknown_to; otherwise forwarded callbacks could occupy all threads"
        )
    for option, enabled in (
        ("[auto_discovery] enabled", settings.auto_discovery.enabled),
        ("[inspector] permit_active", inspector.permit_active),
    ):
        if enabled:
            yield f"[inspector] forward_unknown_to and {option} are mutually exclusive: both take unexpected callbacks"


def _tls_problems(api: ApiSettings) -> Iterator[str]:
    if bool(api.tls_certificate_file) != bool(api.tls_key_file):
        missing = "tls_key_file" if api.tls_certificate_file else "tls_certificate_file"
        yield f"[api] {missing} is not set; TLS needs tls_certificate_file and tls_key_file"
    if api.tls_client_roles_file and api.auth_strategy == "noauth":
        yield "[api] tls_client_roles_file is set, but auth_strategy is noauth, so everybody may do everything"
    if api.tls_client_certificates == "off":
        if api.tls_client_roles_file:
            yield "[api] tls_client_roles_file is set, but tls_client_certificates is off"
        return
    if not api.tls:
        yield f"[api] tls_client_certificates is {api.tls_client_certificates}, but tls_certificate_file is not set"
    if not api.tls_client_ca_file:
        yield f"[api] tls_client_certificates is {api.tls_client_certificates}, but tls_client_ca_file is not set"
