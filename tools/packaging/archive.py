"""Archives that are the same wherever and whenever they are made."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from tools.packaging import contents


def archive(root: Path, target: Path) -> None:
    """Write a directory as a .tar.gz whose bytes depend on names, contents, and what may be executed only."""
    epoch, written = contents.build_time(), io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            member = tar.gettarinfo(path, str(path.relative_to(root.parent)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.mode = epoch, 0o755 if member.mode & 0o100 else 0o644
            if member.isreg():
                with path.open("rb") as content:
                    tar.addfile(member, content)
            else:
                tar.addfile(member)
    target.write_bytes(gzip.compress(written.getvalue(), compresslevel=9, mtime=0))
