"""A key of a request's environ that the HTTP server and the application agree on."""

from __future__ import annotations

from typing import Final

# Present if the body has not been read: it is only decided whether to read it. A response with status 100 means yes;
# any other response is final.
HEAD_ONLY: Final = "ferroscope.head_only"
