"""Apache httpd with mod_wsgi, and gunicorn, as operators get them, configured as in deploy/ with other addresses.

Both are Debian's and the package index's own; the system's services are never touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import urllib3

from tests import ROOT
from tests.support.certificates import Pair
from tests.support.daemons import MissingServerError
from tests.support.installation import Played
from tests.support.processes import free_port, run, tree, until

DEPLOY: Final = ROOT / "deploy"
_MODULES: Final = Path("/usr/lib/apache2/modules")
# What Debian's apache2.conf loads and says, as far as it matters here.
_MAIN: Final = """\
ServerRoot {directory}
PidFile {directory}/httpd.pid
DefaultRuntimeDir {directory}
WSGISocketPrefix {socket}
ErrorLog {directory}/apache-error.log
LogLevel warn
Timeout 60
MaxKeepAliveRequests 0
StartServers 2
ThreadsPerChild 25
MaxRequestWorkers 50
"""


class WebServer:
    """Serves the WSGI application with ``processes`` of ``threads``; ``bare_metal`` and ``introspection`` are ports."""

    def __init__(
        self,
        directory: Path,
        database: str,
        options: str,
        *,
        processes: int = 2,
        threads: int = 4,
        tls: Pair | None = None,
    ) -> None:
        """``options``: more of the configuration; the section ``[api]`` is open. ``tls``: for HTTPS by Apache."""
        self.directory = directory
        self.tls = tls
        self.bare_metal, self.introspection = free_port(), free_port()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.bare_metal}"
        self.config = directory / "ferroscope.conf"
        self.config.write_text(
            f"[database]\nconnection = {database}\n[drivers]\nenabled = sim,fake-hardware\n"
            f"[api]\nintrospection_port = {self.introspection}\n{options}"
        )
        self.played = Played(type(self).__name__.lower(), directory, self.command(processes, threads))

    def command(self, processes: int, threads: int) -> Sequence[str]:
        raise NotImplementedError

    def serving(self) -> list[int]:
        """Return the processes that run the application."""
        raise NotImplementedError

    def reload(self) -> None:
        """Replace all of them gracefully."""
        raise NotImplementedError

    def wait_ready(self) -> None:
        """Return when it is healthy."""
        ca = str(self.tls.certificate.with_name("ca.pem")) if self.tls else None
        if not until(lambda: not self.played.alive or healthy(self.url, ca)) or not self.played.alive:
            raise RuntimeError(f"{self.played.name} does not serve:\n{self.output()[-3000:]}")

    def output(self) -> str:
        """Return all that it and the application have logged."""
        logs = (self.played.log, self.directory / "apache-error.log")
        return "".join(path.read_text(errors="replace") for path in logs if path.exists())

    def _environment(self) -> list[str]:
        return ["env", f"FERROSCOPE_CONFIG={self.config}", "PYTHONWARNINGS=ignore"]


class Gunicorn(WebServer):
    def command(self, processes: int, threads: int) -> Sequence[str]:
        config = self.directory / "gunicorn.conf.py"
        config.write_text(
            changed(
                DEPLOY / "gunicorn/gunicorn.conf.py",
                {
                    ":6385": f":{self.bare_metal}",
                    ":5050": f":{self.introspection}",
                    "workers = 4": f"workers = {processes}",
                    "threads = 8": f"threads = {threads}",
                },
            )
        )
        return [*self._environment(), str(Path(sys.executable).with_name("gunicorn")), "-c", str(config)]

    def serving(self) -> list[int]:
        return [pid for pid in tree(self.played.pid)[1:] if _parent(pid) == self.played.pid]

    def reload(self) -> None:
        self.played.process.send_signal(signal.SIGHUP)


class Apache(WebServer):
    def command(self, processes: int, threads: int) -> Sequence[str]:
        program = shutil.which("apache2", path="/usr/sbin")
        if program is None or not (_MODULES / "mod_wsgi.so").exists():
            raise MissingServerError(
                "the tests need apache2-bin and libapache2-mod-wsgi-py3; run: tools/setup.sh apache"
            )
        directory = self.directory
        script = directory / "ferroscope.wsgi"
        script.write_text(changed(DEPLOY / "apache/ferroscope.wsgi", {}))
        site = changed(
            DEPLOY / "apache/ferroscope.conf",
            {
                "Listen 6385": f"Listen 127.0.0.1:{self.bare_metal}",
                "Listen 5050": f"Listen 127.0.0.1:{self.introspection}",
                ":6385": f":{self.bare_metal}",
                ":5050": f":{self.introspection}",
                "user=ferroscope group=ferroscope ": "",
                "python-home=/opt/ferroscope": f"python-home={self._environment_of_debian()}",
                "processes=4 threads=8": f"processes={processes} threads={threads}",
                "/etc/ferroscope/ferroscope.wsgi": str(script),
                "<Directory /etc/ferroscope>": f"<Directory {directory}>",
                **self._https(),
            },
        )
        main = _MAIN.format(directory=directory, socket=f"/tmp/fs-wsgi-{os.getpid()}-{self.bare_metal}")
        modules = (
            "mpm_event",
            "authz_core",
            "env",
            "reqtimeout",
            "wsgi",
            *(("socache_shmcb", "ssl") if self.tls else ()),
        )
        loads = "".join(f"LoadModule {name}_module {_MODULES}/mod_{name}.so\n" for name in modules)
        config = directory / "httpd.conf"
        config.write_text(loads + main + site)
        # Apache serves nothing as root. With another user it could not enter the directories of the tests.
        unroot = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
        return [*self._environment(), *unroot, program, "-D", "FOREGROUND", "-f", str(config)]

    def _https(self) -> dict[str, str]:
        """Return what the how-to has changed for HTTPS."""
        if self.tls is None:
            return {}
        included = self.directory / "ferroscope-tls.conf"
        places = {
            "/etc/ferroscope/tls/certificate.pem": str(self.tls.certificate),
            "/etc/ferroscope/tls/key.pem": str(self.tls.key),
        }
        included.write_text(changed(DEPLOY / "apache/ferroscope-tls.conf", places))
        return {"# HTTPS: Include /etc/ferroscope/ferroscope-tls.conf": f"Include {included}"}

    def _environment_of_debian(self) -> Path:
        """Return a virtual environment of the Python that mod_wsgi was built for, with the packages of ours."""
        environment = self.directory / "venv"
        run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(environment)], user=None, directory=self.directory)
        packages = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        if not (environment / packages).is_dir():
            raise MissingServerError(f"Debian's mod_wsgi needs the tests to run with its Python, not {sys.version}")
        (environment / packages / "ours.pth").write_text(f"import site; site.addsitedir('{sys.prefix}/{packages}')\n")
        return environment

    def serving(self) -> list[int]:
        return [pid for pid in tree(self.played.pid)[1:] if _command(pid).startswith("(wsgi:ferroscope)")]

    def reload(self) -> None:
        for pid in self.serving():
            count = len(self.serving())
            os.kill(pid, signal.SIGUSR1)
            until(lambda pid=pid, count=count: pid not in (now := self.serving()) and len(now) == count)


KINDS: Final[Mapping[str, Callable[..., WebServer]]] = {"apache": Apache, "gunicorn": Gunicorn}


def changed(path: Path, replacements: Mapping[str, str]) -> str:
    """Return a shipped file with our values in place of its examples, each of which must be there."""
    text = path.read_text()
    for old, new in replacements.items():
        if old not in text:
            raise RuntimeError(f"{path} does not contain {old!r}")
        text = text.replace(old, new)
    return text


def healthy(url: str, ca: str | None = None) -> bool:
    """Return whether the health check succeeds; ``ca``: the file of the authority that signed the certificate."""
    try:
        with urllib3.PoolManager(ca_certs=ca) as http:
            return http.request("GET", f"{url}/healthcheck", retries=False, timeout=10.0).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
