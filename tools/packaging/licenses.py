"""Writes debian/copyright in Debian's format (DEP-5): what Ferroscope and each Python package say of themselves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path
from typing import Final

_HEAD: Final = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ferroscope

Files: *
Copyright: 2026 The Ferroscope authors
License: Apache-2.0
"""
# Whose texts every Debian has in /usr/share/common-licenses, by the words that begin them.
_COMMON: Final = {
    "Apache-2.0": "http://www.apache.org/licenses/",
    "MPL-2.0": "Mozilla Public License Version 2.0",
    "LGPL-3": "GNU LESSER GENERAL PUBLIC LICENSE",
}
# SPDX's names of what older packages call otherwise.
_NAMES: Final = (
    (r"Mozilla Public License.*", "MPL-2.0"),
    (r".*3-Clause BSD.*", "BSD-3-Clause"),
    (r"Apache.*", "Apache-2.0"),
    (r".*MIT License.*", "MIT"),
    (r"BSD.*License", "BSD"),
    (r"LGPL-3.0-only", "LGPL-3"),
)
_COPYRIGHT: Final = re.compile(r"^\W*Copyright:?\s+(?:\(c\)|©)?\s*([^\n]*\w)", re.IGNORECASE | re.MULTILINE)
_TEXTS: Final = re.compile(r"[^/]*\.dist-info/(?:licenses/)?(?:LICEN[CS]E|COPYING)[^/]*")
_MACHINE_CODE: Final = re.compile(r"\.cpython-\d+.*")


def copyright_file(site: Path) -> str:
    """Return the file for the packages in this directory, of which pip's records are needed."""
    packages = {package.name: package for package in distributions(path=[str(site)])}
    files = {name: _files(package) for name, package in packages.items()}
    owners: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for name, own in files.items():
        for file in own:
            for length in range(1, len(file.parts) + 1):
                owners[file.parts[:length]].add(name)
    paragraphs = [_paragraph(packages[name], files[name], owners) for name in sorted(files, key=str.lower)]
    common = [f"License: {name}\n See /usr/share/common-licenses/{name} on Debian systems.\n" for name in _COMMON]
    return "\n".join([_HEAD, *paragraphs, *common])


def _paragraph(package: Distribution, files: list[PackagePath], owners: dict[tuple[str, ...], set[str]]) -> str:
    texts = [package.locate_file(file).read_text() for file in files if _TEXTS.fullmatch(str(file))]
    own = [text for text in texts if not any(words in text for words in _COMMON.values())]
    holders = dict.fromkeys(holder for text in own for holder in _COPYRIGHT.findall(text))
    author = _metadata(package, "Author", "Author-email") or f"The authors of {package.name}"
    patterns = sorted(set(_patterns(files, owners)))
    lines = ["Files: " + "\n ".join(f"*/site-packages/{pattern}" for pattern in patterns)]
    lines += ["Copyright: " + "\n ".join(holders or [author]), f"License: {_license(package)}"]
    if _license(package) not in _COMMON:
        text = "\n".join(own) or f"See the metadata of {package.name} {package.version}."
        lines += [f" {line}" if line.strip() else " ." for line in map(str.rstrip, text.strip().splitlines())]
    return "\n".join(lines) + "\n"


def _metadata(package: Distribution, *names: str) -> str:
    """Return the first of these that the package has; from Python 3.15 on, reading another by its key is an error."""
    return next((values[0] for name in names if (values := package.metadata.get_all(name))), "")


def _files(package: Distribution) -> list[PackagePath]:
    return [file for file in package.files or () if file.parts[0] not in ("..", "bin", "__pycache__")]


def _patterns(files: list[PackagePath], owners: dict[tuple[str, ...], set[str]]) -> Iterator[str]:
    """Yield the shortest paths that are of one package only: several share directories such as google."""
    for file in files:
        prefix = next(
            (file.parts[:n] for n in range(1, len(file.parts)) if len(owners[file.parts[:n]]) == 1), file.parts
        )
        path = _MACHINE_CODE.sub(".*", "/".join(prefix))
        yield f"{path}/*" if len(prefix) < len(file.parts) else path


def _license(package: Distribution) -> str:
    """Return the short name: SPDX's, in the spelling of DEP-5."""
    kinds = [kind.split(" :: ")[-1] for kind in package.metadata.get_all("Classifier", []) if kind[:7] == "License"]
    stated = _metadata(package, "License-Expression", "License").splitlines()
    name = next(iter([*stated[:1], *kinds]), "unknown")
    name = next((short for pattern, short in _NAMES if re.fullmatch(pattern, name)), name)
    return name.replace(" OR ", " or ").replace(" AND ", " and ")
