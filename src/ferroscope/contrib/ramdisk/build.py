"""Builds a ramdisk: runs mmdebstrap, pip, mksquashfs and xorriso in a directory beside the result.

The finished files are renamed into place, the manifest last. A build that ends earlier leaves nothing behind.
"""

from __future__ import annotations

import datetime
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ferroscope import __version__
from ferroscope.contrib.ramdisk import agent, archive, boot_files, content, host, signature, sources, system
from ferroscope.contrib.ramdisk.archive import File
from ferroscope.contrib.ramdisk.manifest import BuildOptions, Digest, Manifest, RamdiskError, digest, write
from ferroscope.contrib.ramdisk.manifest import packages as parse_packages
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from ferroscope.contrib.ramdisk.plan import AGENT, BuildPlan, Names
from ferroscope.contrib.ramdisk.programs import MAKE_ROOM, ProgramRunner, ends_orderly, usual_permissions
from ferroscope.contrib.ramdisk.workspace import put_into_place, work_directory

Say = Callable[[str], None]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One build. ``work``: its directory; ``epoch``: the time of all files, in seconds."""

    plan: BuildPlan
    mirrors: Mirrors
    names: Names
    work: Path
    runner: ProgramRunner
    epoch: int
    say: Say

    @property
    def out(self) -> Path:
        """The finished files, before they are put into place."""
        return self.work / "out"


def build(
    plan: BuildPlan, mirrors: Mirrors, names: Names, directory: Path, *, sign_key: Path | None, loud: bool, say: Say
) -> Manifest:
    """Build the ramdisk into ``directory``; ``RamdiskError`` says what failed. The plan and the host were checked."""
    if sign_key is not None:
        signature.check_key(sign_key)
    with ends_orderly(), usual_permissions(), _explain_errors(directory), work_directory(directory) as work:
        environment = {"PATH": host.search_path(), "TMPDIR": str(work)}
        runner = ProgramRunner(environment, loud)
        say(f"asking {mirrors.packages}")
        published = sources.ask(plan, mirrors, runner, work)
        say(f"Debian's packages are from {published:%Y-%m-%d %H:%M} UTC")
        epoch = int(published.timestamp())
        runner = msgspec.structs.replace(runner, environment={**environment, "SOURCE_DATE_EPOCH": str(epoch)})
        job = Job(plan=plan, mirrors=mirrors, names=names, work=work, runner=runner, epoch=epoch, say=say)
        job.out.mkdir()
        manifest = _make(job, published)
        if sign_key is not None:
            signature.sign(job.out / names.manifest, sign_key)
        put_into_place(job.out, names, directory)
    return manifest


@contextmanager
def _explain_errors(directory: Path) -> Iterator[None]:
    """Explain errors of our own writing, not of a program: usually the disk is full."""
    try:
        yield
    except OSError as exc:
        advice = MAKE_ROOM if exc.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another --directory"
        raise RamdiskError(f"cannot build in {directory}: {exc.strerror or exc}", advice) from exc


def _make(job: Job, published: datetime.datetime) -> Manifest:
    started = time.monotonic()

    def say(text: str) -> None:
        job.say(f"[{time.monotonic() - started:4.0f} s] {text}")

    say(f"fetching ironic-python-agent {job.plan.agent}")
    agent_packages = _agent(job)
    say(f"installing Debian's packages for {job.plan.arch}")
    _root(job)
    store = _store(job)
    say("compressing the system")
    _squashfs(job)
    say("writing kernel, initramfs and ISO")
    _network_files(job, store)
    _iso(job, store)
    manifest = Manifest(
        ferroscope=__version__,
        agent=agent_packages["ironic-python-agent"],
        kernel=store["version"].decode().strip(),
        sources_time=published,
        options=_options(job.plan),
        files={name: _digest(job, name) for name in job.names.files},
        packages=parse_packages(store["packages"].decode()),
        agent_packages=agent_packages,
    )
    (job.out / job.names.manifest).write_bytes(write(manifest))
    say("done")
    return manifest


def _agent(job: Job) -> dict[str, str]:
    """Fetch the agent, and write the archive of what is added to Debian's files."""
    target = job.work / "agent"
    arguments = agent.pip_arguments(job.plan.agent, job.plan.arch, target)
    advice = "check that this host's pip reaches a package index; --verbose shows all that it prints"
    if job.plan.agent != AGENT:
        advice = "check that this release exists, and runs on Python 3.11"
    doing = f"fetching ironic-python-agent {job.plan.agent}"
    job.runner.run([*host.pip(), *arguments], doing, advice=advice, passed_on=agent.SETTINGS)
    files = content.own_files() | content.agent_files(target) | content.operators_files(job.plan)
    (job.work / "overlay.tar").write_bytes(archive.tar(files, job.epoch))
    versions = agent.installed_versions(agent.metadata(target))
    shutil.rmtree(target)
    return versions


