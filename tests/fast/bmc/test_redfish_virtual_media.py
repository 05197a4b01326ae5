"""Images that a BMC accepts and ignores, refuses without need, or shows otherwise than it was told."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import pytest
import structlog.testing

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.bmc.redfish.virtual_media import is_same_image
from ferroscope.core.virtual_media import Image, MediaDevice
from ferroscope_client.core.reasons import Reason
from tests.fast.bmc.conftest import fails, hurried, takes_boot
from tests.support.rows import each
from tests.support.scripted_redfish import MANAGER, SYSTEM, ScriptedBmc, answer, collection, link, scripted_bmc

ISO = "http://images.example.com/ironic/Ramdisk.iso"
NODE = "3e0ba4f6-1f1c-4b39-9df5-5f2b7f3b2b11"
PARAMETERS = f"http://10.0.0.9:5050/v1/ramdisk_parameters/{NODE}/disk.img"
MEDIA = f"{SYSTEM}/VirtualMedia"
UNKNOWN_FORMAT = {
    "error": {"code": "Base.1.19.ResourceAtUriInUnknownFormat", "message": "The format is not recognized"}
}
KEY = "0123456789abcdef" * 2
SECRET = PARAMETERS.replace("disk.img", f"{KEY}/disk.img")


def drive(bmc: ScriptedBmc, path: str, *kinds: str, shows: str = "{}", action: bool = True, **more: Any) -> None:
    """Have a virtual drive; ``shows``: how it shows the image that it was given, "" if it never does."""
    inserted, ejected = f"{path}/Actions/VirtualMedia.InsertMedia", f"{path}/Actions/VirtualMedia.EjectMedia"
    actions = {"#VirtualMedia.InsertMedia": {"target": inserted}, "#VirtualMedia.EjectMedia": {"target": ejected}}
    bmc.has(
        path, Inserted=False, Image=None, MediaTypes=list(kinds), Actions=actions if action else {}, **more
    )  # fmt: skip
    document = bmc.documents[path]

    def insert(body: dict[str, Any]) -> None:
        if shows:
            document.update(Inserted=True, Image=shows.format(body["Image"]))

    bmc.upon["POST", inserted] = insert
    bmc.upon["POST", ejected] = lambda _body: document.update(Inserted=False, Image=None)


def holds(bmc: ScriptedBmc, *paths: str, where: str = SYSTEM) -> None:
    """Have these virtual drives below the system, or a manager."""
    bmc.documents[where]["VirtualMedia"] = link(f"{where}/VirtualMedia")
    bmc.has(f"{where}/VirtualMedia", collection(*paths))


def has_drive(bmc: ScriptedBmc, **more: Any) -> None:
    """Have one drive for CDs, and a boot device that can be set."""
    takes_boot(bmc)
    holds(bmc, f"{MEDIA}/1")
    drive(bmc, f"{MEDIA}/1", "CD", **more)


def test_the_drives_of_systems_and_managers_are_candidates(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """The system's collection is there, and empty."""
    takes_boot(bmc)
    holds(bmc)
    holds(bmc, f"{MANAGER}/VirtualMedia/CD", where=MANAGER)
    drive(bmc, f"{MANAGER}/VirtualMedia/CD", "CD", "DVD")
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert bmc.documents[f"{MANAGER}/VirtualMedia/CD"]["Image"] == ISO
    assert driver.eject_ramdisk(bmc.node(), Image(iso=ISO))
    assert not bmc.documents[f"{MANAGER}/VirtualMedia/CD"]["Inserted"]


@pytest.mark.parametrize("links", [None, {}, {"ManagedBy": None}], ids=["null", "none", "null list"])
def test_managers_that_the_system_does_not_name_are_found(bmc: ScriptedBmc, driver: RedfishBmc, links: Any) -> None:
    takes_boot(bmc)
    bmc.system["Links"] = links
    holds(bmc, f"{MANAGER}/VirtualMedia/CD", where=MANAGER)
    drive(bmc, f"{MANAGER}/VirtualMedia/CD", "CD")
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert bmc.documents[f"{MANAGER}/VirtualMedia/CD"]["Inserted"]


