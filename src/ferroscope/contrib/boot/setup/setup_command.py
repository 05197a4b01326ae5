"""``ferroscope setup``: ask five questions, and write a configuration that ``ferroscope doctor`` checks.

Every question is also an option, so that a script can answer. Without a terminal, unanswered questions have their
defaults. With an interface, it makes this host a boot host, too (``boot_host``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from ferroscope.cli.service import database_url
from ferroscope.cli.user_file import ask_password, check_name, put_user
from ferroscope.config.errors import SetupError
from ferroscope.config.load import SETUP_FILE
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contrib.boot.setup import next_steps, plan
from ferroscope.contrib.boot.setup.installation import (
    WAYS,
    Chosen,
    Installation,
    Questions,
    ask_boot_host,
    ask_interface,
)
from ferroscope.contrib.boot.setup.setup_file import Draft, Sections, let_service_read, main_file, old_text
from ferroscope.db.prepare import prepared
from ferroscope_client.cli.main import ShownFailure
from ferroscope_client.core.host_spelling import refusal_of_urls
from ferroscope_client.core.values import is_loopback
from ferroscope_client.errors import Exit, Failure

_LOGINS: Final = ("noauth", "http_basic", "keystone")
# Where 'ferroscope ramdisk build' puts it.
_IMAGE: Final = "/var/lib/ferroscope-tftp/ipa.iso"
_BOOTS: Final = ("virtual-media", "network", "none")


@click.command(epilog="Exit code 1: doctor has found problems. 4: the file contains settings already.")
@click.option(
    "-c",
    "--config-file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=SETUP_FILE,
    show_default=True,
    help="The file to write; FILE.d/NAME.conf is a part of FILE.",
)
@click.option(
    "--database",
    type=database_url,
    metavar="URL",
    help="SQLAlchemy URL, or @FILE that has one with a password; '' for SQLite, which serves one host.",
)
@click.option("--listen", help="Address that the APIs listen on; localhost for this host only.")
@click.option("--login", type=click.Choice(_LOGINS), help="How callers of the API log in.")
@click.option("--user", help="With http_basic: the first administrator; the password is read from standard input.")
@click.option("--boot", type=click.Choice(_BOOTS), help="How machines boot the ramdisk.")
@click.option("--machine-url", help="Base URL of the Bare Metal API as machines reach it.")
@click.option("--iso", help="With --boot virtual-media: the ramdisk's ISO image, a file or a URL.")
@click.option("--interface", help="With --boot network: make this host a boot host; machines boot on this interface.")
@click.option("--range", help="Boot host: addresses that it assigns to machines, FIRST-LAST.")
@click.option(
    "--dhcp",
    type=click.Choice(WAYS),
    help="Boot host: assign addresses, or be a proxy next to another DHCP server.",
)
@click.option("--install-packages", "install", is_flag=True, help="Boot host: install missing Debian packages.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--replace", is_flag=True, help="Replace existing settings and files of others; the old ones are kept.")
def setup(path: Path, *, install: bool, dry_run: bool, replace: bool, **answers: str | None) -> None:
    """Ask five questions about this installation, and write its configuration.

    It also creates the tables on a database server, and the first user. Then it runs the checks of ferroscope doctor.

    With --boot network and an interface, it makes this host a boot host: it looks for other DHCP servers, configures
    and starts dnsmasq, nginx and the PXE filter, and checks them as a machine on the network. If the configuration
    exists, it asks only for that, and adds what is missing.
    """
    questions = Questions(answers)
    old, existing = old_text(path, add=questions.adds_boot_host(), replace=replace)
    main = main_file(path)
    sections: Sections = {}
    chosen = None
    if existing is None:
        sections["database"] = {} if dry_run else _database(questions)
        sections["api"], sections["keystone_authtoken"] = _api(questions, main.parent / "htpasswd", dry_run=dry_run)
    boot = "network" if existing is not None else _boots(questions)
    interface = ask_interface(questions) if boot == "network" else ""
    if interface:
        chosen = ask_boot_host(questions, interface, existing, install=install, dry_run=dry_run)
    listen = list(existing.api.host) if existing is not None else sections["api"]["host"].split(",")
    if existing is None or not existing.boot.callback_url:
        address = str(chosen.host.address.ip) if chosen is not None else ""
        sections["inspector"], sections["boot"] = _boot(questions, boot, [*listen, address], existing)
    if chosen is not None:
        _add(sections, chosen, existing)
    with Draft(path, old, sections, replace=replace) as draft:
        installation = Installation(draft.settings, chosen, replace=replace) if chosen is not None else None
        if dry_run:
            click.echo(f"\n{path} would get:\n{draft.added}" if draft.text != old else f"unchanged: {path}")
            if installation is not None:
                installation.show()
                installation.show_unreachable()
            return
        draft.install()
    click.echo(f"\nwrote {path}\n" if draft.text != old else f"\nunchanged: {path}")
    if installation is not None:
        installation.show()
        installation.carry_out(main, configured=draft.text != old)
        installation.build_ramdisk(questions, main)
        click.echo()
    wrong = not _run_doctor(main)
    if installation is not None:
        wrong |= any(check.verdict == "wrong" for check in installation.check())
    boots = boot == "network" and installation is None
    next_steps.show(main, draft.settings, installation, changed=draft.text != old, mend=wrong, boots=boots)
    if wrong:
        raise click.exceptions.Exit(Exit.FAILURE)


def _run_doctor(path: Path) -> bool:
    """Run ``ferroscope doctor`` with the new configuration; return whether it has found no problem."""
    root = click.get_current_context().find_root()
    doctor = root.command.get_command(root, "doctor") if isinstance(root.command, click.Group) else None
    assert doctor is not None  # noqa: S101  # setup is a command of the same group
    try:
        root.invoke(doctor, files=(str(path),), database=None, fmt="table")
    except click.exceptions.Exit:
        return False
    return True


def _image(questions: Questions) -> str:
    """Return the ISO image for BMCs: a file, which the api serves, or a URL."""
    image = questions.ask(
        "iso",
        "ISO image",
        _IMAGE,
        explanation="6. The ramdisk's ISO image, which BMCs read: a file on the api's hosts, which serve it, or\n"
        "   the URL of another web server.",
    )
    if image.startswith(("/", "http://", "https://")):
        return image
    raise Failure(
        f"{image!r} is neither a URL nor an absolute path", exit_code=Exit.USAGE, advice=f"for example: {_IMAGE}"
    )


def _add(sections: Sections, chosen: Chosen, existing: Settings | None) -> None:
    try:
        added = plan.sections(chosen.host, existing)
    except plan.PlanError as exc:
        raise Failure(str(exc), exit_code=Exit.CONFLICT, advice=exc.advice) from exc
    for section, options in added.items():
        sections[section] = sections.get(section, {}) | options


# The questions


def _database(questions: Questions) -> dict[str, str]:
    explanation = (
        "1. The database. SQLite needs nothing and serves one host. For several hosts: postgresql://USER@HOST/NAME\n"
        "   or mysql://USER@HOST/NAME. The password is asked for separately."
    )
    while True:
        text = questions.ask("database", "Database URL (empty: SQLite)", "", explanation=explanation)
        if not text:
            return {}
        try:
            return {
                "connection": prepared(
                    text, lambda: questions.ask_secret("Password of the database user (empty: none)")
                )
            }
        except SetupError as exc:
            failure = Failure(f"--database: {exc.summary}", exit_code=Exit.USAGE, advice=exc.advice)
        except StoreUnavailableError as exc:
            summary = f"--database: cannot connect: {exc.failure.message}"
            failure = Failure(summary, advice="check its address, user and password")
        if questions.is_given("database") or not questions.interactive:
            raise failure
        ShownFailure(failure).show()


def _api(questions: Questions, users: Path, *, dry_run: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return ``[api]`` and ``[keystone_authtoken]``."""
    host = questions.ask(
        "listen",
        "Listen on",
        "localhost",
        explanation="2. The address that the APIs listen on. localhost: this host only; machines cannot reach that.",
    )
    here = all(is_loopback(address.strip()) for address in host.split(","))
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
            "--login noauth: anyone who reaches the address would control all machines",
            exit_code=Exit.USAGE,
            advice="use http_basic or keystone, or --listen localhost",
        )
        if questions.is_given("login"):
            raise failure
        ShownFailure(failure).show()
    api = {"host": host, "auth_strategy": login}
    if login == "http_basic":
        api["http_basic_auth_user_file"] = str(users)
        if not dry_run:
            _first_user(questions, users)
    return api, _keystone(questions) if login == "keystone" else {}


