"""An Ironic for each test."""

from __future__ import annotations

from tests.nightly.openstack.ironic.conftest import ironic, place

__all__ = ["ironic", "place"]
