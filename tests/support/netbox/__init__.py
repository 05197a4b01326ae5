"""A private NetBox from ``.netbox-venv``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

from ferroscope.contrib.dcim.dialects import NETBOX, DcimDialect
from tests.support.dcim import DcimServer

# The parts of a token of the second version.
_KEY: Final = "fs0test0key0"
_SECRET: Final = "c2f1a9d07b3e48569d80fe5b1a2c4d6e8f907132"
SITE: Final = "lab"
ROLE: Final = "Server"
_CONFIGURATION: Final = """\
ALLOWED_HOSTS = ["*"]
SECRET_KEY = "a-key-for-tests-only-" * 4
API_TOKEN_PEPPERS = {{1: "a-pepper-for-tests-only-" * 4}}
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "{database}", "USER": "ferroscope",
                          "PASSWORD": "", "HOST": "127.0.0.1", "PORT": "{postgresql}"}}}}
_REDIS = {{"HOST": "127.0.0.1", "PORT": {redis}, "USERNAME": "", "PASSWORD": "", "SSL": False}}
REDIS = {{"tasks": {{**_REDIS, "DATABASE": 0}}, "caching": {{**_REDIS, "DATABASE": 1}}}}
CENSUS_REPORTING_ENABLED = False
"""
_SEED: Final = f"""\
from dcim.models import DeviceRole, Site
from users.models import Token, User
user = User.objects.create_superuser("admin", "", "admin")
Token(user=user, key="{_KEY}", token="{_SECRET}").save()
Token(user=user, version=1, token="{_SECRET}").save()
Token(user=User.objects.create_user("reader"), version=1, token="{_SECRET[::-1]}").save()
Site.objects.create(name="{SITE}", slug="{SITE}", status="active")
DeviceRole.objects.create(name="{ROLE}", slug="server")
"""


class NetBox(DcimServer):
    """``old_token`` has the same rights, in the form of the first version; ``powerless_token`` has none."""

    name: ClassVar[str] = "netbox"
    program: ClassVar[str] = "netbox"
    dialect: ClassVar[DcimDialect] = NETBOX
    token: ClassVar[str] = f"nbt_{_KEY}.{_SECRET}"
    old_token: ClassVar[str] = _SECRET
    powerless_token: ClassVar[str] = _SECRET[::-1]
    seed: ClassVar[str] = _SEED

    def configure(self, directory: Path, postgresql: int, redis: int, database: str) -> list[str]:
        configuration = directory / "conf" / "configuration.py"
        configuration.parent.mkdir()
        configuration.write_text(_CONFIGURATION.format(database=database, postgresql=postgresql, redis=redis))
        return [f"NETBOX_ROOT={directory}"]

    def place(self, name: str) -> dict[str, Any]:
        return {"name": name, "slug": name, "status": "active"}
