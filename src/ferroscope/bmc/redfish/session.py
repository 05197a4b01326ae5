"""Persistent connections to Redfish services: a session is opened once, not for each call.

At most ``_MAX_CLIENTS`` are kept; the least recently used one is closed first. A client is used by one thread at a
time, so as many are kept for one service as there were calls at the same time: for different systems at one address.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from sushy.exceptions import AccessError

from ferroscope.bmc.redfish.connector import Connector
from ferroscope.bmc.redfish.info import Access
from ferroscope.bmc.redfish.login import LOGOUT_TIMEOUT_SECONDS, BasicAuth, NoAuth, SessionAuth, SessionElseBasicAuth
from ferroscope.bmc.redfish.resources import Root
from ferroscope.remote.addresses import ANYWHERE, Networks
from ferroscope.remote.deadline import Deadline

_MAX_CLIENTS: Final = 256


class Client:
    """One service. ``root`` is opened with the first use; ``fresh``: no call has succeeded with it yet.

    ``auth``: how to log in, instead of what ``access`` says.

    ``known_systems``: the systems that were read from it, also in earlier sessions.
    """

    def __init__(self, access: Access, allowed: Networks, auth: Any = None) -> None:
        self._access = access
        self._allowed = allowed
        self._own_auth = auth
        self._lock = threading.Lock()
        self._root: Any = None
        self._refused: list[Exception] = []
        self.fresh = True
        self.known_systems: set[str | None] = set()

    def reserve(self) -> bool:
        """Reserve it for the next ``use``; return False if another thread has it."""
        return self._lock.acquire(blocking=False)

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Yield the service root to the thread that has reserved this client, and free it."""
        try:
            if self._root is None:
                self._root = self._open()
            yield self._root
            self.fresh = False
        finally:
            if self._root is not None:
                self._root._conn.forget()
            self._lock.release()

    @property
    def has_session(self) -> bool:
        """Whether the service has opened a session for it: then the password is right, whatever else is refused."""
        auth = getattr(self._root, "_auth", None)
        return isinstance(auth, SessionAuth) and auth.opened

    def _open(self) -> Any:
        access = self._access
        connector = Connector(access, self._allowed)
        read = partial(Root, access.url, root_prefix=access.root, verify=access.verify, connector=connector)
        try:
            try:
                return read(auth=self._auth())
            except AccessError:
                if self._own_auth is not None or access.username is None or access.auth_type == "session":
                    raise
                # The password was not sent yet: some services do not even show the root without it
                # (DMTF/python-redfish-library#132, #165, karmab/kcli#678).
                connector.set_http_basic_auth(access.username, access.password)
                return read(auth=BasicAuth(access.username, access.password))
        except BaseException:
            connector.close()
            raise

    def _auth(self) -> Any:
        access = self._access
        if self._own_auth is not None:
            return self._own_auth
        if access.username is None:
            return NoAuth()
        if access.auth_type == "basic":
            return BasicAuth(access.username, access.password)
        if access.auth_type == "session":
            return SessionAuth(access.username, access.password)
        return SessionElseBasicAuth(self._refused, access.username, access.password)

    def close_in_background(self) -> None:
        """Log out in a thread of its own: that must not take time from the call that does not need it any more."""
        threading.Thread(target=self.close, name="redfish log-out", daemon=True).start()

    def close(self) -> None:
        """Log out, within at most two seconds, and forget the session."""
        with self._lock:
            root, self._root = self._root, None
        if root is None:
            return
        auth, root._auth = root._auth, None  # otherwise its destructor would log out at any time
        with contextlib.suppress(Exception), Deadline(LOGOUT_TIMEOUT_SECONDS):
            auth.close()
        root._conn.close()


class Clients:
    """The clients of a process, by access; ``allowed`` are the networks in which BMCs may be."""

    def __init__(self, *, allowed: Networks = ANYWHERE) -> None:
        self._allowed = allowed
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], Client] = OrderedDict()
        # sushy's log messages duplicate our errors, and may contain what a BMC echoes, such as a password.
        logging.getLogger("sushy").setLevel(logging.CRITICAL + 1)

    def get(self, access: Access) -> Client:
        """Reserve a client for ``access`` that nobody uses: an existing one, or a new one."""
        first = *_key(access), 0
        with self._lock:
            for number in itertools.count():
                key = *_key(access), number
                client = self._kept.setdefault(key, Client(access, self._allowed))
                if client.reserve():
                    break
            if number and first in self._kept:
                client.known_systems = self._kept[first].known_systems
            self._kept.move_to_end(key)
            surplus = [self._kept.popitem(last=False)[1] for _ in range(len(self._kept) - _MAX_CLIENTS)]
        self._close_in_background(surplus)
        return client

    def drop(self, access: Access, client: Client) -> None:
        """Replace ``client``, whose session has ended; it is deleted nevertheless, in case that the BMC was wrong."""
        fresh = Client(access, self._allowed)
        fresh.known_systems = client.known_systems
        with self._lock:
            for key in [key for key, kept in self._kept.items() if kept is client]:
                self._kept[key] = fresh
        self._close_in_background([client])

    def close(self) -> None:
        """Log out of all services, all at once: the process may end after this, and their sessions would stay."""
        with self._lock:
            kept = list(self._kept.values())
            self._kept.clear()
        end = time.monotonic() + LOGOUT_TIMEOUT_SECONDS
        for thread in self._close_in_background(kept):
            thread.join(max(0.0, end - time.monotonic()))

    @staticmethod
    def _close_in_background(clients: list[Client]) -> list[threading.Thread]:
        # In separate threads: logging out must not take time from the call that caused it.
        threads = [threading.Thread(target=client.close, name="redfish log-out", daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        return threads


def _key(access: Access) -> tuple[Any, ...]:
    secret = hashlib.sha256(access.password.encode()).hexdigest()
    connection = (access.verify, access.auth_type, access.tls_minimum, access.tls_ciphers)
    return access.url, access.root, access.username, secret, *connection
