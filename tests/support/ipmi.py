"""OpenIPMI's BMC simulator, ipmi_sim, as a process of its own: IPMI 2.0 and 1.5 over UDP.

Its chassis is a script that keeps power and boot device in files, and notes what was commanded. It
knows cipher suite 3, not 17. The account is ``USER`` with ``PASSWORD``; ``READER``
has the same one, and the privilege level USER. Behind it, on its IPMB, is another BMC
at ``BEHIND``, whose machine has files of its own.
"""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ferroscope.core.model import Node
from tests.support.installation import running
from tests.support.processes import free_port

USER: Final = "operator"
READER: Final = "reader"
PASSWORD: Final = "pa55-of-the-BMC"
BEHIND: Final = 0x30

_CONFIGURATION: Final = """\
name "bmc"
set_working_mc 0x20
startlan 1
addr {address} {port}
priv_limit admin
allowed_auths_callback none md2 md5 straight
allowed_auths_user none md2 md5 straight
allowed_auths_operator none md2 md5 straight
allowed_auths_admin none md2 md5 straight
{key}guid a123456789abcdefa123456789abcdef
endlan
chassis_control "{directory}/chassis"
user 2 true "{user}" "{password}" admin 10 none md2 md5 straight
user 3 true "{reader}" "{password}" user 10 none md2 md5 straight
set_working_mc {behind:#x}
chassis_control "{directory}/behind/chassis"
"""
_COMMANDS: Final = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
mc_add {behind:#x} 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable {behind:#x}
"""
_CHASSIS: Final = """\
#!/bin/sh
cd {directory}
case "$1 $2" in
    "get power") echo "power:$(cat power)" ;;
    "set power") echo "power $3" >>commands; echo "$3" >power ;;
    "get boot") echo "boot:$(cat boot)" ;;
    "set reset") echo "reset" >>commands ;;
    "set shutdown") echo "shutdown" >>commands; echo 0 >power ;;
    "set boot") echo "boot $3" >>commands; echo "$3" >boot ;;
