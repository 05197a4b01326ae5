"""``ferroscope setup``: ask five questions, and write a configuration that ``ferroscope doctor`` checks.

Every question is also an option, so that a script can answer. Without a terminal, and for what is not asked because it
was given, the defaults hold.
"""

from __future__ import annotations

import grp
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import Output
from ferroscope.cli.service import show_checks
from ferroscope.cli.user import ask_password, check_name, put_user
from ferroscope.config.load import CONFIG_FILES, ConfigurationError, load

_SERVICE_GROUP: Final = "ferroscope"
_LOGINS: Final = ("noauth", "http_basic", "keystone")
# Addresses to listen on that tell nobody where the service is.
_UNREACHABLE: Final = ("localhost", "127.0.0.1", "::1", "::", "0.0.0.0")  # noqa: S104  # they are compared
_BOOTS: Final = ("virtual-media", "network", "none")
_HEADER: Final = "# Written by 'ferroscope setup'. All options: ferroscope's docs/reference/configuration.md\n"

Sections = dict[str, dict[str, str]]


@click.command(epilog="Exit code 1: doctor has found problems. 4: the file contains settings already.")
@click.option(
    "-c",
    "--config-file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=CONFIG_FILES[0],
    show_default=True,
    help="The file to write.",
)
@click.option("--database", help="SQLAlchemy URL; '' for SQLite, which serves one host.")
@click.option("--listen", help="Address that the APIs listen on; localhost for this host only.")
@click.option("--login", type=click.Choice(_LOGINS), help="How callers of the API log in.")
@click.option("--user", help="With http_basic: the first administrator; the password is read from standard input.")
@click.option("--boot", type=click.Choice(_BOOTS), help="How machines boot the ramdisk.")
@click.option("--machine-url", help="Base URL of the Bare Metal API as machines reach it.")
@click.option("--replace", is_flag=True, help="Replace existing settings; the old file is kept as FILE.old.")
def setup(path: Path, *, replace: bool, **given: str | None) -> None:
    """Ask five questions about this installation, and write its configuration.

    It also creates the tables on a database server, and the first user. Then it runs the checks of ferroscope doctor.
    """
    old = _old_text(path, replace=replace)
    questions = _Questions(given)
    sections: Sections = {}
    sections["database"] = _database(questions)
    sections["api"], sections["keystone_authtoken"] = _api(questions, path.parent / "htpasswd")
    sections["inspector"], sections["boot"] = _boot(questions, sections["api"]["host"])
    _write(path, old, sections, replace=replace)
    click.echo(f"\nwrote {path}\n")
    found = show_checks((str(path),), None, Output())
    _show_next_steps(path, sections, mend=bool(found))
    if found:
        raise click.exceptions.Exit(Exit.FAILURE)


class _Questions:
    """Asks, unless an option has answered; without a terminal the default is the answer."""

    def __init__(self, given: Mapping[str, str | None]) -> None:
        self._given = given
        self.interactive = sys.stdin.isatty()

    def is_given(self, name: str) -> bool:
        return self._given.get(name) is not None

    def ask(self, name: str, text: str, default: str, choices: tuple[str, ...] = (), explanation: str = "") -> str:
        """Return the answer, without surrounding spaces."""
        if (answer := self._given.get(name)) is not None:
            return answer.strip()
        if not self.interactive:
            return default
        if explanation:
            click.echo(f"\n{explanation}")
        kind = click.Choice(choices) if choices else str
        return str(click.prompt(text, default=default, type=kind, show_default=bool(default))).strip()

    def ask_secret(self, text: str) -> str:
        """Return a secret; "" without a terminal."""
        return str(click.prompt(text, default="", hide_input=True, show_default=False)) if self.interactive else ""


# The questions


def _database(questions: _Questions) -> dict[str, str]:
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.runtime.backend import prepared
    from ferroscope.runtime.system import SetupError

    explanation = (
        "1. The database. SQLite needs nothing and serves one host. For several hosts: postgresql://USER@HOST/NAME\n"
        "   or mysql://USER@HOST/NAME. The password is asked for separately."
    )
    while True:
        text = questions.ask("database", "Database URL (empty: SQLite)", "", explanation=explanation)
        if not text:
            return {}
        try:
            return {"connection": prepared(text, lambda: questions.ask_secret("Password of its user (empty: none)"))}
        except SetupError as exc:
            failure = Failure(f"--database: {exc.summary}", exit_code=Exit.USAGE, advice=exc.advice)
        except StoreUnavailableError as exc:
            failure = Failure(f"--database: cannot connect: {exc}", advice="check its address, user and password")
        if questions.is_given("database") or not questions.interactive:
            raise failure
        failure.show()


