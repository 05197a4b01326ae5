"""The part of ``ferroscope setup`` that makes this host a boot host: its questions, its files and services, a check."""

from __future__ import annotations

import ipaddress
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from ferroscope.config.errors import StartError
from ferroscope.config.options import Settings
from ferroscope.contrib.boot import addresses, dhcp_probe, host_facts
from ferroscope.contrib.boot.boot_host_checks import unreachable
from ferroscope.contrib.boot.dhcp_probe import Server
from ferroscope.contrib.boot.host_facts import HostInterface
from ferroscope.contrib.boot.pxe_filter.checks import closed_ruleset, table_of
from ferroscope.contrib.boot.pxe_filter.process import open_host
from ferroscope.contrib.boot.setup import apply, outside_check, plan
from ferroscope.contrib.boot.setup.apply import FileChange
from ferroscope.contrib.boot.setup.plan import BootHost, InstallTarget
from ferroscope_client.cli.text import is_terminal
from ferroscope_client.core.finding import Finding
from ferroscope_client.errors import Exit, Failure

WAYS: Final = ("own", "proxy")
_MARKS: Final = {"ok": "ok", "wrong": "WRONG", "note": "note"}


class Questions:
    """Asks, unless an option has answered; without a terminal the default is the answer."""

    def __init__(self, answers: Mapping[str, str | None]) -> None:
        self._answers = answers
        self.interactive = is_terminal(sys.stdin)

    def adds_boot_host(self) -> bool:
        """Whether existing settings shall be kept, and this host become a boot host with them."""
        boot = self._answers.get("boot")
        return boot in (None, "network") and (self.is_given("interface") or (boot is not None and self.interactive))

    def is_given(self, name: str) -> bool:
        return self._answers.get(name) is not None

    def ask(self, name: str, text: str, default: str, choices: tuple[str, ...] = (), explanation: str = "") -> str:
        """Return the answer, without surrounding spaces."""
        if (answer := self._answers.get(name)) is not None:
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


class Chosen(msgspec.Struct, frozen=True):
    """The answers, and the findings on the network."""

    host: BootHost
    bridge: bool
    others: tuple[Server, ...]


def ask_interface(questions: Questions) -> str:
    """Return the interface on which machines boot; "" if this host should not be a boot host."""
    if not questions.interactive or os.geteuid() != 0:
        return questions.ask("interface", "", "")
    try:
        present = host_facts.interfaces()
    except host_facts.FactsError:
        present = []
    return questions.ask(
        "interface",
        "Interface (none: this host is not a boot host)",
        plan.propose_interface(present) or "none",
        explanation="   Set up this host as a boot host: the interface on which machines boot.\n"
        + "".join(f"     {interface_facts}\n" for interface_facts in present).rstrip("\n"),
    ).removeprefix("none")


def ask_boot_host(
    questions: Questions, interface: str, existing: Settings | None, *, install: bool, dry_run: bool
) -> Chosen:
    """Ask the questions for a boot host; install missing packages on request."""
    if os.geteuid() != 0:
        raise Failure("a boot host can be set up by root only", exit_code=Exit.USAGE, advice="use sudo")
    apply.units()  # missing ones are reported before anything is asked
    _packages(questions, install=install, dry_run=dry_run)
    try:
        own_interface, address = plan.choose_interface(host_facts.interfaces(), interface)
        used = host_facts.neighbours(interface, address.version)
    except host_facts.FactsError as exc:
        raise Failure(str(exc)) from exc
    except plan.PlanError as exc:
        raise _option_failure(exc, "--interface") from exc
    boot = existing.boot if existing is not None else None
    ours = {word for text in (boot.addresses if boot else ()) for word in text.split()[1:]}
    others = tuple(server for server in _others(own_interface) if server.address not in ours)
    name = addresses.own_name(boot.hosts if boot else ())
    dhcp_way = _way(questions, others if address.version == 4 else (), existing)
    if dhcp_way == "proxy":
        return Chosen(plan.BootHost(name, interface, address), own_interface.bridge, others)
    taken = [*used, *(ipaddress.IPv4Address(server.address) for server in others)]
    proposed = ", ".join(boot.ranges) if boot and boot.ranges else plan.propose_range(address, taken)
    text = questions.ask(
        "range",
        "Addresses for machines",
        proposed,
        explanation=f"   Addresses that this host assigns to machines, unused ones of {address.network}: FIRST-LAST.",
    )
    ranges = tuple(part.strip() for part in text.split(",") if part.strip())
    if not ranges:
        raise Failure(f"{address.network} has no room", exit_code=Exit.USAGE, advice="choose addresses with --range")
    try:
        plan.check_ranges(ranges, address)
    except plan.PlanError as exc:
        raise _option_failure(exc, "--range") from exc
    return Chosen(plan.BootHost(name, interface, address, ranges), own_interface.bridge, others)


