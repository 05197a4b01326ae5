"""A cloud in clouds.yaml, as openstacksdk reads it: the login at Keystone, and the Bare Metal API's endpoint."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ferroscope.cli.credentials import Credentials, Headers, check_may_be_sent
from ferroscope.cli.exits import Exit, Failure

_SECONDS: Final = 20.0
_SERVICE: Final = "baremetal"


class Verification(NamedTuple):
    """How a server's certificate is verified: not at all, or by a file of certificates ("": those of the system)."""

    verify: bool = True
    ca_file: str = ""


class Cloud(Credentials):
    """``session`` is keystoneauth's; it replaces a token that is about to expire."""

    def __init__(self, name: str, region: Any, session: Any) -> None:
        super().__init__(f"cloud {name}", {})
        self._name = name
        self._region = region
        self._session = session

    def headers(self) -> Headers:
        from keystoneauth1.exceptions import ClientException

        try:
            return {key: _text(value) for key, value in (self._session.get_auth_headers() or {}).items()}
        except ClientException as exc:
            raise _failure(self._name, exc) from None

    def renew(self) -> bool:
        return bool(self._session.invalidate())

    def endpoint(self) -> str:
        """Return the URL of the Bare Metal API in the catalog, or the one that clouds.yaml sets."""
        from keystoneauth1.exceptions import ClientException

        try:
            found = self._region.get_session_endpoint(_SERVICE)
        except ClientException as exc:
            raise _failure(self._name, exc) from None
        if not found:
            raise Failure(
                f"cloud {self._name} has no endpoint for the service {_SERVICE}",
                advice="set baremetal_endpoint_override in clouds.yaml, or --url",
            )
        return str(found)

    def verification(self) -> Verification:
        """Return what clouds.yaml says about certificates (``verify``, ``cacert``)."""
        verify, _ = self._region.get_requests_verify_args()
        return Verification(verify=verify is not False, ca_file=verify if isinstance(verify, str) else "")


def open_cloud(name: str, *, insecure_http: bool) -> Cloud:
    """Read clouds.yaml; nothing is sent yet. ``Failure``."""
    try:
        from openstack.config import OpenStackConfig
        from openstack.exceptions import SDKException
    except ImportError as exc:
        raise Failure(
            f"cloud {name} (--os-cloud or OS_CLOUD) needs the Python package {exc.name}, which is not installed",
            exit_code=Exit.USAGE,
            advice="install Ferroscope with [keystone], for example: pip install '.[keystone]'; or unset OS_CLOUD",
        ) from None
    from keystoneauth1.exceptions import ClientException

    try:
        region = OpenStackConfig().get_one(cloud=name)
        if auth_url := (region.config.get("auth") or {}).get("auth_url"):
            check_may_be_sent(auth_url, "the credentials of Keystone", insecure_http=insecure_http)
        session = region.get_session()
    except (SDKException, ClientException) as exc:
        raise Failure(
            f"cannot use cloud {name}: {_first_line(exc)}",
            exit_code=Exit.USAGE,
            advice="check ~/.config/openstack/clouds.yaml and /etc/openstack/clouds.yaml",
        ) from None
    session.redirect = False  # a login must not follow to another host
    session.timeout = session.timeout or _SECONDS
    return Cloud(name, region, session)


def _failure(name: str, exc: Exception) -> Failure:
    from keystoneauth1.exceptions import ConnectFailure, Unauthorized

    if isinstance(exc, Unauthorized):
        return Failure(
            f"Keystone rejected the credentials of cloud {name}",
            exit_code=Exit.UNAUTHENTICATED,
            advice="check user, password, project and domains in clouds.yaml",
        )
    code = Exit.UNREACHABLE if isinstance(exc, ConnectFailure) else Exit.FAILURE
    return Failure(f"cannot log in to cloud {name}: {_first_line(exc)}", exit_code=code)


def _first_line(exc: Exception) -> str:
    return next(iter(str(exc).splitlines()), type(exc).__name__)[:300]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