def test_slots_that_take_no_image_are_skipped(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """lenovo/python-redfish-lenovo#21; the second one refuses, the third never inserts, the page has one more."""
    takes_boot(bmc)
    slots = [f"{MEDIA}/{number}" for number in range(4)]
    holds(bmc, *slots)
    bmc.documents[MEDIA] = collection(*slots[:2]) | {"Members@odata.nextLink": f"{MEDIA}?$skip=2"}
    bmc.documents[f"{MEDIA}?$skip=2"] = collection(*slots[2:])
    drive(bmc, slots[0], "CD", action=False)
    drive(bmc, slots[1], "CD")
    bmc.upon["POST", f"{slots[1]}/Actions/VirtualMedia.InsertMedia"] = lambda _body: answer(400)
    drive(bmc, slots[2], "CD", shows="")
    drive(bmc, slots[3], "DVD")
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert [bmc.documents[slot]["Inserted"] for slot in slots] == [False, False, False, True]
    assert len(bmc.asked("POST", f"{slots[2]}/Actions")) == 1


@each(
    "demanded",
    [
        ["TransferProtocolType"],
        ["TransferMethod"],
        ["Inserted", "WriteProtected"],
        ["MediaType"],
        ["UserName", "Password"],
        ["TransferProtocolType", "TransferMethod", "Inserted", "WriteProtected", "MediaType"],
    ],
)
def test_an_insertion_has_the_parameters_that_the_bmc_demands_and_no_others(demanded: list[str]) -> None:
    """Each error names one, in words or in arguments.

    Reports: https://github.com/stmcginnis/gofish/pull/290 (MediaType), openshift/openstack-ironic#392;
    https://github.com/ansible-collections/community.general/pull/4839 (others are refused).
    """
    with scripted_bmc() as bmc, closing(hurried()) as driver:
        takes_boot(bmc)
        holds(bmc, f"{MEDIA}/1")
        drive(bmc, f"{MEDIA}/1", "DVD")
        path = f"{MEDIA}/1/Actions/VirtualMedia.InsertMedia"
        accept = bmc.upon["POST", path]

        def insert(body: dict[str, Any]) -> Any:
            missing = [name for name in demanded if not body.get(name)]
            message = {"MessageId": "Base.1.8.ActionParameterMissing", "Message": f"InsertMedia lacks {missing[:1]}."}
            error = {"error": {"code": "Base.1.8.GeneralError", "@Message.ExtendedInfo": [message]}}
            return answer(400, error) if missing else accept(body)

        bmc.upon["POST", path] = insert
        driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
        assert set(bmc.asked("POST", "InsertMedia")[-1]) == {"Image", *demanded}


@pytest.mark.parametrize("broken", [MEDIA, f"{MEDIA}/1"], ids=["collection", "member"])
@pytest.mark.parametrize("status", [500, 503])
def test_a_source_of_drives_that_fails_for_good_hides_no_other(
    bmc: ScriptedBmc, driver: RedfishBmc, broken: str, status: int
) -> None:
    """karmab/aicli#69: only the manager's drives work."""
    takes_boot(bmc)
    holds(bmc, f"{MEDIA}/1")
    drive(bmc, f"{MEDIA}/1", "CD")
    bmc.documents[broken] = answer(status)
    for call in (RedfishBmc.insert_ramdisk, RedfishBmc.eject_ramdisk):
        with closing(hurried(waits=5)) as impatient:
            assert fails(partial(call, impatient, bmc.node(), Image(iso=ISO))).transient
    other = f"{MANAGER}/VirtualMedia/CD"
    holds(bmc, other, where=MANAGER)
    drive(bmc, other, "CD")
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert [one.inserted for one in driver.media(bmc.node())] == [True]
    assert driver.eject_ramdisk(bmc.node(), Image(iso=ISO))
    driver.attach_medium(bmc.node(), MediaDevice.CDROM, ISO)
    assert driver.detach_media(bmc.node(), [MediaDevice.CDROM]) == 1


@pytest.mark.parametrize("allow", ["GET, HEAD, PATCH", None], ids=["allowed", "nothing said"])
def test_a_drive_without_actions_is_written(bmc: ScriptedBmc, driver: RedfishBmc, allow: str | None) -> None:
    """A drive with an action comes first.

    Reports: https://github.com/stmcginnis/gofish/issues/529, bmc-toolbox/bmclib#438.
    """
    takes_boot(bmc)
    holds(bmc, f"{MEDIA}/1")
    drive(bmc, f"{MEDIA}/1", "CD", action=False)
    shown = bmc.documents[f"{MEDIA}/1"]
    bmc.upon["PATCH", f"{MEDIA}/1"] = shown.update
    bmc.upon["GET", f"{MEDIA}/1"] = lambda _body: answer(200, shown, **({"Allow": allow} if allow else {}))
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert (shown["Inserted"], shown["Image"]) == (True, ISO)
    assert driver.eject_ramdisk(bmc.node(), Image(iso=ISO))
    drive(bmc, f"{MEDIA}/2", "CD")
    holds(bmc, f"{MEDIA}/1", f"{MEDIA}/2")
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert (shown["Inserted"], bmc.documents[f"{MEDIA}/2"]["Inserted"]) == (False, True)


def test_an_image_that_is_accepted_and_never_inserted_is_an_error(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """204, and nothing happens: https://github.com/dell/terraform-provider-redfish/issues/331."""
    has_drive(bmc, shows="")
    error = fails(lambda: driver.insert_ramdisk(bmc.node(), Image(iso=ISO)))
    assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)
    assert bmc.system["Boot"]["BootSourceOverrideTarget"] == "None"


def test_a_drive_that_shows_its_image_late_is_reported_once(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """ansible-collections/community.general#8279: the BMC reads the image first."""
    has_drive(bmc)
    looks = []

    def late(body: dict[str, Any]) -> None:
        looks.append(body["Image"])

    def look(_body: Any) -> Any:
        if looks:
            looks.append("")
        if len(looks) > 5:
            bmc.documents[f"{MEDIA}/1"].update(Inserted=True, Image=ISO)
        return answer(200, bmc.documents[f"{MEDIA}/1"])

    bmc.upon["POST", f"{MEDIA}/1/Actions/VirtualMedia.InsertMedia"] = late
    bmc.upon["GET", f"{MEDIA}/1"] = look
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert len(bmc.asked("POST", "InsertMedia")) == 1


@pytest.mark.parametrize(
    "shows",
    [
        "http://IMAGES.example.com/Ironic/RAMDISK.ISO",
        ISO + "/",
        "/ironic/Ramdisk.iso",
        "Ramdisk.iso",
        "//images.example.com/ironic/Ramdisk.iso",
        "http://user:****@images.example.com:80/ironic/Ramdisk.iso",
        "http://192.0.2.7/ironic/Ramdisk.iso",
        "http://images/ironic/Ramdisk.iso",
        "http://images.example.com/ironic/Ramdisk%2eiso?x=1",
        "images.example.com/ironic/Ramdisk.iso",
        "images.example.com:80/ironic/Ramdisk.iso",
        "images.example.com:/ironic/Ramdisk.iso",
        "http://images.example.com/ironic/Ramd",
    ],
)
def test_our_medium_is_ejected_however_the_bmc_shows_it(bmc: ScriptedBmc, driver: RedfishBmc, shows: str) -> None:
    """https://github.com/ansible-collections/community.general/issues/3042."""
    has_drive(bmc, shows=shows)
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert len(bmc.asked("POST", "InsertMedia")) == 1
    assert driver.eject_ramdisk(bmc.node(), Image(iso=ISO))
    assert not bmc.documents[f"{MEDIA}/1"]["Inserted"]


def test_an_image_is_ejected_where_a_body_is_demanded_in_an_odd_error(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """https://github.com/kubevirtbmc/kubevirtbmc/issues/315."""
    has_drive(bmc)
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    path = f"{MEDIA}/1/Actions/VirtualMedia.EjectMedia"
    accept = bmc.upon["POST", path]
    bmc.upon["POST", path] = lambda body: answer(400, b'"EOF"') if body is None else accept(body)
    assert driver.eject_ramdisk(bmc.node(), Image(iso=ISO))


@each(
    "shown",
    [
        "http://other.example.org/ironic/Ramdisk.iso",
        "other.example.org/ironic/Ramdisk.iso",
        "http://images.example.com/ir",
        "http://images.example.com/Ramdisk.iso",
        "other.iso",
        "",
        "/",
    ],
)
def test_a_foreign_medium_is_left_alone(shown: str) -> None:
    assert not is_same_image(shown, ISO)


@pytest.mark.parametrize("shows", ["Virtual CD", "ISO image 1", "http://proxy.example.net/cache/7", "X:/ramdisk"])
def test_a_medium_that_is_in_since_the_bmc_accepted_ours_is_ours(
    bmc: ScriptedBmc, driver: RedfishBmc, shows: str
) -> None:
    """Whatever it is called, also if the call is tried again."""
    takes_boot(bmc)
    holds(bmc, f"{MEDIA}/1", f"{MEDIA}/2")
    drive(bmc, f"{MEDIA}/1", "CD", shows=shows)
    drive(bmc, f"{MEDIA}/2", "CD")
    bmc.upon["PATCH", SYSTEM] = once(answer(503), then=bmc.upon["PATCH", SYSTEM])
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert len(bmc.asked("POST", "InsertMedia")) == 1
    assert bmc.documents[f"{MEDIA}/1"]["Inserted"]


@pytest.mark.parametrize("busy", [False, True])
def test_an_image_that_is_refused_by_http_is_inserted_by_https(
    bmc: ScriptedBmc, driver: RedfishBmc, busy: bool
) -> None:
    """openbmc/bmcweb takes https and smb only, and answers 400 to anything else."""
    takes_boot(bmc)
    slots = [f"{MEDIA}/1", f"{MEDIA}/2"]
    holds(bmc, *slots)
    for slot, kind in zip(slots, ("CD", "USBStick"), strict=True):
        drive(bmc, slot, kind)
        path = f"{slot}/Actions/VirtualMedia.InsertMedia"
        accept = bmc.upon["POST", path]
        bmc.upon["POST", path] = lambda body, accept=accept: (
            accept(body) if body["Image"].startswith("https://") else answer(400, UNKNOWN_FORMAT)
        )
    secure = {ISO: ISO.replace("http:", "https:"), PARAMETERS: f"https://api.example.com/{NODE}/disk.img"}
    image = Image(iso=ISO, parameters=PARAMETERS, secure=secure)
    if busy:
        bmc.upon["PATCH", SYSTEM] = once(answer(503), then=bmc.upon["PATCH", SYSTEM])
    assert driver.insert_ramdisk(bmc.node(), image) is None
    assert [bmc.documents[slot]["Image"] for slot in slots] == list(secure.values())
    assert len(bmc.asked("POST", "InsertMedia")) == 4
    assert driver.eject_ramdisk(bmc.node(), image)
    assert not any(bmc.documents[slot]["Inserted"] for slot in slots)
    assert "https" in str(fails(lambda: driver.insert_ramdisk(bmc.node(), Image(iso=ISO))))


def once(first: Any, *, then: Any) -> Any:
    """Return a command that is answered with ``first``, and done from then on."""
    left = [first]
    return lambda body: left.pop() if left else then(body)


def test_what_has_our_token_is_ours_wherever_it_comes_from() -> None:
    assert is_same_image(f"https://proxy.example.net/v1/ramdisk_parameters/{NODE.upper()}/disk.img", PARAMETERS)
    assert not is_same_image(PARAMETERS.replace(NODE, NODE.replace("3", "4")), PARAMETERS)


def test_an_empty_drive_is_preferred_to_one_with_a_foreign_medium(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    takes_boot(bmc)
    holds(bmc, f"{MEDIA}/1", f"{MEDIA}/2")
    drive(bmc, f"{MEDIA}/1", "CD")
    drive(bmc, f"{MEDIA}/2", "DVD")
    bmc.documents[f"{MEDIA}/1"].update(Inserted=True, Image="http://other/rescue.iso")
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    driver.eject_ramdisk(bmc.node(), Image(iso=ISO))
    assert bmc.documents[f"{MEDIA}/1"]["Image"] == "http://other/rescue.iso"
    assert bmc.asked("POST", f"{MEDIA}/1/") == []


def test_a_foreign_medium_is_ejected_with_a_word_if_there_is_no_other_drive(
    bmc: ScriptedBmc, driver: RedfishBmc
) -> None:
    has_drive(bmc)
    bmc.documents[f"{MEDIA}/1"].update(Inserted=True, Image="http://other/rescue.iso")
    with structlog.testing.capture_logs() as logged:
        driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert bmc.documents[f"{MEDIA}/1"]["Image"] == ISO
    assert [(one["medium"], one["drive"]) for one in logged] == [("http://other/rescue.iso", "1")]


def test_the_key_in_the_address_of_the_parameters_is_in_no_error(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    takes_boot(bmc)
    holds(bmc, f"{MEDIA}/1", f"{MEDIA}/2")
    drive(bmc, f"{MEDIA}/1", "CD")
    drive(bmc, f"{MEDIA}/2", "USBStick", shows="")
    image = Image(iso=ISO, parameters=SECRET)
    assert KEY[:4] not in str(fails(lambda: driver.insert_ramdisk(bmc.node(), image)))
    for padding in range(0, 200, 7):
        said = answer(400, {"error": {"message": f"{'x' * padding} cannot mount {SECRET.upper()}"}})
        bmc.upon["POST", f"{MEDIA}/2/Actions/VirtualMedia.InsertMedia"] = lambda _body, said=said: said
        assert KEY[:4] not in str(fails(lambda: driver.insert_ramdisk(bmc.node(), image)))


@pytest.mark.parametrize(
    ("foreign", "secret"),
    [
        (SECRET.replace("3e0b", "4e0b"), KEY),
        ("http://u:hidden@other/x.iso", "hidden"),
        ("http://o/x?sig=hidden", "hid"),
    ],
)
def test_nor_is_what_is_secret_in_the_address_of_a_foreign_medium_in_the_log(
    bmc: ScriptedBmc, driver: RedfishBmc, foreign: str, secret: str
) -> None:
    has_drive(bmc)
    bmc.documents[f"{MEDIA}/1"].update(Inserted=True, Image=foreign)
    with structlog.testing.capture_logs() as logged:
        driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert logged
    assert secret not in str(logged)


def test_a_medium_without_a_name_is_not_silently_left(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    holds(bmc, f"{MEDIA}/1")
    drive(bmc, f"{MEDIA}/1", "CD")
    bmc.documents[f"{MEDIA}/1"].update(Inserted=True, Image=None)
    assert "does not show" in str(fails(lambda: driver.eject_ramdisk(bmc.node(), Image(iso=ISO))))


def test_a_slot_that_is_inserted_and_not_connected_is_empty(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """Reports: https://github.com/ansible-collections/community.general/issues/6969, and
    https://github.com/ansible-collections/community.general/pull/12537.
    """
    has_drive(bmc, ConnectedVia="NotConnected")
    bmc.documents[f"{MEDIA}/1"]["Inserted"] = True
    bmc.upon["POST", f"{MEDIA}/1/Actions/VirtualMedia.InsertMedia"] = lambda body: bmc.documents[f"{MEDIA}/1"].update(
        Image=body["Image"], ConnectedVia="URI"
    )
    driver.insert_ramdisk(bmc.node(), Image(iso=ISO))
    assert bmc.asked("POST", "EjectMedia") == []
