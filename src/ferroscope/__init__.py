"""Ferroscope: highly available bare-metal inspection.

Start with ``docs/explanation/start-here.md``. To learn how an inspection runs, it leads through ``core/states.py``,
``core/delivery.py``, ``core/lookup.py``, ``transition.py``, ``leadership.py``, ``db/queue.py``, ``worker/loop.py``,
``worker/start.py``, ``worker/process.py``, ``api/baremetal/provision.py``, ``api/baremetal/callbacks.py`` and
``contrib/boot/pxe_filter/leader.py``, in this order.

``core`` decides: states, delivery, lookup, without I/O. ``db`` is the store. ``contracts`` say what others implement;
``bus``, ``bmc``, ``remote`` and ``storage`` do. ``transition`` is the only module that changes the state of a node, and
``leadership`` the one that holds a lease. ``api``, ``worker`` and ``periodic`` are the roles;
``runtime`` composes them into processes, and ``cli`` starts these. ``contrib`` has optional parts; ``contrib/boot`` is
what runs on a boot host.
``docs/explanation/architecture.md`` says what belongs where.
"""

from __future__ import annotations

from ferroscope_client import __version__ as __version__
