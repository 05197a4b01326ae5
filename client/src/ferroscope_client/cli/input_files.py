"""Files that a command reads. An error in a file is reported without the command's usage, which is correct."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import click

from ferroscope_client.errors import Exit, Failure

_BYTES_PER_MIB: Final = 2**20


class InputFile(click.File):
    """A file to read, or "-" for standard input."""

    def fail(self, message: str, _param: click.Parameter | None = None, _ctx: click.Context | None = None) -> NoReturn:
        raise invalid(message)


class InputPath(click.Path):
    """The path of a file that exists."""

    def fail(self, message: str, _param: click.Parameter | None = None, _ctx: click.Context | None = None) -> NoReturn:
        raise invalid(message)


def invalid(message: str, advice: str = "") -> Failure:
    """Return the failure for a file that cannot be used; nothing was done."""
    return Failure(message, exit_code=Exit.USAGE, advice=advice)


def content_of(file: Any, most: int) -> bytes:
    """Return the content of the file; ``Failure`` if it has more than this many bytes."""
    content: bytes = file.read(most + 1)
    if len(content) > most:
        raise invalid(f"{file.name} is larger than {most // _BYTES_PER_MIB} MiB")
    return content


def yaml_of(file: Any, most: int) -> Any:
    """Return the decoded YAML of the file; ``Failure``."""
    import yaml

    content = content_of(file, most)
    try:
        return yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as exc:
        raise invalid(f"{file.name} is not YAML: {' '.join(str(exc).split())[:300]}") from None
