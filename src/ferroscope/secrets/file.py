"""The source ``file``: ``secret://file/PATH`` is the file PATH below ``[secrets] file_directory``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ferroscope.contracts.plugins import SecretOptions, SecretSourceError
from ferroscope_client.core.text_files import NotTextError, text_of

_MAX_BYTES: Final = 64 * 1024
_ABSENT: Final = "no such file below [secrets] file_directory"


class FileSource:
    """See ``contracts.plugins.SecretSource``. One line break at the end of a file is not a part of the secret."""

    def __init__(self, options: SecretOptions) -> None:
        if not options.file_directory.startswith("/"):
            raise ValueError("the source file requires an absolute path in [secrets] file_directory")
        self._directory = Path(options.file_directory)

    def resolve(self, path: str) -> str:
        """Return the content of the file."""
        try:
            descriptor = self._open(path)
        except FileNotFoundError:
            raise SecretSourceError(_ABSENT) from None
        except OSError as exc:
            raise SecretSourceError(f"cannot read the file: {exc.strerror}", transient=True) from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SecretSourceError("it is not a regular file")
            content = os.read(descriptor, _MAX_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(content) > _MAX_BYTES:
            raise SecretSourceError(f"the file is larger than {_MAX_BYTES} bytes")
        try:
            return text_of(content).removesuffix("\n").removesuffix("\r")
        except NotTextError as exc:
            raise SecretSourceError(str(exc)) from None

    def _open(self, path: str) -> int:
        real = self._real(path)
        while True:
            try:
                return os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            except FileNotFoundError:
                # Mounted secrets are replaced by changing a link to their directory, which is then removed.
                before, real = real, self._real(path)
                if real == before:
                    raise

    def _real(self, path: str) -> str:
        # Links are followed, because containers get secrets as links, but they must not lead out of the directory.
        # The answer is the same for a file outside of it and for a missing one: callers must not learn which.
        root = os.path.realpath(self._directory)
        real = os.path.realpath(Path(root, path)) if path and "\0" not in path else root
        if os.path.commonpath([real, root]) != root or real == root or path.startswith("/"):
            raise SecretSourceError(_ABSENT)
        return real
