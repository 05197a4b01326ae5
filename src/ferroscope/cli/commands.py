"""The table of the service's own commands, which it adds to those of ``ferroscope_client`` by entry points."""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

ALL: Final = Command(
    "ferroscope.cli.roles:run_all", "Run api, worker and periodic tasks in one process.", is_service=True
)
API: Final = Command("ferroscope.cli.roles:run_api", "Run the api role.", is_service=True)
WORKER: Final = Command("ferroscope.cli.roles:run_worker", "Run the worker role.", is_service=True)
DB: Final = Command("ferroscope.cli.database:db", "Upgrade the schema, copy to another database, encrypt secrets.")
SECRET: Final = Command("ferroscope.cli.token:secret", "Manage the keys that encrypt BMC passwords.")
TOKEN: Final = Command("ferroscope.cli.token:token", "Create, list and revoke access tokens for the API.")
USER: Final = Command("ferroscope.cli.user:user", "Add, list and remove users who log in with a password.")
POLICY: Final = Command("ferroscope.cli.user:policy", "Show who may do what, and check the policy file.")
EVENTS: Final = Command("ferroscope.cli.events:events", "List notifications, deliver them again, test targets.")
DOCS: Final = Command("ferroscope.cli.docs:docs", "Show the pages of the documentation.")
DOCTOR: Final = Command("ferroscope.cli.roles:doctor", "Check configuration, database and this host.")
