"""``python -m tools.packaging image|deb|dist``: make them in build/."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from tools.packaging import contents, deb, dist, image


@click.group()
def packaging() -> None:
    """Make what operators install."""


@packaging.command("image")
@click.option("--directory", type=click.Path(path_type=Path), default=contents.ROOT / "build", help="Where it goes.")
def make_image(directory: Path) -> None:
    """Make the OCI image, as root."""
    target = directory / f"ferroscope-{contents.VERSION}-{contents.architecture()}.oci.tar"
    _done(target, lambda: image.build(target))


@packaging.command("deb")
@click.option("--directory", type=click.Path(path_type=Path), default=contents.ROOT / "build", help="Where it goes.")
def make_deb(directory: Path) -> None:
    """Make the Debian package."""
    target = directory / f"ferroscope_{deb.version()}_{contents.architecture()}.deb"
    _done(target, lambda: deb.build(target))


@packaging.command("dist")
@click.option("--directory", type=click.Path(path_type=Path), default=contents.ROOT / "dist", help="Where they go.")
def make_dist(directory: Path) -> None:
    """Make the source distribution and the wheel."""
    for path in dist.build(directory):
        click.echo(f"wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


def _done(target: Path, make: Callable[[], None]) -> None:
    try:
        make()
    except contents.PackagingError as exc:
        raise click.ClickException(str(exc)) from exc
    click.echo(f"wrote {target}, {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    packaging()