def _packages(questions: Questions, *, install: bool, dry_run: bool) -> None:
    lacking = host_facts.missing_packages()
    if not lacking:
        return
    command = ["apt-get", "install", "-y", *lacking]
    if dry_run:
        click.echo(f"would run: {shlex.join(command)}")
        return
    if not install and questions.interactive:
        install = click.confirm(f"\n   A boot host needs {', '.join(lacking)}. Install now?", default=True)
    if not install:
        raise Failure(
            f"packages are missing: {', '.join(lacking)}",
            advice=f"run: {shlex.join(command)}; or use --install-packages",
        )
    click.echo(f"installing {', '.join(lacking)}")
    apply.run(["apt-get", "update"])
    apply.run(command)


def _others(interface: HostInterface) -> list[Server]:
    click.echo(f"looking for other DHCP servers on {interface.name} ({dhcp_probe.PROBE_SECONDS:.0f} s)")
    try:
        answering = dhcp_probe.servers(interface.name)
    except OSError as exc:
        raise Failure(
            f"cannot look for DHCP servers on {interface.name}: {exc.strerror or exc}",
            advice=f"is it up? ip link set {interface.name} up",
        ) from exc
    for server in answering:
        click.echo(f"  DHCP server {server}")
    if not answering:
        click.echo("  no DHCP server answers")
    return answering


def _way(questions: Questions, others: Sequence[Server], existing: Settings | None) -> str:
    """Return the server that assigns the addresses: this host, or another server beside which it is a proxy."""
    assigning = [server for server in others if server.offers]
    default = "proxy" if assigning else "own"
    if existing is not None and (existing.boot.ranges or existing.boot.proxied_networks):
        default = "proxy" if existing.boot.proxied_networks else "own"
    explanation = (
        "   own: this host assigns the addresses; this network must have no other DHCP server.\n"
        "   proxy: the other DHCP server stays and assigns them; this host only tells machines where to boot from."
    )
    dhcp_way = (
        questions.ask("dhcp", "DHCP", default, WAYS, explanation)
        if assigning or questions.is_given("dhcp")
        else default
    )
    if dhcp_way == "own" and assigning:
        click.echo(
            f"Warning: {assigning[0].address} also assigns addresses on this network: stop it there, or machines may "
            "take its address and fail to boot",
            err=True,
        )
    if dhcp_way == "proxy" and not assigning:
        click.echo("Warning: no DHCP server assigns addresses on this network; machines need one to boot", err=True)
    return dhcp_way


