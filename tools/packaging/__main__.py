"""``python -m tools.packaging image|deb|dist|release``: make them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from tools import changes
from tools.packaging import contents, deb, dist, image, own_debian, release

BUILD = contents.ROOT / "build"
DIST = contents.ROOT / "dist"
LOG = contents.ROOT / "build" / "release.log"


@click.group()
def packaging() -> None:
    """Make what operators install."""


@packaging.command("image")
@click.option("--directory", type=click.Path(path_type=Path), default=BUILD, help="Where it goes.")
def make_image(directory: Path) -> None:
    """Make the OCI image, as root."""
    target = directory / f"ferroscope-{contents.VERSION}-{contents.architecture()}.oci.tar"
    _done(lambda: [image.build(target)])


@packaging.command("deb")
@click.option("--directory", type=click.Path(path_type=Path), default=BUILD, help="Where they go.")
def make_deb(directory: Path) -> None:
    """Make the Debian packages."""
    _done(lambda: deb.build(directory))


@packaging.command("dist")
@click.option("--directory", type=click.Path(path_type=Path), default=DIST, help="Where they go.")
def make_dist(directory: Path) -> None:
    """Make the source distribution and the wheel."""
    _done(lambda: dist.build(directory))


@packaging.command("release-here", hidden=True)
def make_release_here() -> None:
    """Make and check the files of a release with what this system has; ``release`` calls it in a Debian of its own."""
    try:
        release.make(DIST, click.echo)
    except contents.PackagingError as exc:
        raise click.ClickException(str(exc)) from exc


@packaging.command("release")
@click.option("--directory", type=click.Path(path_type=Path), default=DIST, help="Where it goes; it is emptied first.")
@click.option("--sign", "key", default="", help="The GnuPG key that signs the checksums.")
def make_release(directory: Path, key: str) -> None:
    """Make, check and sign all that a release is published with, as root."""
    try:
        changed, tag = release.changed(), release.tag_of()
        if key:
            release.has_key(key)
        click.echo(f"in a Debian of its own; what the tools say goes to {LOG}")
        files = own_debian.make_release(directory, LOG)
        if key:
            files.append(release.sign(directory, key))
    except contents.PackagingError as exc:
        raise click.ClickException(str(exc)) from exc
    for line in release.table(files):
        click.echo(line)
    if changed:
        click.echo(f"NOT OF A COMMIT: {len(changed)} files differ from it, such as {changed[0]}")
    if pending := [*itertools.chain.from_iterable(changes.fragments(contents.ROOT / "changes").values())]:
        click.echo(f"NOT IN THE NOTES: {len(pending)} fragments, such as {pending[0].name}: see changes/README.md")
    if ".example" in (contents.ROOT / "pyproject.toml").read_text():
        click.echo("NO ADDRESS: [project.urls] in pyproject.toml stands for the project's address")
    if not tag:
        version = contents.VERSION
        click.echo(f'NOT TAGGED: to publish them: git tag --sign v{version} -m "Ferroscope {version}"')
    if not key:
        click.echo("UNSIGNED: no key was named; name one with: make release KEY=...")


def _done(make: Callable[[], Sequence[Path]]) -> None:
    try:
        made = make()
    except contents.PackagingError as exc:
        raise click.ClickException(str(exc)) from exc
    for path in made:
        click.echo(f"wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    packaging()
