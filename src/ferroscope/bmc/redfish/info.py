"""What ``driver_info`` says of a node's Redfish service: the names, their checks, what they mean.

The names are those of the Bare Metal service's redfish driver. Pure; asks no BMC and no file.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.bmc.drivers import Limits, ca_path, check_place, wrong
from ferroscope.core import values
from ferroscope.core.model import Document

AUTH_TYPES: Final = ("auto", "session", "basic")
TLS_VERSIONS: Final = {
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}

PROPERTIES: Final[dict[str, str]] = {
    "redfish_address": "URL of the Redfish service, such as https://192.0.2.10; https where it names no scheme. "
    "Required.",
    "redfish_system_id": "Path of the system, such as /redfish/v1/Systems/1, or its last part. "
    "Optional where the service has a single system.",
    "redfish_username": "Account to log in with. Optional where the service asks for none.",
    "redfish_password": "Its password.",
    "redfish_verify_ca": "True (the default): verify the certificate against the host's CAs; the name of a CA file "
    "or directory below [drivers] ca_directory on the workers: against these; False: do not verify.",
    "redfish_auth_type": f"One of {', '.join(AUTH_TYPES)}; auto (the default) prefers a session.",
    "redfish_root_prefix": "Path of the service root; /redfish/v1/ unless set.",
    "redfish_tls_minimum_version": "1.1, 1.2 or 1.3: the oldest TLS to speak with the BMC; that of the host's OpenSSL "
    "unless set. 1.1 needs ciphers of its time too, such as DEFAULT@SECLEVEL=0.",
    "redfish_tls_ciphers": "OpenSSL's list of ciphers for TLS up to 1.2, such as ECDHE+AESGCM.",
    "deploy_iso": "URL of the ramdisk's ISO image, to be booted by virtual media; [inspector] ramdisk_iso unless set.",
}


_STRICT: Final = Limits()


class Access(msgspec.Struct, frozen=True):
    """How to reach one system. ``verify``: as ``requests`` takes it. ``system``: a path, or None for the only one."""

    url: str
    system: str | None
    username: str | None
    password: str = ""
    verify: bool | str = True
    auth_type: str = "auto"
    root: str = "/redfish/v1/"
    tls_minimum: str = ""
    tls_ciphers: str = ""

    def __repr__(self) -> str:
        return f"Access({self.url}, {self.system})"


def read(info: Document, limits: Limits = _STRICT) -> Access:
    """Return how to reach the system; ``BmcError`` (permanent) where it does not say so."""
    username, password = _text(info, "redfish_username"), _text(info, "redfish_password")
    if password is not None and username is None:
        raise wrong("redfish_password is set, but redfish_username is not")
    auth_type = _text(info, "redfish_auth_type") or "auto"
    if auth_type not in AUTH_TYPES:
        raise wrong(f"redfish_auth_type must be one of {', '.join(AUTH_TYPES)}; it is {auth_type[:40]!r}")
    if auth_type == "session" and username is None:
        raise wrong("redfish_auth_type session needs redfish_username and redfish_password")
    root = f"/{(_text(info, 'redfish_root_prefix') or '/redfish/v1/').strip('/')}/"
    return Access(
        url=_url(info, limits, secret=bool(password)),
        system=_system(info, root),
        username=username,
        password=password or "",
        verify=_verify(info.get("redfish_verify_ca", True), limits),
        auth_type=auth_type,
        root=root,
        tls_minimum=_tls_minimum(info),
        tls_ciphers=_tls_ciphers(info),
    )


def tls_context(access: Access) -> ssl.SSLContext | None:
    """Return what TLS is to be like, None where it is as everywhere; certificates are ``verify``'s matter."""
    if not access.tls_minimum and not access.tls_ciphers:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if access.tls_ciphers:
        context.set_ciphers(access.tls_ciphers)
    if access.tls_minimum:
        context.minimum_version = TLS_VERSIONS[access.tls_minimum]
    return context


def _tls_minimum(info: Document) -> str:
    value = str(info.get("redfish_tls_minimum_version") or "")
    if value and value not in TLS_VERSIONS:
        raise wrong(f"redfish_tls_minimum_version must be one of {', '.join(TLS_VERSIONS)}")
    return value


def _tls_ciphers(info: Document) -> str:
    value = _text(info, "redfish_tls_ciphers") or ""
    try:
        if value:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(value)
    except ssl.SSLError:
        raise wrong("redfish_tls_ciphers names no cipher that OpenSSL has here; see: openssl ciphers -v") from None
    return value


def _url(info: Document, limits: Limits, *, secret: bool) -> str:
    address = _text(info, "redfish_address")
    if address is None:
        raise wrong("driver_info needs redfish_address: the URL of the Redfish service, such as https://192.0.2.10")
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        host, _port = parts.hostname, parts.port
    except ValueError as exc:
        raise wrong(f"redfish_address is no URL: {exc}") from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise wrong("redfish_address must be an http or https URL of a host, such as https://192.0.2.10")
    if parts.username is not None or parts.password is not None:
        raise wrong("redfish_address must not contain credentials; use redfish_username and redfish_password")
    if parts.scheme == "http" and secret and not limits.http_passwords:
        raise wrong(
            "redfish_address is http, and anybody on the way could read redfish_password; use https, "
            "or set [drivers] allow_http_passwords = true"
        )
    check_place(host, limits)
    if parts.path.strip("/"):
        raise wrong("redfish_address must end with the host or port; a path goes into redfish_root_prefix")
    return f"{parts.scheme}://{parts.netloc}"


def _system(info: Document, root: str) -> str | None:
    system = _text(info, "redfish_system_id")
    if system is None:
        return None
    if "://" in system or system.startswith("//") or any(sign.isspace() for sign in system):
        raise wrong("redfish_system_id must be a path such as /redfish/v1/Systems/1, or the system's own name")
    return system if system.startswith("/") else f"{root}Systems/{system}"


def _verify(value: Any, limits: Limits) -> bool | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value:
        flag = values.parse(value)
        return ca_path(value, limits) if flag is None else flag
    raise wrong("redfish_verify_ca must be true, false or the name of a CA file or directory")


def _text(info: Document, name: str) -> str | None:
    value = info.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > 1024:
        raise wrong(f"{name} must be a text of at most 1024 characters")
    return value