class Installation:
    """The planned files. Checking whether they can be written changes nothing; ``Failure`` if not."""

    def __init__(self, settings: Settings, chosen: Chosen, *, replace: bool) -> None:
        self._settings = settings
        self._chosen = chosen
        try:
            targets = plan.targets(settings, chosen.host.name, closed_ruleset(settings))
            loaders, self.remarks = apply.loaders(settings.boot)
            self._targets: list[InstallTarget] = [*targets, *loaders, *apply.units()]
            self.changes: list[FileChange] = apply.compare(self._targets, replace=replace)
            self._new_units = any(
                written.change is not apply.FileState.SAME
                for written in self.changes
                if written.path.suffix == ".service"
            )
        except (StartError, ValueError) as exc:
            raise Failure(str(exc), exit_code=Exit.CONFIGURATION) from exc
        self.remarks.append(
            "machines with 32-bit UEFI (ia32) get an address and no boot file: the ramdisk and its kernel are 64-bit"
        )

    def show(self) -> None:
        for written in self.changes:
            click.echo(written)
        for remark in self.remarks:
            click.echo(f"note: {remark}")

    def show_unreachable(self) -> None:
        """Print what machines could not reach; doctor reports it, too, once the files are written."""
        boot = self._settings.boot
        own = addresses.own(boot, self._chosen.host.name).values()
        for gap_check in unreachable(boot, self._settings.pxe_filter, own, dhcp_probe.routers(self._chosen.others)):
            click.echo(f"{_MARKS[gap_check.verdict]}: {gap_check.summary}; {gap_check.advice}")

    def carry_out(self, path: Path, *, configured: bool) -> None:
        """Write the files and start the services. ``path``: of the configuration; ``configured``: it was changed."""
        apply.write(self._targets, self.changes)
        if host_facts.SYSTEMD.is_dir():
            apply.add_user()
            wanted = apply.services(self.changes, self._settings, configured=configured)
            apply.start(wanted, reload=self._new_units)
        root = Path(self._settings.boot.tftp_root)
        if (closed := apply.unreadable(root)) is not None:
            click.echo(f"Warning: dnsmasq and nginx cannot read {root}: run chmod o+x {closed}", err=True)
        if not host_facts.SYSTEMD.is_dir():
            click.echo("systemd does not run here. Start, in this order:")
            dnsmasq = f"dnsmasq -k --conf-file={self._settings.boot.dnsmasq_config}"
            for command in (f"nft -f {plan.RULESET}", f"ferroscope pxe-filter -c {path}", dnsmasq, "nginx"):
                click.echo(f"  {command}")

    def lacks_ramdisk(self) -> bool:
        boot = self._settings.boot
        names = [name for name in (boot.kernel, boot.ramdisk) if "://" not in name]
        return not all(Path(boot.tftp_root, name).is_file() for name in names)

    def build_ramdisk(self, questions: Questions, path: Path) -> None:
        """Offer to build kernel and ramdisk, if they are missing."""
        if not self.lacks_ramdisk() or not questions.interactive:
            return
        if click.confirm("\nKernel and ramdisk are missing. Build them now (some minutes)?", default=True):
            program = [sys.argv[0], "ramdisk", "build", "-c", str(path)]
            subprocess.run(program, check=False)  # noqa: S603  # this program

    def check(self) -> list[Finding]:
        """Check the host from the outside, and show what was found."""
        host, settings = self._chosen.host, self._settings
        leader = open_host(settings)
        if leader and leader.partition(".")[0] != host.name.partition(".")[0]:
            click.echo(f"note: the PXE filter of {leader} is open, so this host stands by and answers no machine")
            return []
        if host.address.version == 6:
            click.echo("note: without an IPv4 address, this host is not checked from the outside: boot one machine")
            return []
        pools = addresses.pools(settings.boot, host.name)
        offered = next((server.offers for server in self._chosen.others if server.offers), "")
        machine = offered if host.proxy else next((str(pool.last) for pool in pools if pool.version == 4), "")
        subject = outside_check.Subject(
            interface=host.interface,
            bridge=self._chosen.bridge,
            server=str(host.address.ip),
            table=table_of(settings),
            machine=f"{machine or host.address.network[-2]}/{host.address.network.prefixlen}",
            boot=settings.boot,
        )
        click.echo("\nfrom the outside, as a machine on the boot network:")
        checks = []
        for made in outside_check.look(subject):
            checks.append(made)
            advice = f"; {made.advice}" if made.advice else ""
            click.echo(f"  {_MARKS[made.verdict]:5}  {made.summary}{advice}")
        return checks


def _option_failure(exc: Exception, option: str) -> Failure:
    return Failure(f"{option}: {exc}", exit_code=Exit.USAGE, advice=getattr(exc, "advice", ""))
