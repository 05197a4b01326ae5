"""Images that callers attach to the virtual drives of each vendor's machine, beside the ramdisk of an inspection."""

from __future__ import annotations

from typing import Final

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.errors import BmcError
from ferroscope.core.virtual_media import Image, MediaDevice
from tests.support.vendors.personality import CD
from tests.support.vendors.service import Service, node_of
from tests.system.bmc.vendors.conftest import Reaches
from tests.system.bmc.vendors.test_boot import ISO, PARAMETERS, SECURE, boots, drives, start

DATA: Final = "http://192.0.2.2/data/tools.iso"
OTHER: Final = "http://192.0.2.2/data/other.iso"


def cds(service: Service) -> list[str]:
    """Return the drives that take a CD and an insertion, by name."""
    return [slot.id for slot in service.personality.media.slots if slot.insert != "none" and set(CD) & set(slot.types)]


def test_an_image_is_attached_listed_and_detached(service: Service, bmc: RedfishBmc) -> None:
    node = node_of(service)
    assert not any(one.inserted for one in bmc.media(node))
    bmc.attach_medium(node, MediaDevice.CDROM, DATA)
    assert list(drives(service).values()) == [DATA]
    (found,) = [one for one in bmc.media(node) if one.inserted]
    assert found.media_types == [] or {"CD", "DVD"} & set(found.media_types)
    assert bmc.detach_media(node, [MediaDevice.CDROM]) == 1
    assert drives(service) == {}
    assert bmc.detach_media(node, []) == 0


def test_the_next_image_replaces_it(service: Service, bmc: RedfishBmc) -> None:
    node = node_of(service)
    bmc.attach_medium(node, MediaDevice.CDROM, DATA)
    bmc.attach_medium(node, MediaDevice.CDROM, DATA)
    bmc.attach_medium(node, MediaDevice.CDROM, OTHER)
    assert list(drives(service).values()) == [OTHER]


def test_an_inspection_neither_uses_nor_empties_the_drive_of_an_attached_image(
    service: Service, bmc: RedfishBmc, reaches: Reaches
) -> None:
    node, image = node_of(service), Image(ISO, PARAMETERS, secure=SECURE, keep=(DATA,))
    bmc.attach_medium(node, MediaDevice.CDROM, DATA)
    if len(cds(service)) < 2:
        with pytest.raises(BmcError, match="detach it") as caught:
            bmc.insert_ramdisk(node, image)
        assert not caught.value.transient
        assert list(drives(service).values()) == [DATA]
        return
    bmc.insert_ramdisk(node, image)
    assert {DATA, ISO} <= set(drives(service).values())
    start(bmc, node, reaches)
    assert boots(service) == [ISO]
    assert bmc.eject_ramdisk(node, image)
    assert list(drives(service).values()) == [DATA]


def test_an_attached_image_that_is_also_the_ramdisks_is_not_ejected(service: Service, bmc: RedfishBmc) -> None:
    node = node_of(service)
    bmc.attach_medium(node, MediaDevice.CDROM, DATA)
    assert not bmc.eject_ramdisk(node, Image(DATA, PARAMETERS, keep=(DATA,)))
    assert list(drives(service).values()) == [DATA]
