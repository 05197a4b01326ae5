"""What reads texts of others by other means than a regular expression, and the texts that are worst for it.

Each module that imports a decoder, or has a function whose name says that it reads a text, has a function in
``READERS`` or a reason in ``NOT_MEASURED``: a new one with neither fails.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gzip
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tests.corpus.machines import body
from tests.fast.hooks import runs
from tests.support.growth.shapes import Shape

_DECODERS: Final = {
    "base64", "binascii", "codecs", "configparser", "csv", "email.parser", "email.utils.parsedate_to_datetime",
    "falcon.media.multipart", "gzip", "html.parser", "http.cookies", "httptools", "jinja2", "json", "regex", "struct",
    "tarfile", "urllib.parse.parse_qs", "urllib.parse.parse_qsl", "xml", "yaml", "zlib",
}  # fmt: skip
# Packages, and how the names of their modules begin here.
PACKAGES: Final = {"src/ferroscope": "", "client/src/ferroscope_client": "client."}
_READS: Final = re.compile(r"_?(parse|parsed|decode|decoded|tokenize|tokens|split|unpack|unpacked)(_|\Z)")
_READS_HERE: Final = re.compile(r"_?read(_|\Z)")
# Where ``read`` means a text of others, not a table of our database.
_FOREIGN: Final = (
    "bmc", "contrib.boot.setup", "contrib.ui", "enrollment", "hardware", "hooks", "http_server", "lldp", "rules",
)  # fmt: skip


def _make(before: str, unit: str, after: str = "", encoding: str = "") -> Shape:
    def shape(length: int) -> Any:
        text = before + unit * (length // len(unit)) + after
        return text.encode(encoding) if encoding else text

    return shape


# What texts repeat: separators, brackets, quotes, and words of the languages that are read.
_PIECES: Final = (
    " ", "\n", "a", "0", "é", "\u202e", "\\", '\\"', '"', "(", "[", "{", "<", "'", ".", ":", "::", "/", "%", "%25", "=",
    "-", "*", "~", "&", ",", "a,", "a;", "a ", "a\n", "a.", "a=b,", "a=b&", "a=1 and ", "not ", "[0]", "{a}", "{a[",
    "a: b\n", "- a: b\n", "- &a b\n", "? a\n", "a://", "a://a@", "00:", "(SKU=", "\t ", ";1", "a in (b),",
    "disk(size>1) and ",
)  # fmt: skip
_TEXTS: Final = [_make(before, piece, after) for piece in _PIECES for before, after in (("", ""), ("a=", "!"))]
_JSON: Final = [
    _make(*pieces, encoding="latin-1")
    for pieces in (
        *(("[", item, "1]") for item in ("1,", "1e308,", '"\\u0001",', '"\\ud800",', "NaN,", "[],", '{"a":"\t"},')),
        *(('{"a":"', unit, end) for unit in ("a", "\\\\", "\\n", "\x01", "\xff", '\\"') for end in ('"}', "")),
        ("", "["), ("", '{"a":'), ("", '"'), ("", "\\"), ("", "{}"), ("-", "9"), ("", "\0"),
        ("", '"mac_address":"52:54:00:00:00:01"'),
    )
]  # fmt: skip
_CSV: Final = [
    *_TEXTS,
    _make("name,driver,macs\n", "a,b,c\n"), _make("name\n", '"a\n'), _make("name\n", '""'), _make("", "extra/a,"),
    _make("name,macs\na,", "00:00:00:00:00:01 "), _make("name,labels\na,", "a=b,"), _make("name,password\n", "a,b\n"),
]  # fmt: skip
_POST: Final = "POST / HTTP/1.1\r\nHost: a\r\n"
_REQUESTS: Final = [
    _make(*pieces, encoding="latin-1")
    for pieces in (
        ("GET /", "a", " HTTP/1.1\r\n"), (f"{_POST}A: ", "a", "\r\n\r\n"), (_POST, "a: b\r\n", "\r\n"),
        (f"{_POST}Transfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n"), (f"{_POST}Content-Length: 9999\r\n\r\n", "a"),
        (f"{_POST}Transfer-Encoding: chunked\r\n\r\n1", ";a", "\r\n"), ("", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    )
]  # fmt: skip
_FIELD: Final = "--a\r\nContent-Disposition: form-data; name="
_FORMS: Final = [
    _make(*pieces, encoding="latin-1")
    for pieces in (
        (f"{_FIELD}b\r\n\r\n", "a", "\r\n--a--\r\n"), (f"{_FIELD}b\r\n\r\n", "\r\n--"),
        ("", f"{_FIELD}b\r\n\r\n\r\n", "--a--"),
        ("--a\r\n", "a: b\r\n", "\r\n\r\n--a--\r\n"),
        (f'{_FIELD}"', "\\", '"\r\n\r\n\r\n--a--'), (_FIELD, '; a="', "\r\n\r\n\r\n--a--"),
    )
]  # fmt: skip
_DHCP: Final = [
    _make("\x02" + "\0" * 235 + "\x63\x82\x53\x63", unit, encoding="latin-1")
    for unit in ("\0", "\x0c\x01a", "\x0c\0", "5\x01\x02")
]  # fmt: skip


def _items(make: Callable[[int], Any]) -> Shape:
    """Return a shape that is a list; an item is as dear as some characters."""
    return lambda length: [make(number) for number in range(length // 8)]


_DOCUMENTS: Final[list[Shape]] = [
    lambda length, make=make: {"a": (items := _items(make)(length)), "b": {f"a{n}": one for n, one in enumerate(items)}}
    for make in (
        lambda number: number, lambda number: {"password": f"a{number}"}, lambda _: "https://a:b@c?d=e",
        lambda number: [number], lambda _: "\x01a", lambda number: {f"a{number}": "\n"},
    )
] + [lambda length: {"k" * length: {f"a{number}": "b" for number in range(length)} | {"c": "\x01"}}]  # fmt: skip
# Machines with many of a part, all different or all alike.
_PARTS: Final[dict[str, Callable[[int], Any]]] = {
    "interfaces": lambda number: {
        "name": f"eth{number}", "mac_address": f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}",
        "lldp": [[1, "04aabbccddeeff"], [2, "0561"]],
    },
    "disks": lambda number: {"name": f"/dev/sd{number}", "serial": str(number), "size": number, "model": "a"},
    "pci_devices": lambda number: {"vendor_id": "10de", "product_id": f"{number:04x}", "class": "030200"},
}  # fmt: skip
_MACHINES: Final[list[Shape]] = [
    lambda length, name=name, make=make: body({name: _items(make)(length)})["inventory"]
    for name, part in _PARTS.items()
    for make in (part, lambda _, part=part: part(1))
]
_TLVS: Final[list[Shape]] = [
    _items(lambda number, kind=kind: [kind, f"000080c20{number % 5}010203"]) for kind in (1, 6, 8, 127)
]


def _masked(length: int) -> tuple[Any, Any]:
    """Return objects with masked secrets, and what is stored, in another order."""
    stored = [{"password": "secret", "number": number} for number in range(length // 8)]
    return {"a": [{**item, "password": "******"} for item in reversed(stored)]}, {"a": stored}


def _zeros(length: int) -> bytes:
    return gzip.compress(bytes(64 * length))


def _archive(length: int) -> bytes:
    return (b"a".ljust(124, b"\0") + b"00000000001".ljust(32, b"\0") + b"0".ljust(356 + 512, b"\0")) * (length // 64)


def _call(place: str, *arguments: Any, **options: Any) -> Any:
    module, _, name = place.partition(":")
    full_name = f"ferroscope_{module}" if module.startswith("client.") else f"ferroscope.{module}"
    return getattr(importlib.import_module(full_name), name)(*arguments, **options)


@functools.cache
def _hooks() -> Callable[[Any], Any]:
    names = sorted(runs.installed(), key=lambda name: (name not in ("ramdisk-error", "validate-interfaces"), name))
    pipeline, task = runs.pipeline(names, add_ports="all"), runs.context()
    return lambda inventory: pipeline.run(task, inventory, {"pci_devices": inventory["pci_devices"]})


def _feed(place: str, data: bytes) -> None:
    limits = _call("http_server.limits:Limits")
    incoming = _call(place, limits, decides=False, entered=lambda _phase, _seconds: None, go_on=lambda: None)
    for at in range(len(data)):
        incoming.feed(data[at : at + 1])


Read = Callable[[str, Any], Any]
# What is called with more than the text.
_CALLS: Final[dict[str, Read]] = {
    "api.auth.http_basic:_decode": lambda place, text: _call(place, {"Authorization": f"Basic {text}"}),
    "api.baremetal.callback_body:traces": lambda place, raw: _call(
        place, raw, None, _call("client.core.mac_addresses:IgnoredMacs", [])
    ),
    "api.http.decoding:decode": lambda place, raw: _call(place, raw, dict[str, Any], max_depth=25),
    "bmc.ipmi.info:read": lambda place, text: _call(place, {"ipmi_address": text, "ipmi_port": text}),
    "bmc.redfish.driver:read_access": lambda place, text: _call(place, {"redfish_address": text}),
    "bmc.redfish.virtual_media:is_same_image": lambda place, text: _call(place, text, "https://h/v1/media/ipa.iso"),
    "bmc.redfish.report:_links": lambda place, document: list(_call(place, document)),
    "contrib.ui.form:_parts": lambda place, raw: _call(place, raw, "multipart/form-data; boundary=a"),
    "contrib.ui.view:read": lambda place, text: _call(place, text, ["a"]),
    "client.core.json_safety:odd_fields": lambda place, document: _call(place, document, 5),
    "core.lanes:_parse_address": lambda place, text: _call(place, text, "443"),
    "client.core.values:unmask": lambda place, pair: _call(place, *pair),
    "client.enrollment.node_file:read": lambda place, text: _call(place, text, "csv"),
    "client.enrollment.node_file:decode_document": lambda place, text: _call(place, text, "yaml", aliases=False),
    "hardware.diff:compare": lambda place, found: _call(
        place, (found, {}), ({**found, "disks": found["disks"][::-1]}, {})
    ),
    "hardware.parts:parts": lambda place, found: _call(place, found, {}),
    "hooks.pipeline:Pipeline": lambda _, found: _hooks()({"pci_devices": [], **found}),
    "http_server.incoming:Incoming": _feed,
    "client.lldp.tlvs:values": lambda place, recorded: _call(place, _call("client.lldp.tlvs:frame", recorded)[0]),
    "remote.retry:retry_after": lambda place, text: _call(place, text, None),
    "rules.template:parse": lambda place, text: _call(place, text, ["a"]),
    "storage.reader:unpack": lambda place, packed: _call(
        place, packed, SimpleNamespace(content_size=None, content_sha256=None)
    ),
}  # fmt: skip
_SHAPES: Final[tuple[tuple[Sequence[Shape], str], ...]] = (
    (
        _TEXTS,
        "api.auth.http_basic:_decode api.baremetal.search:parse_query bmc.ipmi.driver:boot_device_of"
        " bmc.ipmi.driver:power_of bmc.ipmi.info:read bmc.redfish.driver:read_access"
        " bmc.redfish.virtual_media:is_same_image bmc.redfish.redaction:is_words contrib.ui.form:fields"
        " contrib.ui.render:harmless contrib.ui.view:read core.callback_secret:without_disk_key"
        " core.boot_macs:decode_record core.credentials:parse_token client.core.host_spelling:parse_address"
        " client.core.host_spelling:refusal_of_urls client.core.labels:selector core.lanes:_parse_address"
        " client.core.mac_addresses:boot_mac client.core.values:clean client.core.values:parse"
        " client.core.values:spreadsheet_cell client.core.values:without_secrets"
        " client.enrollment.node_file:decode_document client.hardware.names:model hardware.query:parse"
        " http_server.limits:parse_forwarded contrib.boot.pxe_filter.dhcp_leases:parse_leases remote.retry:retry_after"
        " remote.webhook:_seconds client.core.json_path:JsonPath rules.template:parse",
    ),
    (
        _JSON,
        "api.baremetal.callback_body:traces api.http.decoding:decode bmc.redfish.report:_decode"
        " contrib.dcim.bmc_scan.probe:parse_packet client.core.json_safety:decode client.core.json_safety:readable"
        " client.core.json_safety:repair_json client.core.text_files:text_of",
    ),
    (
        _DOCUMENTS,
        "api.http.decoding:shown_value bmc.redfish.report:_links client.core.json_safety:clean_value"
        " client.core.json_safety:odd_fields client.core.values:mask client.hardware.health:read",
    ),
    (_CSV, "client.enrollment.correctable:without_secrets client.enrollment.node_file:read"),
    (_MACHINES, "hardware.diff:compare hardware.parts:parts hooks.pipeline:Pipeline"),
    (_TLVS, "client.lldp.tlvs:frame client.lldp.tlvs:values"),
    (_REQUESTS, "http_server.incoming:Incoming"),
    (_FORMS, "contrib.ui.form:_parts"),
    (_DHCP, "contrib.boot.dhcp_message:reply"),
    ([_zeros, _archive], "contrib.ui.ramdisk_log:read_log storage.reader:unpack"),
    ([_masked], "client.core.values:unmask"),
)
READERS: Final = {place: shapes for shapes, places in _SHAPES for place in places.split()}

NOT_MEASURED: Final = {
    module: reason
    for reason, modules in {
        "reads what its operator has written: options, files, arguments": (
            "api.auth.certificate api.auth.policy contrib.boot.addresses client.credentials client.cli.input_files"
            " client.cli.jsonpath client.cli.rule client.cli.text config.coordination_options config.load"
            " config.messaging_options config.unknown contrib.kubernetes.cluster"
            " contrib.openstack.imports.inspector_source contrib.ramdisk.inputs db.url hooks.loader hooks.pci"
            " hooks.physical_network http_server.tls rules.builtin rules.writes secrets.keys"
        ),
        "reads what another part of the service has written": (
            "affinity api.baremetal.rules api.http.in_process api.rate_limit bmc.sim.driver contracts.store"
            " contrib.ui.activity contrib.ui.session core.states db.copying.destination db.failover_nodes"
            " db.inspections hardware.machine_identity periodic.reinspection"
        ),
        "writes only": (
            "bmc.redfish.failures api.baremetal.floppy client.cli.node.timeline client.cli.output cli.user_file"
            " contrib.dcim.exporters.tables contrib.openstack.import_command contrib.ramdisk.archive contrib.ui.login"
            " contrib.ui.machines contrib.ui.wiring client.enrollment.printed"
        ),
        "reads what its own host has: output of programs, packets of a fixed size": (
            "bmc.ipmi.accounts contrib.ramdisk.agent contrib.ramdisk.sources contrib.boot.setup.downloads"
            " contrib.boot.setup.visitor"
            " contrib.boot.pxe_filter.backends.base contrib.boot.pxe_filter.backends.watchdog"
        ),
        "decodes JSON, which client.core.json_safety measures, and takes fields from it": (
            "bmc.redfish.health bmc.redfish.inventory bmc.redfish.resources bmc.redfish.session"
            " bmc.redfish.system contrib.kubernetes.api hooks.ramdisk_error remote.bare_metal_http"
        ),
        "reads fields of a fixed size": "remote.rabbitmq",
        "compiles what an administrator has written, bounded in length and in what it expands to": "rules.patterns",
        "is measured as contrib.ui.form:fields, http_server.incoming:Incoming or hooks.pipeline:Pipeline": (
            "contrib.ui.saved_searches hooks.helpers hooks.root_device http_server.connection http_server.wsgi"
        ),
    }.items()
    for module in modules.split()
}  # fmt: skip


def find_readers(root: Path) -> Iterator[str]:
    """Yield the modules that read a text, as far as their imports and the names of their functions say so."""
    for package, prefix in PACKAGES.items():
        for file in sorted((root / package).rglob("*.py")):
            name = ".".join(file.relative_to(root / package).with_suffix("").parts).removesuffix(".__init__")
            if "migrations" not in file.parts and reads(name, ast.parse(file.read_text(encoding="utf-8"))):
                yield f"{prefix}{name}"


def reads(module: str, tree: ast.AST) -> bool:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.FunctionDef) and (
            _READS.match(node.name) or (_READS_HERE.match(node.name) and module.startswith(_FOREIGN))
        ):
            return True
    return bool(names & _DECODERS)


def run(place: str, text: Any) -> None:
    """Let the function read the text, which it may refuse."""
    with contextlib.suppress(Exception):
        _CALLS.get(place, _call)(place, text)
