"""Our plug-in for the published clients."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ferroscope_sim.inventory import generate
from tests import ROOT
from tests.support import source_package
from tests.system.clients.environment import Clients
from tests.system.clients.site import site as run_site

_SETTINGS = "[auto_discovery]\nenabled = true\ndriver = fake-hardware\n[api]\nmax_limit = 1\n"


def test_the_published_commands_list_what_was_discovered(sqlite_url: str, tmp_path: Path, clients: Clients) -> None:
    packages = source_package.install(ROOT / "client-plugin", tmp_path / "plugin")
    with run_site(tmp_path, sqlite_url, clients, extra=_SETTINGS) as place:
        enrolled = place.enroll(place.machine())
        found = [place.call_back(msgspec.json.decode(generate(index))) for index in (901, 902)]
        for program, words in (("baremetal", ["node", "list"]), ("openstack", ["baremetal", "node", "list"])):
            login = ["--os-auth-type", "none", "--os-endpoint", place.bare_metal]
            command = [program, *login, *words, "-f", "value", "-c", "UUID"]
            for chosen, more in ((found, ["--auto-discovered"]), ([*found, enrolled], [])):
                # A page has one node, so that the filter has to be in the links to the following ones, too.
                done = clients.program(*command, "--limit", "0", *more, packages=packages)
                assert (done.code, sorted(done.out.split())) == (0, sorted(chosen)), done.err
