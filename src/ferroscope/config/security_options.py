"""Options of authentication, policies, audit and secrets."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ferroscope.config.declaration import Opt


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[oslo_policy]``: the file that overrides the default policies."""

    policy_file: Annotated[
        str,
        Opt(
            'YAML file of policies that differ from the defaults, such as \'"baremetal:node:delete": "role:admin"\'; '
            "empty: none. The command ferroscope policy prints the defaults."
        ),
    ] = ""


class KeystoneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[keystone_authtoken]``: how to validate Keystone's tokens. Names and meanings are keystonemiddleware's."""

    www_authenticate_uri: Annotated[str, Opt("URL of Keystone as callers reach it; they get it with a 401.")] = ""
    auth_url: Annotated[str, Opt("URL of Keystone as this service reaches it, such as http://192.0.2.5:5000.")] = ""
    auth_type: Annotated[str, Opt("How this service authenticates: password or v3applicationcredential.")] = "password"
    username: Annotated[str, Opt("This service's user.")] = ""
    password: Annotated[str, Opt("Its password.", secret=True)] = ""
    user_domain_name: Annotated[str, Opt("The domain of the user.")] = "Default"
    project_name: Annotated[
        str, Opt("The project of the user. Users with the role service in it may do what services of the cloud do.")
    ] = "service"
    project_domain_name: Annotated[
        str, Opt("The domain of the project; a project of this name in another domain gives no rights.")
    ] = "Default"
    application_credential_id: Annotated[str, Opt("ID of an application credential, instead of user and project.")] = ""
    application_credential_secret: Annotated[str, Opt("Its secret.", secret=True)] = ""
    region_name: Annotated[str, Opt("Region of the identity endpoint; empty: any.")] = ""
    interface: Annotated[
        Literal["internal", "admin", "public"], Opt("Interface of the identity endpoint in the catalog.")
    ] = "internal"
    cafile: Annotated[str, Opt("CA certificates for Keystone's certificate; empty: the system's.")] = ""
    certfile: Annotated[str, Opt("Client certificate for Keystone.")] = ""
    keyfile: Annotated[str, Opt("Its private key.")] = ""
    insecure: Annotated[bool, Opt("Do not verify Keystone's certificate. For tests only.")] = False
    http_connect_timeout: Annotated[int, Opt("Timeout of a request to Keystone, in seconds.", ge=1)] = 5
    http_request_max_retries: Annotated[int, Opt("Retries of a connection to Keystone.", ge=0)] = 1
    token_cache_time: Annotated[
        int, Opt("Seconds for which a valid token is not validated again, and a revoked one is accepted.", ge=0)
    ] = 300
    memcached_servers: Annotated[
        tuple[str, ...], Opt("Servers of a cache of tokens that processes share, such as 192.0.2.6:11211.")
    ] = ()
    service_token_roles: Annotated[
        tuple[str, ...],
        Opt("Roles of services whose X-Service-Token makes an expired token of a user acceptable."),
    ] = ("service",)


def problem(keystone: KeystoneSettings) -> str:
    """Return what is missing, "" if nothing is."""
    if not keystone.auth_url:
        return "[keystone_authtoken] auth_url is not set"
    needed = {"password": ("username", "password"), "v3applicationcredential": ("application_credential_id",)}
    missing = [name for name in needed.get(keystone.auth_type, ()) if not getattr(keystone, name)]
    return f"[keystone_authtoken] {missing[0]} is not set" if missing else ""


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[audit]``: who called the API, and what it changed."""

    enabled: Annotated[
        bool,
        Opt("Record each API call that changes something, logins, and refused calls (401, 403), in the database."),
    ] = True
    retention_days: Annotated[float, Opt("Days for which audit events are kept; 0: forever.", ge=0)] = 365.0
    log_file: Annotated[
        str,
        Opt(
            "File to which the api also appends each audit event, as a line of JSON in the form of CADF; '-': standard "
            "output. It may be rotated at any time. Empty: none."
        ),
    ] = ""


class SecretSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[secrets]``: encryption of BMC passwords and other secrets of nodes."""

    key_file: Annotated[
        str,
        Opt(
            "File with the keys that encrypt BMC passwords in the database, one per line: the first one encrypts, all "
            "decrypt. A name without '/' is a systemd credential of the service (LoadCredential). Create it with "
            "'ferroscope secret generate-key'. Empty: secrets are stored in plain text."
        ),
    ] = ""
    sources: Annotated[
        tuple[str, ...],
        Opt(
            "Sources of references such as secret://file/rack1/password in driver_info, which workers resolve for each "
            "BMC call: file, env, and those of other installed packages. Empty: references are not resolved."
        ),
    ] = ()
    file_directory: Annotated[
        str,
        Opt(
            "Directory of the source file. Callers who may set driver_info can send any file below it to a BMC, so "
            "keep only BMC passwords there."
        ),
    ] = ""
