"""Adds to the wheel the client's version, and what is not Python: examples, pages, and man pages if they were made.

The description is README.md with absolute links: a package index shows it without the files beside it.

Everything else is in pyproject.toml, which cannot name whole directories of such files.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup

# Directory of the source -> where pip installs it, below the environment. tools/packaging makes share.
_PLACES = {"deploy": "share/ferroscope/deploy", "share": "share"}
# ``ferroscope docs`` shows them.
for _kind in ("tutorial", "how-to", "explanation", "reference"):
    _PLACES[f"docs/{_kind}"] = f"share/doc/ferroscope/{_kind}"


def _files() -> Iterator[tuple[str, list[str]]]:
    for source, target in _PLACES.items():
        for directory in sorted({one.parent for one in Path(source).rglob("*") if one.is_file()}):
            wanted = ("*.md",) if source.startswith("docs") else ("*",)
            files = sorted(str(one) for pattern in wanted for one in directory.glob(pattern) if one.is_file())
            yield str(Path(target) / directory.relative_to(source)), files


def _description() -> str:
    source = tomllib.loads(Path("pyproject.toml").read_text())["project"]["urls"]["Source"]
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\1{source}/raw/main/", Path("README.md").read_text())
    return re.sub(r"(?<=\]\()(?!https?:|#)", f"{source}/blob/main/", text)


_CLIENT = Path("client/src/ferroscope_client/__init__.py").read_text(encoding="utf-8")
setup(
    version=re.findall('__version__ = "(.+)"', _CLIENT)[0],
    data_files=list(_files()),
    long_description=_description(),
    long_description_content_type="text/markdown",
)
