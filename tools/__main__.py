"""``python3 -m tools NAME``: what contributors need now and then. The goals of the Makefile are for every day."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PYTHON: Final = ".venv/bin/python"


class Tool(NamedTuple):
    """What it is for, the environments of ``tools/setup`` that it needs, and its command."""

    purpose: str
    needs: str
    command: str


TOOLS: Final = {
    "audit": Tool(
        "Compare the packages of an installation with the published advisories",
        "audit",
        ".audit-venv/bin/pip-audit --strict --require-hashes --disable-pip -r requirements.txt",
    ),
    "lock": Tool(
        "Pin the latest versions of all packages, with hashes; --keep renews the hashes only",
        "venv netbox",
        f"{PYTHON} -m tools.lock",
    ),
    "changes": Tool("Show the news fragments, or move them into CHANGELOG.md", "venv", f"{PYTHON} tools/changes.py"),
    "budget": Tool(
        "Compare the size of the tree with tools/budget.toml; --write lowers the budget",
        "venv",
        f"{PYTHON} -m tools.budget",
    ),
    "names": Tool("Count names that do not say what they name, by file", "venv", f"{PYTHON} -m tools.names"),
    "site": Tool(
        "Write the documentation as a web site to build/site; broken links are errors",
        "site",
        ".site-venv/bin/sphinx-build -q -W --keep-going -c tools/site docs build/site",
    ),
    "screenshots": Tool(
        "Make the pictures of the web page in docs/images", "dev browser", f"{PYTHON} -m tools.screenshots"
    ),
    "kept-release": Tool(
        "Keep what the release of a wheel leaves in a database, for tests/nightly/upgrades",
        "dev",
        f"{PYTHON} -m tests.nightly.upgrades.kept",
    ),
    "mutations": Tool(
        "Break a random line of each package, and say which tests find it",
        "dev postgresql",
        f"{PYTHON} -m tools.mutations",
    ),
    "compare": Tool(
        "Run the golden corpus through the hooks of the published Ironic",
        "dev ironic",
        f"{PYTHON} -m tools.compare_with_ironic",
    ),
    "image": Tool(
        "Write an OCI image to build/, made of Debian's packages (needs root)",
        "dev packaging",
        f"{PYTHON} -m tools.packaging image",
    ),
    "dist": Tool("Write the source distribution and the wheel to dist/", "dev", f"{PYTHON} -m tools.packaging dist"),
    "deb": Tool("Write the Debian packages to build/", "dev packaging", f"{PYTHON} -m tools.packaging deb"),
    "chart": Tool(
        "Write the Helm chart to build/", "helm", ".helm/helm package deploy/helm/ferroscope --destination build"
    ),
    "chaos": Tool(
        "Kill, freeze and cut off processes for half an hour; count lost and repeated work",
        "dev postgresql mariadb balancers",
        f"{PYTHON} -m tests.support.cluster.chaos",
    ),
    "chaos-pxe": Tool(
        "Kill, freeze and cut off the open PXE filter for an hour (needs root)",
        "dev postgresql mariadb pxe",
        f"{PYTHON} -m tests.support.pxe.chaos",
    ),
    "chaos-kubernetes": Tool(
        "Let nodes, BMCs, the API server and leaders of a Kubernetes cluster fail",
        "dev postgresql kubernetes",
        f"{PYTHON} -m tests.nightly.kubernetes.chaos",
    ),
    "fuzz": Tool(
        "Send odd callbacks, requests or inventories to a separate service; check for errors and memory growth",
        "dev postgresql mariadb",
        f"{PYTHON} -m tests.support.fuzz",
    ),
    "demo-cloud": Tool(
        "Kill one part of each kind of a cloud with a real Ironic, while 100 nodes are inspected (needs root)",
        "dev postgresql mariadb galera rabbitmq coordination balancers apache pxe swift ironic",
        f"{PYTHON} -m tests.nightly.cloud.demo",
    ),
}


def main(words: list[str]) -> int:
    if not words or words[0] not in TOOLS:
        print("usage: python3 -m tools NAME [ARGUMENTS]\n")
        for name, tool in TOOLS.items():
            print(f"  {name:17} {tool.purpose}")
        return 0 if words[:1] in ([], ["--help"], ["-h"]) else 2
    tool = TOOLS[words[0]]
    os.chdir(ROOT)
    Path("build").mkdir(exist_ok=True)
    done = subprocess.run(["tools/setup.sh", *tool.needs.split()], check=False)
    return done.returncode or subprocess.run([*tool.command.split(), *words[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
