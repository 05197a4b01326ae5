"""A private Nautobot from ``.nautobot-venv``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

from ferroscope.contrib.dcim.dialects import NAUTOBOT, DcimDialect
from tests.support.dcim import DcimServer

_TOKEN: Final = "c2f1a9d07b3e48569d80fe5b1a2c4d6e8f907132"
LOCATION: Final = "lab"
ROLE: Final = "Server"
_CONFIGURATION: Final = """\
import sys

from nautobot.core.settings import *

SECRET_KEY = "a-key-for-tests-only-" * 4
ALLOWED_HOSTS = ["*"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "{database}", "USER": "ferroscope",
                          "PASSWORD": "", "HOST": "127.0.0.1", "PORT": "{postgresql}"}}}}
CACHES["default"]["LOCATION"] = "redis://127.0.0.1:{redis}/1"
CELERY_BROKER_URL = "redis://127.0.0.1:{redis}/0"
INSTALLATION_METRICS_ENABLED = False


class _Unmigrated(dict):
    # Every application, as one without migrations.
    def __contains__(self, app):
        return True

    def __getitem__(self, app):
        return None

    def get(self, app, default=None):
        return None


if "--run-syncdb" in sys.argv:
    MIGRATION_MODULES = _Unmigrated()
"""
_SEED: Final = f"""\
from django.contrib.contenttypes.models import ContentType
from nautobot.extras.management import populate_status_choices
from nautobot.dcim.models import Device, Location, LocationType
from nautobot.extras.models import Role, Status
from nautobot.users.models import Token, User
populate_status_choices(verbosity=0)  # which its migrations do
user = User.objects.create_superuser("admin", "", "admin")
Token.objects.create(user=user, key="{_TOKEN}")
Token.objects.create(user=User.objects.create_user("reader"), key="{_TOKEN[::-1]}")
devices = ContentType.objects.get_for_model(Device)
room = LocationType.objects.create(name="Room")
room.content_types.add(devices)
Location.objects.create(name="{LOCATION}", location_type=room, status=Status.objects.get(name="Active"))
Role.objects.create(name="{ROLE}").content_types.add(devices)
"""


class Nautobot(DcimServer):
    """``powerless_token`` is that of a user without rights."""

    name: ClassVar[str] = "nautobot"
    program: ClassVar[str] = "nautobot-server"
    dialect: ClassVar[DcimDialect] = NAUTOBOT
    token: ClassVar[str] = _TOKEN
    powerless_token: ClassVar[str] = _TOKEN[::-1]
    seed: ClassVar[str] = _SEED

    def configure(self, directory: Path, postgresql: int, redis: int, database: str) -> list[str]:
        configuration = directory / "nautobot_config.py"
        configuration.write_text(_CONFIGURATION.format(database=database, postgresql=postgresql, redis=redis))
        return [f"NAUTOBOT_ROOT={directory}", f"NAUTOBOT_CONFIG={configuration}"]

    def migrate(self) -> None:
        """Make the tables of its models as they are now, in seconds.

        Its hundreds of migrations end with the same, but take minutes of processor time to render each state between.
        """
        self.run(["migrate", "--no-input", "--run-syncdb"])

    def place(self, name: str) -> dict[str, Any]:
        room = self.list("dcim/location-types", name="Room")[0]["id"]
        return {"name": name, "location_type": room, "status": {"name": "Active"}}
