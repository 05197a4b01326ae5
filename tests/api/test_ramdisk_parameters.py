"""The disk that a BMC fetches for a ramdisk: for a node that expects one, and for nobody else."""

from __future__ import annotations

from tests.api.service import Service

UNKNOWN = "/v1/ramdisk_parameters/99999999-9999-4999-8999-999999999999/disk.img"


def test_nobody_learns_anything_without_an_inspection(service: Service) -> None:
    node = service.bare_metal.post("/v1/nodes", {"driver": "sim"}).json["uuid"]
    idle = service.bare_metal.get(f"/v1/ramdisk_parameters/{node}/disk.img")
    unknown = service.bare_metal.get(UNKNOWN)
    assert (idle.status_code, idle.json) == (unknown.status_code, unknown.json)
    assert idle.status_code == 404