esac
"""


class Simulator:
    """A running BMC on ``address`` and ``port``."""

    def __init__(self, directory: Path, port: int, address: str, key: str) -> None:
        self.directory = directory
        self.port = port
        self.address = address
        self.key = key

    @property
    def commands(self) -> list[str]:
        """What the chassis was commanded, in order."""
        return _commands(self.directory)

    @property
    def commands_behind(self) -> list[str]:
        """What the chassis of the BMC behind this one was commanded."""
        return _commands(self.directory / "behind")

    def switch_on(self) -> None:
        """Power the machine on, as somebody at its front panel does."""
        (self.directory / "power").write_text("1\n")

    def node(self, **more: Any) -> Node:
        """Return a node that has this BMC; ``more`` is added to its ``driver_info``."""
        info = {
            "ipmi_address": self.address,
            "ipmi_port": self.port,
            "ipmi_username": USER,
            "ipmi_password": PASSWORD,
        }
        return Node(uuid="bbbbbbbb-0000-4000-8000-000000000000", driver="ipmi", driver_info=info | more)

    def answers(self) -> bool:
        command = ["ipmitool", "-I", "lanplus", "-H", self.address, "-p", str(self.port), "-U", USER, "-P", PASSWORD]
        done = subprocess.run(
            [*command, "-C", "3", "-k", self.key, "-N", "1", "-R", "1", "mc", "info"], capture_output=True, check=False
        )
        return done.returncode == 0


# Of RMCP+: the payload type of a request to open a session, and the offset of its authentication algorithm; SHA-1 is 1.
_OPEN_SESSION: Final = 0x10
_ALGORITHM, _SHA1 = 28, 1


def asks_for_sha256(datagram: bytes) -> bool:
    """Whether it is a request to open a session with cipher suite 17."""
    is_request = datagram[4:6] == bytes((0x06, _OPEN_SESSION)) and len(datagram) > _ALGORITHM
    return is_request and datagram[_ALGORITHM] != _SHA1


def refused(command: int, code: int) -> Callable[[bytes], bytes]:
    """Return a function that makes every answer to this chassis command one with this completion code.

    For cipher suite 0, whose messages are neither encrypted nor signed.
    """

    def changed(answer: bytes) -> bytes:
        message = answer[16:]  # after the RMCP and session headers
        if answer[4:6] != b"\x06\x00" or len(message) < 8 or (message[1], message[5]) != (0x01 << 2, command):
            return answer
        body = message[3:6] + bytes((code,))
        return answer[:14] + (8).to_bytes(2, "little") + message[:3] + body + bytes((-sum(body) & 0xFF,))

    return changed


def opposite(request: bytes) -> bytes:
    """Return the request with "power on" and "power off" exchanged; for cipher suite 0."""
    message = request[16:]
    if request[4:6] != b"\x06\x00" or len(message) != 8 or (message[1], message[5]) != (0x00, 0x02):
        return request
    body = message[3:6] + bytes((message[6] ^ 1,))
    return request[:16] + message[:3] + body + bytes((-sum(body) & 0xFF,))


def _as_it_is(datagram: bytes) -> bytes:
    return datagram


@contextmanager
def between(
    port: int,
    *,
    drops: Callable[[bytes], bool] = lambda _: False,
    alters: Callable[[bytes], bytes] = _as_it_is,
    changes: Callable[[bytes], bytes] = _as_it_is,
) -> Iterator[tuple[int, list[bytes]]]:
    """Give a port before the BMC's that drops or alters requests and changes answers; and the requests so far."""
    seen: list[bytes] = []
    with socket.socket(type=socket.SOCK_DGRAM) as near, socket.socket(type=socket.SOCK_DGRAM) as far:
        near.bind(("127.0.0.1", 0))
        far.connect(("127.0.0.1", port))
        ended, end = socket.socketpair()

        def forward() -> None:
            peer: Any = None
            while True:
                ready, _, _ = select.select([near, far, ended], [], [])
                if ended in ready:
                    return
                if near in ready:
                    request, peer = near.recvfrom(65535)
                    seen.append(request)
                    if not drops(request):
                        far.send(alters(request))
                if far in ready and peer is not None:
                    near.sendto(changes(far.recv(65535)), peer)

        thread = threading.Thread(target=forward)
        thread.start()
        try:
            yield near.getsockname()[1], seen
        finally:
            end.send(b".")
            thread.join()
            end.close()
            ended.close()


def _commands(directory: Path) -> list[str]:
    noted = directory / "commands"
    return noted.read_text().splitlines() if noted.exists() else []


@contextmanager
def simulator(directory: Path, *, address: str = "127.0.0.1", key: str = "") -> Iterator[Simulator]:
    """Run a simulator until the end of the block; ``key`` is its Kg, "" for none."""
    program = shutil.which("ipmi_sim")
    if program is None or shutil.which("ipmitool") is None:
        raise RuntimeError("there is no ipmi_sim or no ipmitool; run: tools/setup.sh emulators")
    port = free_port()
    (directory / "state").mkdir(parents=True)
    for place in (directory, directory / "behind"):
        _make_chassis(place)
    configuration, commands = directory / "lan.conf", directory / "commands.emu"
    configuration.write_text(
        _CONFIGURATION.format(
            address=address,
            port=port,
            directory=directory,
            user=USER,
            reader=READER,
            password=PASSWORD,
            key=f'bmc_key "{key}"\n' if key else "",
            behind=BEHIND,
        )
    )
    commands.write_text(_COMMANDS.format(behind=BEHIND))
    command = [program, "-c", str(configuration), "-f", str(commands), "-s", str(directory / "state"), "-n"]
    made = Simulator(directory, port, address, key)
    with running("simulator", directory, command, made.answers):
        yield made


def _make_chassis(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "power").write_text("0\n")
    (directory / "boot").write_text("none\n")
    chassis = directory / "chassis"
    chassis.write_text(_CHASSIS.format(directory=directory))
    chassis.chmod(0o755)
