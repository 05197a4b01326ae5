"""The Redfish fields of ``driver_info``: names, validation, meaning.

The names are those of the Bare Metal service's redfish driver. Pure; accesses no BMC and no file.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

import msgspec

from ferroscope.bmc.drivers import Limits, ca_path, wrong
from ferroscope.core import bmc_place, values
from ferroscope.core.model import Document
from ferroscope.remote.addresses import check_bmc

AUTH_TYPES: Final = ("auto", "session", "basic")
TLS_VERSIONS: Final = {
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}

PROPERTIES: Final[dict[str, str]] = {
    "redfish_address": "URL of the Redfish service, such as https://192.0.2.10; https if it has no scheme. Required.",
    "redfish_system_id": "Path of the system, such as /redfish/v1/Systems/1, or its last part. "
    "Optional if the service has a single system.",
    "redfish_username": "User name. Optional if the service requires none.",
    "redfish_password": "Its password.",
    "redfish_verify_ca": "True (the default): verify the certificate against the host's CAs; the name of a CA file "
    "or directory below [drivers] ca_directory on the workers: against these; False: do not verify.",
    "redfish_auth_type": f"One of {', '.join(AUTH_TYPES)}; auto (the default) prefers a session.",
    "redfish_root_prefix": "Path of the service root. Default: /redfish/v1/.",
    "redfish_tls_minimum_version": "1.1, 1.2 or 1.3: the minimum TLS version. Default: that of the host's "
    "OpenSSL. 1.1 also needs old ciphers, such as DEFAULT@SECLEVEL=0.",
    "redfish_tls_ciphers": "OpenSSL cipher list for TLS up to 1.2, such as ECDHE+AESGCM.",
    "deploy_iso": "URL of the ramdisk's ISO image for virtual media. Default: [inspector] ramdisk_iso.",
}


_STRICT: Final = Limits()


class Access(msgspec.Struct, frozen=True):
    """How to reach one system. ``verify``: as for ``requests``. ``system``: a path, or None for the only one."""

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
    """Return how to reach the system; ``BmcError`` (permanent) if a field is missing or invalid."""
    username, password = _text(info, "redfish_username"), _text(info, "redfish_password")
    if password is not None and username is None:
        raise wrong(bmc_place.MISSING_USER)
    auth_type = (_text(info, "redfish_auth_type") or "auto").lower()
    if auth_type not in AUTH_TYPES:
        raise wrong(f"invalid redfish_auth_type {auth_type[:40]!r}: expected one of {', '.join(AUTH_TYPES)}")
    if auth_type == "session" and username is None:
        raise wrong("redfish_auth_type session requires redfish_username and redfish_password")
    root = f"/{(_text(info, 'redfish_root_prefix') or '/redfish/v1/').strip('/ ')}/".replace("//", "/")
    return Access(
        url=_url(info, limits, secret=bool(password)),
        system=_system(info, root) or bmc_place.redfish_system(str(info["redfish_address"])) or None,
        username=username,
        password=password or "",
        verify=_verify(info.get("redfish_verify_ca"), limits),
        auth_type=auth_type,
        root=root,
        tls_minimum=_tls_minimum(info),
        tls_ciphers=_tls_ciphers(info),
    )


def tls_context(access: Access) -> ssl.SSLContext | None:
    """Return the TLS context, None for the default; ``verify`` controls the check of certificates."""
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
        raise wrong("redfish_tls_ciphers has no cipher that OpenSSL supports here; see: openssl ciphers -v") from None
    return value


def _url(info: Document, limits: Limits, *, secret: bool) -> str:
    address = _text(info, "redfish_address")
    if address is None:
        raise wrong(bmc_place.MISSING_ADDRESS["redfish_address"])
    if why := bmc_place.redfish_problem(address):
        raise wrong(why)
    parts = bmc_place.redfish_url(address)
    if parts.scheme == "http" and secret and not limits.http_passwords:
        raise wrong(
            "redfish_address uses http, which would send redfish_password unencrypted; use https, "
            "or set [drivers] allow_http_passwords = true"
        )
    check_bmc(parts.hostname or "", limits.networks)
    return f"{parts.scheme}://{parts.netloc}"


def _system(info: Document, root: str) -> str | None:
    system = _text(info, "redfish_system_id")
    if system is None:
        return None
    system = system.strip()
    if "://" in system or system.startswith("//") or any(sign.isspace() for sign in system):
        raise wrong("invalid redfish_system_id: expected a path such as /redfish/v1/Systems/1, or its last part")
    if f"/{system}".startswith(root):
        system = f"/{system}"
    path = system if system.startswith("/") else f"{root}Systems/{system}"
    if f"{path.rstrip('/')}/".lower() in ("/", root.lower(), f"{root}Systems/".lower()):
        raise wrong("redfish_system_id is the path of the service, not of a system, such as /redfish/v1/Systems/1")
    return path


def _verify(value: Any, limits: Limits) -> bool | str:
    if value is None or value == "":
        return True
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        flag = values.parse(value)
        return ca_path(value, limits) if flag is None else flag
    raise wrong("redfish_verify_ca must be true, false or the name of a CA file or directory")


def _text(info: Document, name: str) -> str | None:
    value = info.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # YAML reads a password, or a system, of digits as a number
    if not isinstance(value, str) or len(value) > 1024:
        raise wrong(f"{name} must be a string of at most 1024 characters")
    return value
