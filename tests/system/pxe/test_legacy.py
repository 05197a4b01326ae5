"""Legacy iptables, run by the user of the shipped unit: what their common lock needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import ROOT

SHIPPED = ROOT / "deploy" / "tmpfiles.d" / "ferroscope-xtables.conf"
UNPRIVILEGED = 61234
# As the unit has it: a user of its own, three capabilities, and a file system that cannot be written to.
_USER = (
    f"setpriv --reuid={UNPRIVILEGED} --regid={UNPRIVILEGED} --clear-groups --no-new-privs "
    "--inh-caps=+net_admin,+net_raw,+kill --ambient-caps=+net_admin,+net_raw,+kill "
    "--bounding-set=-all,+net_admin,+net_raw,+kill"
)
_FAMILIES = ("iptables", "ip6tables")


@pytest.mark.parametrize("prepared", [False, True])
def test_the_pxe_filters_user_changes_legacy_tables_where_it_may_read_the_lock(tmp_path: Path, prepared: bool) -> None:
    made = tmp_path / "tmpfiles.conf"
    made.write_text(SHIPPED.read_text().replace("ferroscope -", f"{UNPRIVILEGED} -"))
    lines = [
        "mount -t tmpfs none /run",
        "(umask 077; iptables-legacy --wait -S >/dev/null)",  # somebody was first, and has made the lock
        f"systemd-tmpfiles --create {made}" if prepared else "true",
        "mount -o remount,ro /run",
        *(
            f"printf '*filter\\n:fspxe-lab - [0:0]\\nCOMMIT\\n' | {_USER} {family}-legacy-restore --wait --noflush"
            for family in _FAMILIES
        ),
        *(f"{_USER} {family}-legacy --wait -S fspxe-lab" for family in _FAMILIES),
    ]
    command = ["unshare", "--net", "--mount", "sh", "-ec", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if prepared:
        assert (done.returncode, done.stdout) == (0, 2 * "-N fspxe-lab\n"), done.stderr
    else:
        assert "can't open lock file /run/xtables.lock: Permission denied" in done.stderr
