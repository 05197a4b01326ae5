"""HAProxy as operators get it: Debian's package, and the configuration of deploy/ with other addresses."""

from __future__ import annotations

import csv
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.support.installation import Played
from tests.support.processes import free_port, until

SHIPPED: Final = ROOT / "deploy/haproxy/haproxy.cfg"
_SERVERS: Final = re.compile(r"^    server .*\n", re.MULTILINE)


class MissingBalancerError(RuntimeError):
    """HAProxy is not installed: an error, for a skipped test proves nothing."""


def program() -> str:
    """Return where HAProxy is."""
    found = shutil.which("haproxy", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
    if found is None:
        raise MissingBalancerError("the tests need haproxy; install the Debian package haproxy, or run: make test")
    return found


class Balancer(Played):
    """In front of api processes; ``apis`` are their ports: (bare metal, introspection)."""

    def __init__(self, directory: Path, apis: Sequence[tuple[int, int]]) -> None:
        self.bare_metal, self.introspection, self._runtime = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.bare_metal}"
        config = directory / "haproxy.cfg"
        config.write_text(self._configured(apis))
        checked = subprocess.run([program(), "-c", "-f", str(config)], capture_output=True, text=True, check=False)
        if checked.returncode:
            raise RuntimeError(f"HAProxy does not take the configuration: {checked.stdout}{checked.stderr}")
        super().__init__("haproxy", directory, [program(), "-db", "-f", str(config)])

    def wait_listens(self) -> None:
        """Return when it takes connections."""
        self.wait_until(lambda: _listens(self.bare_metal))

    def wait_found(self) -> None:
        """Return when its health checks have found every api process."""
        if not until(lambda: self._states() == {"UP"}):
            raise RuntimeError(f"HAProxy does not find all servers: {self._states()}")

    def _states(self) -> set[str]:
        """Return what the health checks say of the servers."""
        with socket.create_connection(("127.0.0.1", self._runtime)) as connection:
            connection.sendall(b"show stat\n")
            rows = csv.DictReader(connection.makefile("r"))
            return {row["status"] for row in rows if re.fullmatch(r"api\d+", row["svname"] or "")}

    def _configured(self, apis: Sequence[tuple[int, int]]) -> str:
        """Return the shipped configuration with our addresses in place of its examples."""
        text = SHIPPED.read_text()
        text = text.replace("global\n", f"global\n    stats socket ipv4@127.0.0.1:{self._runtime}\n", 1)
        text = text.replace("bind 127.0.0.1:6384", f"bind 127.0.0.1:{free_port()}")
        text = text.replace("bind :6385", f"bind 127.0.0.1:{self.bare_metal}")
        text = text.replace("bind :5050", f"bind 127.0.0.1:{self.introspection}")
        ports = iter(zip(*apis, strict=True))
        head, *backends = re.split(r"(?=^backend )", text, flags=re.MULTILINE)
        for backend in backends:
            if _SERVERS.search(backend) is None:  # a table
                head += backend
                continue
            numbered = list(enumerate(next(ports), 1))
            lines = [f"    server api{n} 127.0.0.1:{port}\n" for n, port in numbered]
            lines += [f"    server api{n}-unchecked 127.0.0.1:{port} no-check backup\n" for n, port in numbered]
            servers = iter(["".join(lines)])
            head += _SERVERS.sub(lambda _, servers=servers: next(servers, ""), backend)
        return head


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
