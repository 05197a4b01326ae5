"""Which machines under inspection asked this host's dnsmasq for an address, and which got one, by its lease file.

After a time-out, this tells a machine that never asked from one whose boot network works. IPv4 only: a DHCPv6 client is
not known by its MAC. Requests are known where nftables is the filter. Source: dnsmasq(8), dhcp-leasefile; a line has
the time of expiry, the MAC, the address, the name and the client's ID, and dnsmasq rewrites the file when it assigns or
renews an address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from ferroscope.config.options import BootSettings
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.contrib.boot.addresses import AddressError, parse_all
from ferroscope.core.boot import since_boot
from ferroscope.core.boot_macs import DHCP_STEP, SortedMacs, number, spell_mac
from ferroscope.core.model import Entry
from ferroscope.db import Fence, Store, Transaction
from ferroscope_client.core.mac_addresses import normalized_mac

MAX_LEASE_FILE_BYTES: Final = 16 * 1024 * 1024
# The transaction holds the row of the filter's lease, which has to be renewed; the others are noted in the next look.
MAX_NOTES_AT_ONCE: Final = 50
_UNANSWERED: Final = "assigned no address to the DHCP request of"
_SEARCHED_ENTRIES: Final = 100
# Where dnsmasq keeps it on Debian, and on Fedora.
_FILES: Final = (Path("/var/lib/misc/dnsmasq.leases"), Path("/var/lib/dnsmasq/dnsmasq.leases"))


def list_lease_files(settings: BootSettings) -> Sequence[Path]:
    """Return where dnsmasq may keep its leases; nothing if it assigns no IPv4 addresses, or keeps none."""
    options = [line.replace(" ", "").partition("=") for line in settings.dnsmasq_options]
    try:
        assigns = any(pool.version == 4 for pool in parse_all(settings.ranges, hosts=1))
    except AddressError:  # 'ferroscope pxe config' says so
        return ()
    if not assigns or any(name == "leasefile-ro" for name, _, _ in options):
        return ()
    return [Path(value) for name, _, value in options if name == "dhcp-leasefile"] or _FILES


def parse_leases(text: str) -> dict[str, tuple[str, str]]:
    """Return address and time of expiry of the lease of each MAC."""
    leases = {}
    for line in text.splitlines():
        words = line.split(maxsplit=3)
        mac = normalized_mac(words[1]) if len(words) > 2 else None
        if mac is not None:
            leases[mac] = (words[2], words[0])
    return leases


class DhcpLeases:
    """``files``: where the lease file may be; ``host`` and ``process`` are for the timelines.

    ``take_requesters`` returns the MACs, as numbers, that have sent requests since its last call; None: they are not
    known. ``is_read``: a machine of which nothing was noted got no address here.
    """

    def __init__(
        self,
        store: Store,
        files: Sequence[Path],
        *,
        host: str,
        process: str,
        take_requesters: Callable[[], frozenset[int]] | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._host = host
        self._process = process
        self._take_requesters = take_requesters
        self._handled: Mapping[str, tuple[str, str]] = {}
        self._requesters: frozenset[int] = frozenset()
        self.is_read = False

    @property
    def knows_requests(self) -> bool:
        """Whether a machine of which nothing was noted has not even asked here."""
        return self.is_read and self._take_requesters is not None

    def begin(self) -> None:
        """Take the present leases and requests as known: they are from before this host led."""
        self._handled = self._read() or {}
        self._requesters = frozenset()
        if self._take_requesters is not None:
            self._take_requesters()

    def note(self, allowed: SortedMacs, fence: Fence) -> None:
        """Note on timelines which machines that may boot asked for an address, or got one, since the last call."""
        if self._take_requesters is not None:  # first: a lease may follow at once
            self._requesters |= self._take_requesters()
        leases = self._read()
        self.is_read = leases is not None
        if leases is None:
            return
        handled = {mac: lease for mac, lease in self._handled.items() if mac in leases}
        changed = (mac for mac, lease in leases.items() if lease != handled.get(mac) and number(mac) in allowed)
        noted = {mac: leases[mac] for mac in islice(changed, MAX_NOTES_AT_ONCE)}
        unanswered = [mac for mac in self._requesters if mac in allowed and spell_mac(mac) not in noted]
        texts = {spell_mac(mac): _UNANSWERED for mac in unanswered[:MAX_NOTES_AT_ONCE]}
        texts |= {mac: f"assigned {address} to" for mac, (address, _) in noted.items()}
        if texts:
            self._store.write(partial(self._write, texts, fence))
        self._requesters = frozenset(unanswered[MAX_NOTES_AT_ONCE:])
        self._handled = handled | noted | {mac: lease for mac, lease in leases.items() if number(mac) not in allowed}

    def _read(self) -> dict[str, tuple[str, str]] | None:
        for file in self._files:
            try:
                with file.open(encoding="utf-8", errors="replace") as stream:
                    return parse_leases(stream.read(MAX_LEASE_FILE_BYTES))
            except OSError:
                continue
        return None

    def _write(self, texts: Mapping[str, str], fence: Fence, tx: Transaction) -> None:
        fence(tx)
        for port in tx.ports.list(Query(filters={"address": tuple(texts)})):
            try:
                node = tx.nodes.get(port.node)
            except NotFoundError:
                continue
            message = f"dnsmasq on {self._host} {texts[port.address]} {port.address}"
            query = Query(
                filters={"node": node.uuid, "inspection": node.inspection},
                sort_key="id", descending=True, limit=_SEARCHED_ENTRIES,
            )  # fmt: skip
            noted = [entry.message for entry in since_boot(tx.journal.list(query)) if entry.step == DHCP_STEP]
            if message in noted or (noted and texts[port.address] == _UNANSWERED):
                continue  # it was renewed, or is asked for again
            entry = Entry(
                node=node.uuid, inspection=node.inspection, step=DHCP_STEP, message=message, process=self._process
            )
            tx.journal.append([entry])
