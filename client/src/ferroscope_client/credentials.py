"""Credentials of the command line: where they come from, and to which addresses they may be sent.

In this order: a cloud in clouds.yaml (``cloud``), FERROSCOPE_TOKEN, FERROSCOPE_USERNAME with FERROSCOPE_PASSWORD, and
the credentials file. They are never arguments, which every user of a host can read in its process list. No message
contains any of them.
"""

from __future__ import annotations

import base64
import configparser
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ferroscope_client.core.home import below_home
from ferroscope_client.core.host_spelling import refusal_of_urls
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.core.values import is_loopback
from ferroscope_client.errors import Exit, Failure

Headers = Mapping[str, str]

# Other characters could end the header; 8 KiB is more than a server accepts.
_HEADER_VALUE: Final = re.compile(r"[!-~]{1,8192}", re.ASCII)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

HOW_TO_LOG_IN: Final = (
    "log in with --os-cloud, FERROSCOPE_TOKEN, or FERROSCOPE_USERNAME and FERROSCOPE_PASSWORD; on the host of the "
    "service, 'ferroscope token create' makes a token"
)


class Credentials:
    """Sent with every call; ``source`` names their origin in messages, "" for none. ``repr`` does not show them."""

    def __init__(self, source: str, headers: Headers) -> None:
        self.source = source
        self._headers = dict(headers)

    def headers(self) -> Headers:
        """Return the headers to send; ``Failure`` if they cannot be obtained."""
        return self._headers

    def renew(self) -> bool:
        """Discard what was rejected; return whether ``headers`` will now return something else."""
        return False


NO_CREDENTIALS: Final = Credentials("", {})


def from_environment(url: str, environ: Mapping[str, str] | None = None) -> Credentials:
    """Return the credentials for the service at ``url``, from variables or from the credentials file."""
    env = os.environ if environ is None else environ
    if token := _variable(env, "FERROSCOPE_TOKEN"):
        return _of_token(*token)
    if user := env.get("FERROSCOPE_USERNAME"):
        password = _variable(env, "FERROSCOPE_PASSWORD")
        if password is None:
            raise Failure(
                "FERROSCOPE_USERNAME is set, but no password",
                exit_code=Exit.USAGE,
                advice="set FERROSCOPE_PASSWORD, or FERROSCOPE_PASSWORD_FILE to a file that contains it",
            )
        return _of_user(user, password[0], f"FERROSCOPE_USERNAME and {password[1]}")
    return _from_file(_credentials_file(env), url)


def check_may_be_sent(url: str, secrets: str, *, insecure_http: bool) -> None:
    """Raise ``Failure`` if others on the network could read the credentials on the way to ``url``."""
    if why := refusal_of_urls(url):
        raise Failure(f'invalid URL "{url}": {why}', exit_code=Exit.USAGE)
    parts = urlsplit(url)
    if parts.scheme == "https" or insecure_http or is_loopback(parts.hostname or ""):
        return
    raise Failure(
        f"{secrets} would be sent to {parts.hostname} over plain HTTP, where others on the network can read them",
        exit_code=Exit.USAGE,
        advice="use https://; if the network is trusted: --insecure-http or FERROSCOPE_INSECURE_HTTP=1",
    )


def _of_token(token: str, source: str) -> Credentials:
    # X-Auth-Token is understood for access tokens of the service and for tokens of Keystone.
    if _HEADER_VALUE.fullmatch(token) is None:
        raise _malformed_error(source, "contains blanks, line breaks or other characters that no token has")
    return Credentials(source, {"X-Auth-Token": token})


def _of_user(user: str, password: str, source: str) -> Credentials:
    if ":" in user:
        raise _malformed_error(source, "the user name contains a colon")
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return Credentials(source, {"Authorization": f"Basic {text}"})


def _variable(env: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """Return the value and where it is from: the variable, or the file that the variable ``NAME_FILE`` names."""
    if value := env.get(name):
        return value, name
    if not (file := env.get(f"{name}_FILE")):
        return None
    source = f"{name}_FILE"
    value = _read(Path(file), source).rstrip("\r\n")
    if not value:
        raise _malformed_error(source, f"{file} is empty")
    return value, source


# The credentials file has a section for each service, with ``token``, or ``username`` and ``password``. The section's
# name is the service's URL, so that credentials are never sent to another one.


def _credentials_file(env: Mapping[str, str]) -> Path | None:
    """Return this user's file; None if there is none, or it is in another user's home, as after ``runuser``."""
    base = below_home("XDG_CONFIG_HOME", ".config", env)
    path = None if base is None else base / "ferroscope" / "credentials"
    try:
        return path if path is not None and path.is_file() else None
    except PermissionError:
        return None


def _from_file(path: Path | None, url: str) -> Credentials:
    if path is None:
        return NO_CREDENTIALS
    _check_private(path)
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(_read(path, str(path)))
    except configparser.Error as exc:
        line = getattr(exc, "lineno", None) or next(iter(getattr(exc, "errors", [])), (0,))[0]
        # The message of the error itself quotes the line.
        raise _malformed_error(str(path), f"line {line} is neither [URL] nor NAME = VALUE") from None
    section = next((name for name in parser.sections() if _origin(name) == _origin(url)), None)
    if section is None:
        return NO_CREDENTIALS
    values, source = parser[section], f"{path} [{section}]"
    if token := values.get("token"):
        return _of_token(token, source)
    if (user := values.get("username")) and (password := values.get("password")):
        return _of_user(user, password, source)
    raise _malformed_error(source, "expected token, or username and password")


def _check_private(path: Path) -> None:
    status = path.stat()
    if status.st_mode & 0o077:
        raise Failure(
            f"{path} can be read by other users of this host (mode {status.st_mode & 0o777:04o})",
            exit_code=Exit.USAGE,
            advice=f"chmod 600 {path}",
        )
    if status.st_uid not in (0, os.geteuid()):
        raise Failure(f"{path} belongs to another user", exit_code=Exit.USAGE, advice=f"chown $USER {path}")


def _origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None


def _read(path: Path, source: str) -> str:
    try:
        return text_of(path.read_bytes())
    except OSError as exc:
        raise Failure(f"{source}: cannot read {path}: {exc.strerror}", exit_code=Exit.USAGE) from None
    except NotTextError as exc:
        raise _malformed_error(source, f"{path}: {exc}") from None


def _malformed_error(source: str, why: str) -> Failure:
    return Failure(f"invalid credentials in {source}: {why}", exit_code=Exit.USAGE)


_TIMEOUT_SECONDS: Final = 20.0
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
            url = self._region.get_session_endpoint(_SERVICE)
        except ClientException as exc:
            raise _failure(self._name, exc) from None
        if not url:
            raise Failure(
                f"cloud {self._name} has no endpoint for the service {_SERVICE}",
                advice="set baremetal_endpoint_override in clouds.yaml, or --url",
            )
        return str(url)

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
            advice="install it beside this command: pipx inject ferroscope-client openstacksdk; or unset OS_CLOUD",
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
    session.timeout = session.timeout or _TIMEOUT_SECONDS
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
