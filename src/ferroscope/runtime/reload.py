"""What SIGHUP does: it has all followed files read again, and the log's options from the configuration."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from ferroscope.config import followed
from ferroscope.config.load import ConfigurationError
from ferroscope.config.options import SECTIONS, Settings
from ferroscope.telemetry import log

Reread = Callable[[], Settings]

_log = structlog.get_logger(__name__)


class Reload:
    """Configures the log of this process, and again at each call. ``reread`` None: there is no configuration to read.

    ``settings`` are the current ones. Other options than those of the log need a restart.
    """

    def __init__(self, settings: Settings, process: str, reread: Reread | None) -> None:
        self.settings = settings
        self._process = process
        self._reread = reread or (lambda: settings)
        log.configure(settings.log, process=process)

    def __call__(self) -> None:
        try:
            new = self._reread()
        except ConfigurationError as exc:
            _log.error("cannot use the changed configuration; the previous one stays in use", why=str(exc))
        else:
            old, self.settings = self.settings, msgspec.structs.replace(self.settings, log=new.log)
            log.configure(new.log, process=self._process)
            changed = [name for name in SECTIONS if name != "log" and getattr(new, name) != getattr(old, name)]
            if changed:
                _log.warning("changes of the configuration need a restart", sections=changed)
        followed.reload()
        _log.info("reloaded")
