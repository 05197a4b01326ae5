"""The suffix ``.json`` of paths, which callers of old microversions may add. Source: the version history, 1.91."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import falcon

from ferroscope.api.http import versions
from ferroscope.api.http.errors import ApiError
from ferroscope.api.http.versions import BARE_METAL

SUFFIX: Final = ".json"
_UNTIL: Final = 91
_KEY: Final = "ferroscope.json_suffix"
# Leases are not part of the Bare Metal API, and their names may end like that.
_EXEMPT: Final = ("/v1/leases/", "/v1/lease_names/", "/v1/introspection")


class JsonSuffix:
    """Falcon middleware that removes the suffix."""

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        if not req.path.endswith(SUFFIX) or not req.path.startswith("/v1/") or req.path.startswith(_EXEMPT):
            return
        if BARE_METAL.environ_key not in req.env:  # as there
            return
        try:
            minor = versions.requested(req.env, BARE_METAL)[1]
        except ApiError:  # the responder reports it
            return
        if minor < _UNTIL:
            req.env[_KEY] = True
            req.path = req.path.removesuffix(SUFFIX)


def was_removed(env: Mapping[str, Any]) -> bool:
    """Whether the path of the request with this environ had the suffix."""
    return _KEY in env
