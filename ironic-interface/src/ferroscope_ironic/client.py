"""Ferroscope's Introspection API, as this interface needs it: start, status, data, abort.

Two kinds of failures: ``UnavailableError`` may be over soon, so callers wait; ``RefusedError`` will not. No message
contains credentials.
"""

import threading
import time
import uuid

from ironic.common import exception, keystone
from keystoneauth1 import exceptions as keystone_exceptions
from oslo_config import cfg

from ferroscope_ironic.options import GROUP

CONF = cfg.CONF

# So many seconds after a call that was not answered none is made: one that hangs would delay all other nodes.
_QUIET = 5.0
_LONGEST_DETAIL = 500
# 409: the node is being aborted, or inspected for somebody else. 404 of a gateway looks the same as one of the API.
_TRANSIENT = frozenset({408, 409, 425, 429})


class UnavailableError(Exception):
    """Ferroscope does not answer, or cannot do it now."""


class RefusedError(Exception):
    """Ferroscope will not do it; ``status`` is that of HTTP."""

    def __init__(self, message, status):
        super().__init__(message)
        self.status = status


class Client:
    """Thread-safe. It logs in at the first call, so a conductor starts without Keystone and Ferroscope."""

    def __init__(self):
        self._lock = threading.Lock()
        self._adapter = None
        self._quiet_until = 0.0
        self._problem = ""

    def start(self, node):
        """Start an introspection of the node with this UUID, or start it again if the machine is awaited."""
        self._of_node("POST", f"/introspection/{node}")

    def status(self, node):
        """Return the status of the newest introspection."""
        return self._document(self._of_node("GET", f"/introspection/{node}"))

    def data(self, node):
        """Return inventory and plugin data; None if none are stored."""
        try:
            found = self._document(self._call("GET", f"/introspection/{node}/data"))
        except RefusedError as exc:
            if exc.status == 404:
                return None
            raise
        return found.pop("inventory", None), found

    def abort(self, node):
        """Abort the introspection; it is not an error if it has ended."""
        try:
            self._of_node("POST", f"/introspection/{node}/abort", transient=_TRANSIENT - {409})
        except RefusedError as exc:
            if exc.status != 409:
                raise

    def _of_node(self, method, path, **options):
        """Call; 404 means that there is no such node, or none that our user may see: nobody learns which of both."""
        try:
            return self._call(method, path, **options)
        except RefusedError as exc:
            if exc.status != 404:
                raise
            hint = f"is it attached to this Ironic, and has the user of [{GROUP}] a role that may see all nodes?"
            raise RefusedError(f"{exc}; {hint}", 404) from None

    def _call(self, method, path, transient=_TRANSIENT):
        if time.monotonic() < self._quiet_until:
            raise UnavailableError(self._problem)
        try:
            adapter = self._connected()
            base = adapter.get_endpoint()
            if not base:
                raise RefusedError(
                    f"no endpoint of Ferroscope: set [{GROUP}] endpoint_override, or correct service_type, region_name "
                    "and valid_interfaces",
                    400,
                )
            url = f"{base.rstrip('/').removesuffix('/v1')}/v1{path}"
            headers = {"Accept": "application/json"}
            if method != "GET":  # the session may repeat it
                headers["Idempotency-Key"] = str(uuid.uuid4())
            answer = adapter.session.request(url, method, auth=adapter.auth, raise_exc=False, headers=headers)
        except (keystone_exceptions.Unauthorized, exception.KeystoneUnauthorized):
            raise RefusedError(f"Keystone rejected the credentials of [{GROUP}]", 401) from None
        except (keystone_exceptions.MissingRequiredOptions, keystone_exceptions.EndpointNotFound) as exc:
            raise RefusedError(f"[{GROUP}] in ironic.conf is incomplete: {exc}", 400) from None
        except exception.ConfigInvalid as exc:
            raise RefusedError(f"[{GROUP}] in ironic.conf is invalid: {exc}", 400) from None
        except (keystone_exceptions.ClientException, exception.IronicException) as exc:
            self._problem = f"Ferroscope or Keystone does not answer: {exc}"[:_LONGEST_DETAIL]
            self._quiet_until = time.monotonic() + _QUIET
            raise UnavailableError(self._problem) from None
        if answer.status_code < 300:
            return answer
        message = f"Ferroscope answered {method} {path} with HTTP {answer.status_code}{_detail(answer)}"
        if answer.status_code >= 500 or answer.status_code in transient:
            raise UnavailableError(message)
        raise RefusedError(message, answer.status_code)

    def _connected(self):
        with self._lock:
            if self._adapter is None:
                session = keystone.get_session(GROUP)
                self._adapter = keystone.get_adapter(GROUP, session=session, auth=keystone.get_auth(GROUP))
            return self._adapter

    @staticmethod
    def _document(answer):
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UnavailableError("Ferroscope's answer is not a JSON object: is [ferroscope] endpoint_override right?")
        return found


def _detail(answer):
    try:
        error = answer.json()["error"]
        return f": {error['message'][:_LONGEST_DETAIL]}"
    except (ValueError, KeyError, TypeError):
        return ""
