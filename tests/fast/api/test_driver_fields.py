"""Fields of ``driver_info`` that look like those of a driver, and are not: a note names them, and nothing else."""

from __future__ import annotations

from ferroscope.api.baremetal.driver_fields import note_unknown
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.bmc.sim.driver import PROPERTIES
from tests.support.rows import each

REDFISH = RedfishBmc.properties


@each(
    ("names", "known", "note"),
    [
        (["redfish_address", "redfish_password"], REDFISH, None),
        (["ipmi_address", "rack"], REDFISH, None),
        (["redfish_pasword"], REDFISH, "the driver does not read redfish_pasword (did you mean redfish_password?)"),
        (["refish_address"], REDFISH, "the driver does not read refish_address (did you mean redfish_address?)"),
        (["redfish_colour"], REDFISH, "the driver does not read redfish_colour"),
        # By this one, which the simulator enrolls its machines with, a lookup finds the node.
        (["sim_address", "sim_node", "sim_bmc_address"], PROPERTIES, None),
        (
            ["sim_adress", "sim_bmc_address"],
            PROPERTIES,
            "the driver does not read sim_adress (did you mean sim_address?)",
        ),
    ],
)
def test_only_what_is_probably_misspelt_is_named(names: list[str], known: dict[str, str], note: str | None) -> None:
    assert note_unknown(names, known) == note