def _api(questions: _Questions, users: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return ``[api]`` and ``[keystone_authtoken]``."""
    host = questions.ask(
        "listen",
        "Listen on",
        "localhost",
        explanation="2. The address that the APIs listen on. localhost: this host only; machines cannot reach that.",
    )
    here = host == "localhost"
    while True:
        login = questions.ask(
            "login",
            "Login",
            "noauth" if here else "http_basic",
            _LOGINS,
            "3. How callers log in: noauth (not at all, on localhost only), http_basic (a file of users) or keystone.",
        )
        if here or login != "noauth":
            break
        failure = Failure(
            "--login noauth: everybody who reaches the address would control all machines",
            exit_code=Exit.USAGE,
            advice="use http_basic or keystone, or --listen localhost",
        )
        if questions.is_given("login"):
            raise failure
        failure.show()
    api = {"host": host, "auth_strategy": login}
    if login == "http_basic":
        api["http_basic_auth_user_file"] = str(users)
        _first_user(questions, users)
    return api, _keystone(questions) if login == "keystone" else {}


def _first_user(questions: _Questions, users: Path) -> None:
    if users.exists():
        click.echo(f"{users} exists and is used; to add users: ferroscope user add")
        return
    name = questions.ask("user", "Name of the first administrator", "admin")
    check_name(name)
    put_user(users, name, ("admin",), ask_password())
    _let_service_read(users)
    click.echo(f"user {name} added to {users}")


def _keystone(questions: _Questions) -> dict[str, str]:
    url = questions.ask("keystone-url", "URL of Keystone, such as https://keystone.example.org:5000", "")
    name = questions.ask("keystone-user", "User of the service in Keystone", "ferroscope")
    password = questions.ask_secret("Its password")
    if not url or not password:
        raise Failure(
            "keystone needs a URL and a password",
            exit_code=Exit.USAGE,
            advice="run it on a terminal, or write [keystone_authtoken] yourself: docs/how-to/secure-the-service.md",
        )
    return {"auth_url": url, "www_authenticate_uri": url, "username": name, "password": password}


def _boot(questions: _Questions, host: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return ``[inspector]`` and ``[boot]``."""
    boot = questions.ask(
        "boot",
        "Boot",
        "network",
        _BOOTS,
        "4. How machines boot the ramdisk: by virtual-media of their BMCs, from the network (DHCP and iPXE), or none,\n"
        "   if BMCs are only asked for their hardware.",
    )
    if boot == "none":
        return {"require_managed_boot": "True"}, {}
    address = next((one for one in map(str.strip, host.split(",")) if one not in _UNREACHABLE), "")
    url = questions.ask(
        "machine_url",
        "URL (empty: not known yet)",
        f"http://{f'[{address}]' if ':' in address else address}:6385" if address else "",
        explanation="5. The URL at which machines reach the Bare Metal API; a load balancer's, if there is one.",
    ).rstrip("/")
    if not url:
        return {}, {}
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failure(
            f"{url!r} is not the URL of an API", exit_code=Exit.USAGE, advice="for example: http://192.0.2.1:6385"
        )
    if boot == "virtual-media":
        return {"callback_endpoint_override": url}, {}
    return {}, {"callback_url": f"{url}/v1/continue_inspection", "machine_script_url": f"{url}/v1/boot.ipxe"}


# The file


def _old_text(path: Path, *, replace: bool) -> str:
    """Return the text of the file, which must not contain settings unless they are replaced."""
    if not path.parent.is_dir():
        raise Failure(
            f"the directory {path.parent} does not exist",
            exit_code=Exit.USAGE,
            advice="create it, or choose another file with -c",
        )
    if not os.access(path.parent, os.W_OK):
        raise Failure(
            f"{path.parent} is not writable", exit_code=Exit.USAGE, advice="use sudo, or choose another file with -c"
        )
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8")
    set_lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;["]
    if set_lines and not replace:
        raise Failure(
            f"{path} contains settings already",
            exit_code=Exit.CONFLICT,
            advice="edit it, choose another file with -c, or replace it with --replace (it is kept as FILE.old)",
        )
    return text


def _write(path: Path, old: str, sections: Sections, *, replace: bool) -> None:
    """Write the file as a whole, after it was found to be valid; ``Failure``."""
    kept = "" if replace or not old else f"{old.rstrip()}\n\n"  # only comments
    parts = [
        f"[{section}]\n" + "".join(f"{name} = {value.replace('$', '$$')}\n" for name, value in options.items())
        for section, options in sections.items()
        if options
    ]
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(kept + _HEADER + "\n" + "\n".join(parts))
            stream.flush()
            os.fsync(descriptor)
        load([temporary])
        _let_service_read(Path(temporary))
        if replace and path.exists():
            path.replace(path.with_name(f"{path.name}.old"))
        Path(temporary).replace(path)
    except ConfigurationError as exc:
        raise Failure(f"nothing was written: {exc}", exit_code=Exit.USAGE) from exc
    finally:
        Path(temporary).unlink(missing_ok=True)


def _let_service_read(path: Path) -> None:
    """Let the group of the installed service read a file of root's; it contains secrets, so nobody else can."""
    try:
        group = grp.getgrnam(_SERVICE_GROUP).gr_gid
    except KeyError:
        return
    if os.geteuid() == 0:
        os.chown(path, 0, group)
        path.chmod(0o640)


def _show_next_steps(path: Path, sections: Sections, *, mend: bool) -> None:
    several = bool(sections["database"])
    own = "" if str(path) == CONFIG_FILES[0] else f" -c {path}"
    steps = [f"mend what is wrong above, and check again: ferroscope doctor{own}"] if mend else []
    steps += [f"start the service: ferroscope {role}{own}" for role in (("api", "worker") if several else ("all",))]
    if sections["api"]["auth_strategy"] != "noauth" and sections["api"]["host"] != "localhost":
        steps.append("serve HTTPS, because passwords are sent with each call: docs/how-to/serve-https.md")
    if sections["boot"]:
        steps.append("set up a boot host: docs/how-to/set-up-a-boot-host.md")
    if "callback_endpoint_override" in sections["inspector"]:
        steps.append("set [inspector] ramdisk_iso: docs/how-to/inspect-a-redfish-machine.md")
    steps.append("enroll machines: ferroscope node import machines.csv, or ferroscope bmc scan NETWORK")
    click.echo("\nNext:")
    for step in steps:
        click.echo(f"  * {step}")
