"""A private Nautobot from ``.nautobot-venv``, on a PostgreSQL and a Redis of the test run.

Making its schema takes many minutes, so the first run keeps a dump of the new database, and later ones restore that.
"""

from __future__ import annotations

import subprocess
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import urllib3

from tests.support.daemons import MissingServerError, Postgresql
from tests.support.processes import free_port, spawn, until
from tests.support.servers import Server

_VENV: Final = Path(__file__).parents[3] / ".nautobot-venv"
_CACHE: Final = Path.home() / ".cache" / "ferroscope"
TOKEN: Final = "c2f1a9d07b3e48569d80fe5b1a2c4d6e8f907132"
LOCATION: Final = "lab"
ROLE: Final = "Server"
_CONFIGURATION: Final = """\
from nautobot.core.settings import *

SECRET_KEY = "a-key-for-tests-only-" * 4
ALLOWED_HOSTS = ["*"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "{database}", "USER": "ferroscope",
                          "PASSWORD": "", "HOST": "127.0.0.1", "PORT": "{postgresql}"}}}}
CACHES["default"]["LOCATION"] = "redis://127.0.0.1:{redis}/1"
CELERY_BROKER_URL = "redis://127.0.0.1:{redis}/0"
INSTALLATION_METRICS_ENABLED = False
"""
# Run by Nautobot's own shell: what an operator has made before the first sync.
_SEED: Final = f"""\
from django.contrib.contenttypes.models import ContentType
from nautobot.dcim.models import Device, Location, LocationType
from nautobot.extras.models import Role, Status
from nautobot.users.models import Token, User
user = User.objects.create_superuser("admin", "", "admin")
Token.objects.create(user=user, key="{TOKEN}")
devices = ContentType.objects.get_for_model(Device)
room = LocationType.objects.create(name="Room")
room.content_types.add(devices)
Location.objects.create(name="{LOCATION}", location_type=room, status=Status.objects.get(name="Active"))
Role.objects.create(name="{ROLE}").content_types.add(devices)
"""


class Nautobot:
    """``url`` is where it answers."""

    def __init__(self, directory: Path, postgresql: Server, redis: Server, database: str) -> None:
        self._program = _VENV / "bin" / "nautobot-server"
        if not self._program.exists():
            raise MissingServerError("the test needs Nautobot in .nautobot-venv; run: tools/setup.sh nautobot")
        self._directory = directory
        configuration = directory / "nautobot_config.py"
        configuration.write_text(_CONFIGURATION.format(database=database, postgresql=postgresql.port, redis=redis.port))
        self._variables = [f"NAUTOBOT_ROOT={directory}", f"NAUTOBOT_CONFIG={configuration}"]
        self._at = ["-h", "127.0.0.1", "-p", str(postgresql.port), "-U", "ferroscope", "-d", database]
        self._fill()
        self._run(["nbshell", "--command", _SEED])
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        serve = ["runserver", f"127.0.0.1:{port}", "--noreload", "--insecure"]
        command = ["env", *self._variables, str(self._program), *serve]
        self._process = spawn(command, user=None, directory=directory, log=directory / "nautobot.log")
        self._pool = urllib3.PoolManager(retries=False, timeout=60)
        assert until(self._answers, seconds=300), (directory / "nautobot.log").read_text()[-2000:]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def list(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Return all objects of a list."""
        found: list[dict[str, Any]] = self.call("GET", f"{path}/", fields={**query, "limit": 0})["results"]
        return found

    def call(self, method: str, path: str, **more: Any) -> Any:
        """Call its API as its administrator."""
        headers = {"Authorization": f"Token {TOKEN}"}
        answer = self._pool.request(method, f"{self.url}/api/{path}", headers=headers, **more)
        assert answer.status < 300, answer.data[:1000]
        return answer.json()

    def _fill(self) -> None:
        """Make the schema, or restore that of an earlier run."""
        version = next(one.version for one in distributions(path=self._packages()) if one.name == "nautobot")
        dump = _CACHE / f"nautobot-{version}.dump"
        postgresql = Postgresql()
        if not dump.exists():
            self._run(["migrate", "--no-input"])
            dump.parent.mkdir(parents=True, exist_ok=True)
            half = dump.with_suffix(".half")
            subprocess.run([postgresql.program("pg_dump"), *self._at, "-Fc", "-f", str(half)], check=True)
            half.rename(dump)
        else:
            subprocess.run([postgresql.program("pg_restore"), *self._at, "--no-owner", str(dump)], check=True)

    def _packages(self) -> list[str]:
        return [str(path) for path in _VENV.glob("lib/python*/site-packages")]

    def _run(self, arguments: list[str]) -> None:
        command = ["env", *self._variables, str(self._program), *arguments]
        done = subprocess.run(command, cwd=self._directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def _answers(self) -> bool:
        try:
            return bool(self._pool.request("GET", f"{self.url}/health/").status < 500)
        except urllib3.exceptions.HTTPError:
            return False
