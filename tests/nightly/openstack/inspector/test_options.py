"""The page on moving from ironic-inspector has each of its options, as the real one lists them."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Final

from tests import ROOT
from tests.support.inspector import DATA, PYTHON
from tests.support.processes import PATIENCE

_PAGE: Final = ROOT / "docs" / "how-to" / "move-from-ironic-inspector.md"


def table() -> set[tuple[str, str]]:
    """Return section and option of each row of the page's last table; the option may be ``all``."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", _PAGE.read_text().partition("## Options")[2], re.MULTILINE)
    return {
        (section, option.partition(" = ")[0])
        for sections, options in rows
        for section in sections.split(", ")
        for option in options.split(", ")
    }


def test_the_page_has_every_option() -> None:
    command = [PYTHON, "-W", "ignore", DATA / "options.py"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout)
    known = {(section, option) for section, options in listed.items() for option in options}
    assert len(known) > 100
    documented = table()
    missing = {one for one in known if one not in documented and (one[0], "all") not in documented}
    assert missing == set()
    names = {option for _, option in known} | {"all", "option", "---"}
    others = {"connection", "known_devices"}  # of a library, and of a plug-in
    assert {option for section, option in documented if (section, "all") not in documented} - names - others == set()
