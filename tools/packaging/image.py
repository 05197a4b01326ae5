"""The OCI image: Debian's packages in one layer, Ferroscope in another, written without a container engine.

There is no shell, no package manager and no perl in it. Nothing in it needs to be written to: a container may run with
a read-only root and any user ID, with a volume on /var/lib/ferroscope if the database is SQLite.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tools.packaging import contents
from tools.packaging.contents import INTERPRETER, PYTHON, ROOT, SUITE, VERSION, run

NAME: Final = "localhost/ferroscope"
USER: Final = 10001

_SITE: Final = f"usr/local/lib/python{PYTHON}/dist-packages"
# The interpreter; what BMC drivers and PXE filters run; names of PCI devices, services and time zones.
_PACKAGES: Final = (
    "python3-minimal", "libpython3-stdlib", "ca-certificates", "ipmitool", "nftables", "iptables", "ipset",
    "media-types", "netbase", "pci.ids",
)  # fmt: skip
# What these bring and nothing here runs: perl and what is written in it, package management, tools of libraries.
_EXCLUDED: Final = (
    "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/bug/*",
    "/usr/share/lintian/*", "/usr/share/perl/*", "/usr/share/perl5/*", "/usr/lib/*/perl/*", "/usr/lib/*/perl5/*",
    "/usr/lib/*/perl-base/*", "/usr/lib/*/libperl.*", "/usr/bin/*perl*", "/usr/lib/*/gconv/*", "/usr/bin/dpkg*",
    "/usr/lib/dpkg/*", "/usr/share/dpkg/*", "/usr/share/debconf/*", "/etc/init.d/*", "/lib/systemd/*",
    "/usr/lib/*/libdb-*", "/usr/lib/python3*/lib-dynload/_dbm*", "/usr/bin/openssl", "/usr/sbin/ipmievd", "/bin/tar",
    "/usr/bin/debconf*", "/usr/sbin/*-rc.d", "/usr/bin/deb-*", "/usr/bin/h2*", "/usr/bin/pod*", "/usr/bin/zipdetails",
    "/usr/lib/python3*/lib2to3/*", "/usr/lib/python3*/pydoc_data/*", "/usr/lib/python3*/idlelib/*",
    "/usr/lib/python3*/tkinter/*", "/usr/lib/python3*/turtle*", "/usr/lib/python3*/ensurepip/*", "/lib/*/libmvec.so*",
)  # fmt: skip
_CONFIG: Final[dict[str, Any]] = {
    "User": f"{USER}:{USER}",
    "Env": [
        "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/var/lib/ferroscope",
        # As in the systemd units: memory would otherwise grow with large request bodies.
        "MALLOC_ARENA_MAX=2",
        "MALLOC_MMAP_THRESHOLD_=262144",
    ],
    "Entrypoint": ["ferroscope"],
    "Cmd": ["all"],
    "WorkingDir": "/var/lib/ferroscope",
    "ExposedPorts": {"6385/tcp": {}, "5050/tcp": {}},
    "StopSignal": "SIGTERM",
}


@contents.everybodys_umask()
def build(target: Path) -> Path:
    """Write the image as an OCI archive, which ``podman load``, ``docker load`` and ``ctr images import`` read."""
    epoch = contents.build_time()
    with tempfile.TemporaryDirectory(prefix="ferroscope-image-") as name:
        work = Path(name)
        base, ours = work / "base", work / "ours"
        _debian(base)
        contents.install_pinned_packages(base / _SITE)
        contents.remove_records(base / _SITE)
        contents.install_ferroscope(ours / _SITE)
        contents.write_launcher(ours / "usr/local/bin/ferroscope", INTERPRETER)
        shutil.copytree(ROOT / "deploy", ours / "usr/share/ferroscope/deploy")
        _compile(base, ours)
        layers = [_layer(base, epoch), _layer(ours, epoch)]
        _archive(target, layers, epoch)
    return target


def _debian(base: Path) -> None:
    """Extract Debian's packages into ``base``, and do the little that their maintainer scripts would do."""
    run(
        "mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(_PACKAGES)}",
        *(f"--dpkgopt=path-exclude={one}" for one in _EXCLUDED),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright", "--skip=cleanup/apt/cache", SUITE, base,
    )  # fmt: skip
    # Who looks for known vulnerabilities finds the packages here, as in other images without dpkg.
    listed = base / "var/lib/dpkg/status.d"
    listed.mkdir(parents=True)
    for package in sorted((base / "var/cache/apt/archives").glob("*.deb")):
        fields = run("dpkg-deb", "--field", package, output=True)
        (listed / package.name.split("_")[0]).write_text(fields)
    for leftover in ("var/cache", "var/log", "dev", "run", "usr/share/pixmaps"):
        shutil.rmtree(base / leftover, ignore_errors=True)
    for directory in ("dev", "proc", "run", "sys", "tmp", "var/lib/ferroscope", "etc/ferroscope"):
        (base / directory).mkdir(parents=True, exist_ok=True)
    authorities = sorted((base / "usr/share/ca-certificates").rglob("*.crt"))
    (base / "etc/ssl/certs/ca-certificates.crt").write_bytes(b"".join(one.read_bytes() for one in authorities))
    (base / "etc/passwd").write_text(
        f"root:x:0:0:root:/root:/usr/sbin/nologin\nferroscope:x:{USER}:{USER}::/var/lib/ferroscope:/usr/sbin/nologin\n"
    )
    (base / "etc/group").write_text(f"root:x:0:\nferroscope:x:{USER}:\n")
    (base / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    # The names of 60,000 vendors, which our calls of ipmitool do not print; it complains if there is no file.
    (base / "usr/share/misc/enterprise-numbers.txt").write_text("")
    _choose_nft(base)
    run("ldconfig", "-r", base)
    (base / "var/cache").mkdir(exist_ok=True)
    shutil.rmtree(base / "var/cache/ldconfig", ignore_errors=True)


def _choose_nft(base: Path) -> None:
    """Link the variants of iptables that Debian's update-alternatives chooses."""
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            link = base / f"usr/sbin/{family}{suffix}"
            if not link.is_symlink() and not link.exists():
                link.symlink_to("xtables-nft-multi")


def _compile(base: Path, ours: Path) -> None:
    standard, others = contents.imported_modules((base / _SITE, ours / _SITE))
    library = f"usr/lib/python{PYTHON}"
    contents.compile_bytecode(base / library, f"/{library}", standard)
    contents.compile_bytecode(base / _SITE, f"/{_SITE}", others)
    own = [one.relative_to(ours / _SITE) for one in (ours / _SITE).rglob("*.py")]
    contents.compile_bytecode(ours / _SITE, f"/{_SITE}", own)


def _layer(root: Path, epoch: int) -> bytes:
    """Return the directory as a tar archive whose bytes depend on its contents only."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            member = archive.gettarinfo(path, name)
            member.uid = member.gid = USER if name == "var/lib/ferroscope" else 0
            member.uname = member.gname = ""
            member.mtime = epoch
            if name == "tmp":
                member.mode = 0o1777
            elif member.isdir():
                member.mode = 0o755
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)
    return written.getvalue()


def _archive(target: Path, layers: Iterable[bytes], epoch: int) -> None:
    blobs: dict[str, bytes] = {}

    def add(kind: str, blob: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(blob).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = blob
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(blob)}

    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "ferroscope",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.base.name": f"debian:{SUITE}",
    }
    diffs, packed = [], []
    for layer in layers:
        diffs.append(f"sha256:{hashlib.sha256(layer).hexdigest()}")
        packed.append(add("layer.v1.tar+gzip", gzip.compress(layer, compresslevel=6, mtime=0)))
    config = {
        "created": created, "architecture": contents.architecture(), "os": "linux",
        "config": {**_CONFIG, "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": diffs},
        "history": [{"created": created, "created_by": step} for step in (f"debian {SUITE}", f"ferroscope {VERSION}")],
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add("config.v1+json", _json(config)), "layers": packed, "annotations": labels,
    }  # fmt: skip
    entry = add("manifest.v1+json", _json(manifest))
    entry["annotations"] = {
        "org.opencontainers.image.ref.name": f"{NAME}:{VERSION}",
        "io.containerd.image.name": f"{NAME}:{VERSION}",
    }
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    blobs = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w") as archive:
        for name in sorted(blobs):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(blobs[name]), epoch, 0o644
            archive.addfile(member, io.BytesIO(blobs[name]))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
