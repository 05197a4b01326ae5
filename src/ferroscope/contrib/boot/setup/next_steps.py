"""The remaining steps after ``ferroscope setup``, in order."""

from __future__ import annotations

from pathlib import Path

import click

from ferroscope.config.load import CONFIG_FILES
from ferroscope.config.options import Settings
from ferroscope.contrib.boot import host_facts
from ferroscope.contrib.boot.setup.installation import Installation


def show(
    path: Path, settings: Settings, installation: Installation | None, *, changed: bool, mend: bool, boots: bool
) -> None:
    """Print the steps.

    ``changed``: the configuration was; ``mend``: a check has found something; ``boots``: machines boot from a network,
    for which this host is no boot host.
    """
    own = "" if str(path) == CONFIG_FILES[0] else f" -c {path}"
    steps = [f"fix the problems above, then check again: ferroscope doctor{own}"] if mend else []
    if installation is not None and installation.lacks_ramdisk():
        steps.append(f"build kernel and ramdisk: ferroscope ramdisk build{own}")
    steps += _service(settings, own, changed=changed, started=installation is not None)
    if settings.api.auth_strategy != "noauth" and not settings.api.loopback_only:
        steps.append("serve HTTPS, because passwords are sent with each call: ferroscope docs serve-https")
    if boots:
        first = "" if settings.boot.callback_url else "once the api listens on an address that machines reach, "
        steps.append(f"{first}set up a boot host: ferroscope docs set-up-a-boot-host")
    image = settings.inspector.ramdisk_iso
    if image.startswith("/") and not Path(image).exists():
        steps.append(f"put the ramdisk's ISO image at {image}: ferroscope ramdisk build{own}")
    if page := settings.api.page_url:
        steps.append(f"open the web page: {page}")
    steps.append("enroll machines: ferroscope node import machines.csv, or ferroscope bmc scan NETWORK")
    click.echo("\nNext:")
    for step in steps:
        click.echo(f"  * {step}")


def _service(settings: Settings, own: str, *, changed: bool, started: bool) -> list[str]:
    """Return how to start the service, or to restart it if it runs with the old configuration.

    ``started``: the units that a boot host needs were started with the new settings.
    """
    alone = settings.database.connection.startswith("sqlite")
    roles = ("all",) if alone else ("api", "worker")
    units = [f"ferroscope-{role}.service" for role in roles]
    systemd = not own and host_facts.SYSTEMD.is_dir() and all(map(host_facts.unit, units))
    port = settings.api.bare_metal_port
    runs = all(map(host_facts.is_active, units)) if systemd else bool(port) and host_facts.listens(port, udp=False)
    if runs and (not changed or (systemd and started)):
        return []
    if systemd:
        how = f"restart {' '.join(units)}" if runs else f"enable --now {' '.join(units)}"
        return [f"{'restart' if runs else 'start'} the service: systemctl {how}"]
    if runs:
        return [f"restart the service, which runs with its old settings: ferroscope {role}{own}" for role in roles]
    return [f"start the service: ferroscope {role}{own}" for role in roles]
