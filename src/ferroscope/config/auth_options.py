"""Options of authentication and of policies."""

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
    project_name: Annotated[str, Opt("The project of the user.")] = "service"
    project_domain_name: Annotated[str, Opt("The domain of the project.")] = "Default"
    application_credential_id: Annotated[str, Opt("ID of an application credential, instead of user and project.")] = ""
    application_credential_secret: Annotated[str, Opt("Its secret.", secret=True)] = ""
    region_name: Annotated[str, Opt("Region of the identity endpoint; empty: any.")] = ""
    interface: Annotated[
        Literal["internal", "admin", "public"], Opt("Interface of the identity endpoint in the catalog.")
    ] = "internal"
    cafile: Annotated[str, Opt("CA certificates for Keystone's certificate; empty: those of the system.")] = ""
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
