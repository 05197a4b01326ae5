"""Options of an attached Ironic."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ferroscope.config.declaration import Opt

# What keystoneauth's plugins read; any other option of a plugin is given in ``auth_options``.
PLUGIN_OPTIONS: Final = (
    "auth_url",
    "username",
    "password",
    "user_domain_name",
    "project_name",
    "project_domain_name",
    "system_scope",
    "application_credential_id",
    "application_credential_secret",
)
_OF_USERS: Final = ("password", "v3password")
_NEEDED: Final = dict.fromkeys(_OF_USERS, ("auth_url", "username", "password")) | {
    "v3applicationcredential": ("auth_url", "application_credential_id", "application_credential_secret"),
    "http_basic": ("username", "password"),
}


class IronicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[ironic]``: the Ironic that manages the nodes, with ``[registry] backend = ironic``."""

    auth_type: Annotated[
        str,
        Opt(
            "How this service authenticates: none, http_basic, password, v3applicationcredential, or any other plugin "
            "of keystoneauth. Empty: as the cloud says."
        ),
    ] = ""
    cloud: Annotated[str, Opt("Name of a cloud in clouds.yaml, instead of auth_type and the options below.")] = ""
    endpoint_override: Annotated[
        str,
        Opt("URL of Ironic, instead of the one in the service catalog; required with auth_type none or http_basic."),
    ] = ""
    auth_url: Annotated[str, Opt("URL of Keystone, such as http://192.0.2.5:5000/v3.")] = ""
    username: Annotated[str, Opt("This service's user.")] = ""
    password: Annotated[str, Opt("Its password.", secret=True)] = ""
    user_domain_name: Annotated[str, Opt("The domain of the user, such as Default.")] = ""
    project_name: Annotated[str, Opt("The project of the user, such as service.")] = ""
    project_domain_name: Annotated[str, Opt("The domain of the project, such as Default.")] = ""
    system_scope: Annotated[str, Opt("all: a token for the whole system, instead of a project.")] = ""
    application_credential_id: Annotated[str, Opt("ID of an application credential, instead of user and project.")] = ""
    application_credential_secret: Annotated[str, Opt("Its secret.", secret=True)] = ""
    auth_options: Annotated[
        dict[str, str],
        Opt("Further options of the plugin auth_type, such as identity_provider:idp,protocol:openid.", secret=True),
    ] = {}
    region_name: Annotated[str, Opt("Region in the service catalog; empty: any.")] = ""
    service_type: Annotated[str, Opt("Service type in the service catalog.")] = "baremetal"
    valid_interfaces: Annotated[tuple[str, ...], Opt("Interfaces in the service catalog, in order of preference.")] = (
        "internal",
        "public",
    )
    cafile: Annotated[str, Opt("File with CA certificates for Keystone and Ironic; empty: the system's.")] = ""
    certfile: Annotated[str, Opt("File with a client certificate.")] = ""
    keyfile: Annotated[str, Opt("File with its private key; empty: it is in certfile.")] = ""
    insecure: Annotated[bool, Opt("Do not verify certificates. For tests only.")] = False
    timeout: Annotated[float, Opt("Timeout of one try of a request, in seconds.", ge=0.1, le=300)] = 30.0
    max_retries: Annotated[
        int, Opt("Retries of a request while Ironic has locked the node or does not answer; after that it waits.", ge=0)
    ] = 5
    retry_interval: Annotated[float, Opt("Seconds between these retries.", ge=0, le=60)] = 1.0
    lock_timeout: Annotated[
        float, Opt("Seconds to wait for a node that Ironic has locked before the request fails.", ge=0)
    ] = 600.0


def problem(ironic: IronicSettings) -> str:
    """Return which option is missing or contradicts another one, "" if none does."""
    plugin_options = [name for name in PLUGIN_OPTIONS if getattr(ironic, name)]
    if ironic.cloud:
        wrong = [name for name in ("auth_type", *plugin_options) if getattr(ironic, name)]
        return f"[ironic] cloud and {wrong[0]} are mutually exclusive" if wrong else ""
    if not ironic.auth_type:
        return "[ironic] auth_type is not set"
    if ironic.auth_type in ("none", "http_basic") and not ironic.endpoint_override:
        return f"[ironic] endpoint_override is not set, which auth_type {ironic.auth_type} requires"
    if ironic.auth_type == "none" and plugin_options:
        return f"[ironic] {plugin_options[0]} has no meaning with auth_type none"
    needed = [name for name in _NEEDED.get(ironic.auth_type, ()) if not getattr(ironic, name)]
    if needed and not ironic.auth_options:
        return f"[ironic] {needed[0]} is not set"
    if ironic.auth_type in _OF_USERS and not (ironic.project_name or ironic.system_scope or ironic.auth_options):
        return "[ironic] project_name is not set, and neither is system_scope"
    if ironic.keyfile and not ironic.certfile:
        return "[ironic] certfile is not set, but keyfile is"
    url = ironic.endpoint_override
    if url and not url.startswith(("http://", "https://")):
        return f'[ironic] endpoint_override has the invalid URL "{url}": expected http:// or https://'
    return ""
