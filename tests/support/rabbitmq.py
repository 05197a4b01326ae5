"""How a private RabbitMQ is set up and run: ``python -m tests.support.rabbitmq DIRECTORY PORT EPMD_PORT [PEER...]``.

A node has its own name, directories, cookie, ports and, unless it shares one with the other nodes of its cluster, port
mapper. This process starts both, and they die with it. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.support.processes import PATIENCE, free_port, spawn, until

_SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_CONTROL: Final = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
_QUIET: Final = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
COOKIE: Final = "tests"


def is_installed() -> bool:
    return _SERVER.exists() and shutil.which("epmd") is not None


def node_name(directory: Path) -> str:
    return f"{directory.name.replace('.', '-')}@localhost"


def environment(directory: Path, epmd: int) -> dict[str, str]:
    """Return the environment of the node's programs."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "NOTIFY_"))}
    return found | {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RUNNING_UNDER_SYSTEMD": "true",  # run Erlang in place of the shell
        "RABBITMQ_NODENAME": node_name(directory),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_ERLANG_COOKIE": COOKIE,
        "LC_ALL": "C.UTF-8",
    }


def configure(directory: Path, port: int, epmd: int, peers: Sequence[str]) -> None:
    """Write the configuration; ``peers``: the names of all nodes of the cluster."""
    files = [directory / name for name in ("tls.crt", "tls.key", "ca.crt")]
    lines = [
        "loopback_users = none",
        "log.console = true",
        "log.console.level = warning",
        "log.file = false",
        "disk_free_limit.absolute = 1MB",
        "cluster_partition_handling = ignore",
    ]
    if all(file.exists() for file in files[:2]):
        lines += [f"listeners.ssl.1 = 127.0.0.1:{port}", "listeners.tcp = none"]
        lines += [f"ssl_options.certfile = {files[0]}", f"ssl_options.keyfile = {files[1]}"]
        if files[2].exists():
            lines += [f"ssl_options.cacertfile = {files[2]}", "ssl_options.verify = verify_peer"]
            lines += ["ssl_options.fail_if_no_peer_cert = true"]
    else:
        lines.append(f"listeners.tcp.1 = 127.0.0.1:{port}")
    if peers:
        lines.append("cluster_formation.peer_discovery_backend = classic_config")
        lines += [f"cluster_formation.classic_config.nodes.{number} = {name}" for number, name in enumerate(peers, 1)]
    (directory / "rabbitmq.conf").write_text("\n".join([*lines, ""]))
    (directory / "epmd-port").write_text(str(epmd))


def control(directory: Path, *arguments: str) -> str:
    """Run ``rabbitmqctl`` for the node in this directory, and return what it says."""
    epmd = int((directory / "epmd-port").read_text())
    words = [str(_CONTROL), "-q", "-n", node_name(directory), "--erlang-cookie", COOKIE, *arguments]
    settings = environment(directory, epmd)
    done = subprocess.run(words, env=settings, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise RuntimeError(f"rabbitmqctl {arguments[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def command(directory: Path, port: int, epmd: int = 0, peers: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a node in the foreground."""
    root = str(ROOT)
    words = [str(directory), str(port), str(epmd), *peers]
    return ["env", f"PYTHONPATH={root}", sys.executable, "-m", "tests.support.rabbitmq", *words]


def answers(port: int) -> bool:
    """Whether it speaks AMQP, or TLS."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return len(connection.recv(16)) > 0
    except OSError:
        return False


def run_node(directory: Path, port: int, epmd: int, peers: Sequence[str]) -> int:
    """Run the node until it ends."""
    mapper = None
    if not epmd:
        epmd = free_port()
        mapper = port_mapper(directory, epmd)
    configure(directory, port, epmd, peers)
    os.environ.update(environment(directory, epmd))
    words = f"-start_epmd false {_QUIET} -kernel inet_dist_use_interface {{127,0,0,1}}"
    os.environ["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"] = words
    os.environ["RABBITMQ_DIST_PORT"] = str(free_port())
    node = spawn([str(_SERVER)], user=None, directory=directory, log=directory / "server.log")
    signal.signal(signal.SIGTERM, lambda *_: node.terminate())
    code = node.wait()
    if mapper is not None:
        mapper.kill()
    return code


def port_mapper(directory: Path, port: int) -> subprocess.Popen[bytes]:
    """Start Erlang's port mapper, through which nodes and tools find each other."""
    command = ["epmd", "-port", str(port), "-address", "127.0.0.1"]
    mapper = spawn(command, user=None, directory=directory, log=directory / "epmd.log")
    names = ["epmd", "-port", str(port), "-names"]
    until(lambda: subprocess.run(names, capture_output=True, check=False).returncode == 0)
    return mapper


if __name__ == "__main__":
    sys.exit(run_node(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
