"""The metrics of this process and of the whole service, for Prometheus; without authentication."""

from __future__ import annotations

from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import MissingError


def get_metrics(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """Return the metrics in Prometheus's text format."""
    if context.metrics is None:
        raise MissingError("Metrics are switched off here ([api] enable_metrics).")
    return Reply(200, context.metrics())
