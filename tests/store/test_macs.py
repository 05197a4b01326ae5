"""``db.ports.Macs`` on every database: which MACs may boot, and what was changed about that."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid

import msgspec

from ferroscope import transition
from ferroscope.core.boot_macs import ChangeWindow, KnownMac
from ferroscope.core.model import Node, Port
from ferroscope.core.states import Event, Transition
from ferroscope.db import Transaction
from ferroscope_client.core.states import State
from tests.store.conftest import Adapter, Open
from tests.support import examples
from tests.support.processes import PATIENCE

MAC = "52:54:00:00:00:{:02x}"


def port(node: Node, number: int) -> Port:
    return examples.port(node, address=MAC.format(number))


def known(adapter: Adapter) -> dict[str, bool]:
    return {one.mac: one.booting for one in adapter.read(lambda tx: tx.macs.known(limit=1000))}


def changed(adapter: Adapter, seq: int = 0) -> set[str]:
    return {change.mac for change in adapter.read(lambda tx: tx.macs.since(seq, 1000))}


def newest(adapter: Adapter) -> int:
    return adapter.read(lambda tx: tx.macs.newest())


def test_a_node_under_inspection_may_boot_and_its_macs_are_noted(adapter: Adapter) -> None:
    node = adapter.node(state=State.NONE, provision_state="manageable")
    adapter.write(lambda tx: tx.ports.add([port(node, 1), port(node, 2)]))
    assert known(adapter) == {MAC.format(1): False, MAC.format(2): False}
    before = newest(adapter)
    adapter.write(lambda tx: transition.start(tx, tx.nodes.get(node.uuid), inspection=str(uuid.uuid4()), process="t"))
    assert known(adapter) == {MAC.format(1): True, MAC.format(2): True}
    assert changed(adapter, before) == {MAC.format(1), MAC.format(2)}
    assert adapter.read(lambda tx: tx.macs.newest(node=node.uuid)) == newest(adapter) > before


def test_the_macs_of_a_machine_that_calls_unasked_are_noted(adapter: Adapter) -> None:
    node = adapter.node(state=State.FINISHED, provision_state="available")
    adapter.write(lambda tx: tx.ports.add([port(node, 1), port(node, 2)]))
    before = newest(adapter)

    def call(tx: Transaction) -> None:
        transition.enroll(tx, tx.nodes.get(node.uuid), "it called", inspection=str(uuid.uuid4()), process="t")

    adapter.write(call)
    assert known(adapter) == {MAC.format(1): True, MAC.format(2): True}
    assert changed(adapter, before) == {MAC.format(1), MAC.format(2)}


def test_moves_that_leave_the_right_to_boot_as_it_is_note_nothing(adapter: Adapter) -> None:
    node = adapter.node(state=State.STARTING)
    adapter.write(lambda tx: tx.ports.add([port(node, 1)]))
    before = newest(adapter)
    move = Transition(State.STARTING, Event.WAIT, State.WAITING)
    adapter.write(lambda tx: transition.apply(tx, tx.nodes.get(node.uuid), move))
    assert changed(adapter, before) == set()
    ended = Transition(State.WAITING, Event.ABORT, State.ERROR)
    adapter.write(lambda tx: transition.apply(tx, tx.nodes.get(node.uuid), ended))
    assert changed(adapter, before) == {MAC.format(1)}
    assert known(adapter) == {MAC.format(1): False}


def test_ports_that_are_added_moved_renamed_and_removed_are_noted(adapter: Adapter) -> None:
    one, other = adapter.node(state=State.NONE), adapter.node(state=State.WAITING)
    nic = port(one, 1)
    adapter.write(lambda tx: tx.ports.add([nic]))
    assert changed(adapter) == {MAC.format(1)}
    seen = newest(adapter)
    adapter.write(lambda tx: tx.ports.update(msgspec.structs.replace(nic, name="eth0")))
    assert changed(adapter, seen) == set(), "a port's name is of no concern to a PXE filter"
    adapter.write(lambda tx: tx.ports.update(msgspec.structs.replace(nic, node=other.uuid)))
    assert changed(adapter, seen) == {MAC.format(1)}
    assert known(adapter) == {MAC.format(1): True}
    adapter.write(lambda tx: tx.ports.update(msgspec.structs.replace(nic, node=other.uuid, address=MAC.format(2))))
    assert changed(adapter, seen) == {MAC.format(1), MAC.format(2)}
    seen = newest(adapter)
    adapter.write(lambda tx: tx.ports.remove([nic.uuid, str(uuid.uuid4())]))
    assert changed(adapter, seen) == {MAC.format(2)}
    assert known(adapter) == {}


def test_the_macs_of_a_node_that_is_removed_are_noted(adapter: Adapter) -> None:
    node = adapter.node(state=State.NONE)
    adapter.write(lambda tx: tx.ports.add([port(node, 1), port(node, 2)]))
    seen = newest(adapter)
    adapter.write(lambda tx: tx.nodes.remove(node.uuid))
    assert changed(adapter, seen) == {MAC.format(1), MAC.format(2)}
    assert known(adapter) == {}


def test_known_macs_are_read_in_pages_and_by_name(adapter: Adapter) -> None:
    idle, busy = adapter.node(state=State.NONE), adapter.node(state=State.WAITING)
    adapter.write(lambda tx: tx.ports.add([port(idle, n) for n in (1, 3)] + [port(busy, 2)]))
    page = adapter.read(lambda tx: list(tx.macs.known(limit=2)))
    assert page == [KnownMac(MAC.format(1), False), KnownMac(MAC.format(2), True)]
    assert adapter.read(lambda tx: list(tx.macs.known(after=page[-1].mac, limit=2))) == [KnownMac(MAC.format(3), False)]
    wanted = (MAC.format(3), MAC.format(9))
    assert adapter.read(lambda tx: list(tx.macs.known(macs=wanted))) == [KnownMac(MAC.format(3), False)]


def test_old_changes_are_forgotten(adapter: Adapter) -> None:
    node = adapter.node(state=State.NONE)
    adapter.write(lambda tx: tx.ports.add([port(node, 1)]))
    now = adapter.read(lambda tx: tx.now)
    assert adapter.write(lambda tx: tx.macs.forget(now - 60)) == 0
    assert adapter.read(lambda tx: tx.macs.newest(before=now - 60)) == 0
    assert adapter.read(lambda tx: tx.macs.newest(before=now + 60)) == newest(adapter) > 0
    assert adapter.write(lambda tx: tx.macs.forget(now + 60)) == 1
    assert changed(adapter) == set()


def test_a_write_that_fails_notes_nothing(adapter: Adapter) -> None:
    node = adapter.node(state=State.NONE)

    def work(tx: Transaction) -> None:
        tx.ports.add([port(node, 1)])
        raise RuntimeError("no")

    with contextlib.suppress(RuntimeError):
        adapter.write(work)
    assert changed(adapter) == set()


def test_a_commit_that_comes_after_a_greater_number_is_not_missed(open_adapter: Open) -> None:
    """On the servers two transactions write at once, and the first number may be the last to be seen."""
    adapter, other = open_adapter(), open_adapter()
    node = adapter.node(state=State.NONE)
    adapter.write(lambda tx: tx.ports.add([port(node, 3)]))
    window, drawn, go_on = ChangeWindow(newest(adapter)), threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        tx.ports.add([port(node, 1)])
        drawn.set()
        go_on.wait(0.5)

    thread = threading.Thread(target=lambda: other.write(slow))
    thread.start()
    assert drawn.wait(PATIENCE)
    adapter.write(lambda tx: tx.ports.add([port(node, 2)]))
    seen = window.take(adapter.read(lambda tx: tx.macs.since(window.low, 100)), time.time())
    go_on.set()
    thread.join(PATIENCE)
    seen |= window.take(adapter.read(lambda tx: tx.macs.since(window.low, 100)), time.time())
    assert seen == {MAC.format(1), MAC.format(2)}
    assert (window.missing, window.low) == ((), newest(adapter))