def _root(job: Job) -> None:
    settings = job.work / "apt.conf"
    settings.write_text(sources.apt_settings(), encoding="utf-8")
    command = system.mmdebstrap(job.plan, job.mirrors, job.work, settings, sources.passwords())
    job.runner.run([*host.alone(), *command], "installing Debian's packages")


def _store(job: Job) -> dict[str, bytes]:
    """Return the results of the steps: kernel, early modules, boot loaders, the list of packages."""
    with (job.work / "store.tar").open("rb") as stream:
        return {name.removeprefix(f"{content.STORE}/"): data for name, data in archive.members(stream)}


def _squashfs(job: Job) -> None:
    with (job.work / "root.tar").open("rb") as root:
        command = system.mksquashfs(job.epoch, job.work / "root.squashfs")
        job.runner.run(command, "compressing the system", stdin=root)
    (job.work / "root.tar").unlink()


def _network_files(job: Job, store: dict[str, bytes]) -> None:
    names, plan = job.names, job.plan
    (job.out / names.kernel).write_bytes(store["vmlinuz"])
    files = {"init": File(content.early_init(), 0o755), "bin/busybox": File(store["busybox"], 0o755)}
    files |= {name: File(data) for name, data in store.items() if name.startswith("modules/")}
    squashfs = job.work / "root.squashfs"
    with (job.out / names.initramfs).open("wb") as out, squashfs.open("rb") as system:
        archive.cpio(out, files, ("root.squashfs", system, squashfs.stat().st_size), job.epoch)
    squashfs.unlink()
    (job.out / names.script).write_text(boot_files.ipxe_script(names, plan.callback_url, plan.kernel_params))
    (job.out / names.shim).write_bytes(_loader(store, "shim"))
    (job.out / names.grub).write_bytes(_loader(store, "grubnet"))
    (job.out / names.grub_config).parent.mkdir(parents=True)
    menu = boot_files.network_grub_menu(names, plan.callback_url, plan.kernel_params)
    (job.out / names.grub_config).write_text(menu)


def _loader(store: dict[str, bytes], kind: str) -> bytes:
    names = [name for name in store if name.startswith(f"loaders/{kind}") and "installer" not in name]
    if not names:
        raise RamdiskError(f"Debian's packages have no {kind}*.efi.signed", "say --mirror URL of another one")
    return store[min(names, key=len)]


def _iso(job: Job, store: dict[str, bytes]) -> None:
    plan, tree = job.plan, job.work / "iso"
    texts = boot_files.iso_tree(plan.arch, plan.callback_url, plan.kernel_params)
    files = {name: text.encode() for name, text in texts.items()}
    if plan.arch == "amd64":
        files |= {f"isolinux/{name}": store[f"loaders/{name}"] for name in ("isolinux.bin", "ldlinux.c32")}
    for name, data in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name, source in (("vmlinuz", job.names.kernel), ("initramfs", job.names.initramfs)):
        os.link(job.out / source, tree / "boot" / name)
    loaders = []
    for kind, name in zip(("shim", "gcd"), boot_files.EFI_NAMES[plan.arch], strict=True):
        path = job.work / name
        path.write_bytes(_loader(store, kind))
        os.utime(path, (job.epoch, job.epoch))
        loaders.append((str(path), name))
    for command in boot_files.efi_image_commands(str(tree / boot_files.EFI_IMAGE), loaders):
        job.runner.run(command, "making the drive for UEFI")
    paths = [tree, *tree.rglob("*")]
    for path in paths:
        os.utime(path, (job.epoch, job.epoch))
    inside = [path.relative_to(tree).as_posix() for path in paths if path.is_file()]
    command = boot_files.iso_command(plan.arch, str(tree), str(job.out / job.names.iso), inside)
    job.runner.run(command, "making the ISO")


def _digest(job: Job, name: str) -> Digest:
    return digest(job.out / name)


def _options(plan: BuildPlan) -> BuildOptions:
    return BuildOptions(
        kernel=plan.kernel,
        arch=plan.arch,
        firmware=plan.firmware,
        agent=plan.agent,
        mirror=plan.mirror,
        security_mirror=plan.security_mirror,
        extra_packages=sorted(plan.extra_packages),
        ssh_keys={extra.name: content.digest(extra.content) for extra in plan.ssh_keys},
        certificates={extra.name: extra.content.decode() for extra in plan.certificates},
        hooks={extra.name: content.digest(extra.content) for extra in plan.hooks},
        callback_url=plan.callback_url,
        kernel_params=plan.kernel_params,
    )