def _first_user(questions: Questions, users: Path) -> None:
    if users.exists():
        click.echo(f"{users} exists and is used; to add users: ferroscope user add")
        return
    name = questions.ask("user", "Name of the first administrator", "admin")
    check_name(name)
    put_user(users, name, ("admin",), ask_password(f"Password of {name}"))
    let_service_read(users)
    click.echo(f"user {name} added to {users}")


def _keystone(questions: Questions) -> dict[str, str]:
    url = questions.ask("keystone-url", "URL of Keystone, such as https://keystone.example.org:5000", "")
    name = questions.ask("keystone-user", "User of the service in Keystone", "ferroscope")
    password = questions.ask_secret("Its password")
    if not url or not password:
        raise Failure(
            "keystone needs a URL and a password",
            exit_code=Exit.USAGE,
            advice="run it on a terminal, or write [keystone_authtoken] yourself: ferroscope docs secure-the-service",
        )
    return {"auth_url": url, "www_authenticate_uri": url, "username": name, "password": password}


def _boots(questions: Questions) -> str:
    return questions.ask(
        "boot",
        "Boot",
        "network",
        _BOOTS,
        "4. How machines boot the ramdisk: by virtual-media of their BMCs, from the network (DHCP and iPXE), or none,\n"
        "   if BMCs are only asked for their hardware.",
    )


def _boot(
    questions: Questions, boot: str, hosts: list[str], existing: Settings | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return ``[inspector]`` and ``[boot]``. ``hosts``: addresses that this host listens on, or has."""
    if boot == "none":
        return {"require_managed_boot": "True"}, {}
    url = questions.ask(
        "machine_url",
        "URL (empty: not known yet)",
        plan.propose_url(hosts, existing or Settings()),
        explanation="5. The URL at which machines reach the Bare Metal API; a load balancer's, if there is one.",
    ).rstrip("/")
    if not url:
        return {}, {}
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failure(
            f"{url!r} is not the URL of an API", exit_code=Exit.USAGE, advice="for example: http://192.0.2.1:6385"
        )
    if why := refusal_of_urls(url):
        raise Failure(f"invalid URL {url!r}: {why}", exit_code=Exit.USAGE)
    if boot == "virtual-media":
        return {"callback_endpoint_override": url, "ramdisk_iso": _image(questions)}, {}
    return {}, {"callback_url": f"{url}/v1/continue_inspection", "machine_script_url": f"{url}/v1/boot.ipxe"}
