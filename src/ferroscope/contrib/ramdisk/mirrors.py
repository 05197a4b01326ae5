"""The mirrors that a build takes Debian's packages from: those of the options, else those of this host's own apt.

``choose`` takes what ``apt-get indextargets`` prints, which is the same for files of one-line entries and of deb822.
What a mirror really has is found out later, by asking it (``sources.ask``).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.contrib.ramdisk.host import search_path
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.plan import SUITE, BuildPlan, check_mirror
from ferroscope.contrib.ramdisk.programs import fixed_environment
from ferroscope_client.core.values import without_secrets

# Without the release files: those are missing before the first 'apt-get update', as in images of containers.
_COMMAND: Final = ("apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE)")
_ONLY_PACKAGES: Final = "Created-By: Packages"
_COMMAND_SECONDS: Final = 60.0
# A list of mirrors, one a line, as Debian's images for clouds have it: apt-transport-mirror(1).
_LIST: Final = re.compile(r"mirror\+file:(?://)?(?P<path>/.+)")
_PRIORITY: Final = re.compile(r"\bpriority:(\d+)")


class Mirrors(msgspec.Struct, frozen=True):
    """URLs of Debian's packages, and of its security updates, without a slash at the end."""

    packages: str
    security: str


def of(plan: BuildPlan) -> Mirrors:
    """Return the mirrors of a plan; ``RamdiskError`` if this host has to know one, and does not."""
    if plan.mirror and plan.security_mirror:
        return Mirrors(plan.mirror.rstrip("/"), plan.security_mirror.rstrip("/"))
    return choose(plan, _listing(), is_debian=_is_debian())


def choose(plan: BuildPlan, listing: str, *, is_debian: bool) -> Mirrors:
    """Return the mirrors of a plan on a host whose apt says this; ``RamdiskError``.

    Others name their releases like Debian does, but have no updates beside them. A mirror from which this host installs
    another release, if it is Debian itself (``is_debian``), is the last choice: it may have ours, too.
    """
    releases = _releases(listing)

    def first(option: str, wanted: str, *choices: Callable[[set[str]], bool]) -> str:
        for choice in choices:
            for url, releases_there in releases.items():
                if choice(releases_there):
                    return _usable(url, option)
        others = ", ".join(sorted({release for releases_there in releases.values() for release in releases_there}))
        raise RamdiskError(
            f"this host's apt has no source of Debian's {wanted}, but {others or 'none at all'}", f"say {option} URL"
        )

    packages = plan.mirror.rstrip("/") or first(
        "--mirror",
        SUITE,
        lambda releases_there: {SUITE, f"{SUITE}-updates"} <= releases_there,
        lambda releases_there: SUITE in releases_there,
        lambda releases_there: is_debian and any(f"{release}-updates" in releases_there for release in releases_there),
    )
    security = plan.security_mirror.rstrip("/") or first(
        "--security-mirror",
        f"{SUITE}-security",
        lambda releases_there: f"{SUITE}-security" in releases_there,
        lambda releases_there: is_debian and any(release.endswith("-security") for release in releases_there),
    )
    return Mirrors(packages, security)


def _releases(listing: str) -> dict[str, set[str]]:
    """Return the releases of each URL, in apt's order. What is on a disc is no mirror."""
    by_url: dict[str, set[str]] = {}
    for line in listing.splitlines():
        url, _, release = line.rpartition(" ")
        if url and not url.startswith("cdrom:"):
            by_url.setdefault(url, set()).add(release)
    return by_url


def _usable(url: str, option: str) -> str:
    """Return the URL of a source as the build uses it: of a list of mirrors, the first of the most preferred ones."""
    if (parsed := _LIST.fullmatch(url)) is not None:
        path = Path(parsed["path"].rstrip("/"))
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as exc:
            raise RamdiskError(
                f"cannot read apt's list of mirrors {path}: {exc.strerror}", f"say {option} URL"
            ) from exc
        entries = [line for line in lines if line.strip() and not line.startswith("#")]
        url = min(entries, key=_priority).split()[0] if entries else url
    url = url.rstrip("/")
    check_mirror(url, f"apt's source for {option}")
    return url


def _priority(line: str) -> int:
    match = _PRIORITY.search(line)
    return int(match[1]) if match else 1 << 31


def _listing() -> str:
    """Return what apt says about this host's sources."""
    advice = "say --mirror URL and --security-mirror URL"
    try:
        done = subprocess.run(  # noqa: S603
            [*_COMMAND, _ONLY_PACKAGES],
            capture_output=True, text=True, env=fixed_environment({"PATH": search_path()}),
            timeout=_COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise RamdiskError(f"cannot ask apt for this host's mirror: {exc}", advice) from exc
    if done.returncode:
        errors = [line.removeprefix("E: ") for line in done.stderr.splitlines() if line.startswith("E: ")]
        reason = without_secrets(errors[0]) if errors else f"exit code {done.returncode}"
        raise RamdiskError(f"cannot ask apt for this host's mirror: apt-get: {reason}", advice)
    return done.stdout


def _is_debian() -> bool:
    try:
        return bool(re.search(r"^ID=\"?debian\"?$", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE))
    except OSError:
        return False
