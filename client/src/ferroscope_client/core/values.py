"""UUIDs and names of nodes, ports and conductor groups: one rule for API callers and for inspection rules. Pure.

An API path has a UUID, a name or a reserved word, so a name must not be one of the other two.
Source: the Bare Metal API reference; names may contain RFC 3986's unreserved characters.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime
from functools import lru_cache
from os import urandom
from typing import Any, Final

import msgspec

_NUMBERS: Final = re.compile(r"[0-9]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.ASCII)
# The digit with the variant of a UUID, with its two highest bits set to 10.
_VARIANT: Final = {digit: f"{int(digit, 16) & 3 | 8:x}" for digit in "0123456789abcdef"}
_NAME: Final = re.compile(r"[A-Za-z0-9._~-]{1,255}\Z", re.ASCII)
_GROUP: Final = re.compile(r"[a-z0-9._-]{0,255}\Z", re.ASCII)
# Clients resolve these as path segments and never send them.
_STEPS: Final = frozenset({".", ".."})
_RESERVED: Final = frozenset({"detail", "maintenance", "management", "states", "validate", "vendor_passthru"})

_NOT_NAMES: Final = ", ".join(sorted(_STEPS | _RESERVED))
NAME: Final = f"1 to 255 letters, digits, '-', '.', '_' or '~', not a UUID, and not one of {_NOT_NAMES}"
"""The rule for names, for error messages."""


def natural(text: str) -> str:
    """Return a sort key for names: ``sim-2`` sorts before ``sim-10``, and case is ignored."""
    folded = text.lower()
    return f"{_NUMBERS.sub(_with_length, folded)}\0{folded}"


def _with_length(match: re.Match[str]) -> str:
    digits = match[0].lstrip("0")
    return f"\1{chr(len(digits))}{digits}"


def is_uuid(text: str) -> bool:
    """Whether this is a UUID, with or without hyphens."""
    return _UUID.match(text.lower()) is not None


def new_uuid() -> str:
    """Return a UUID of version 4, in a fifth of the time of ``uuid.uuid4``. An inspection needs two dozen."""
    digits = urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"


def new_token() -> str:
    """Return 256 random bits in hexadecimal: iPXE takes a word that begins with a hyphen for an option."""
    return urandom(32).hex()


def is_spelled_as_name(text: str) -> bool:
    """Whether the text has only the characters of a name."""
    return _NAME.match(text) is not None


def is_name(text: str) -> bool:
    """Whether this is a valid name of a node or a port group; see ``NAME``."""
    return is_spelled_as_name(text) and not is_uuid(text) and text not in _STEPS | _RESERVED


def is_group(text: str) -> bool:
    """Whether this is a valid conductor group; "" is the default group."""
    return _GROUP.match(text) is not None


# Traits: the standard names, which begin with a namespace of the published os-traits library, and an operator's own.

MAX_TRAITS: Final = 50
TRAIT: Final = "a standard trait (COMPUTE_, HW_, MISC_, OWNER_ or STORAGE_) or CUSTOM_, followed by A-Z, 0-9 and _"
"""The rule for traits, for error messages."""
_TRAIT: Final = re.compile(r"(?=.{1,255}\Z)(COMPUTE|CUSTOM|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]+\Z", re.ASCII)


def is_trait(text: str) -> bool:
    """Whether callers may give a node this trait; see ``TRAIT``. Rules may add other names too, as in Ironic."""
    return _TRAIT.match(text) is not None


# The strings that the Bare Metal service accepts as booleans. Pure.

_WORDS: Final = dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True) | dict.fromkeys(
    ("false", "0", "no", "off", "f", "n"), False
)


def parse(text: str) -> bool | None:
    """Return the boolean, ignoring case; None if the text is not a boolean."""
    return _WORDS.get(text.strip().lower())


# Secrets, which must never be shown once stored: passwords, tokens, keys.
#
# These are masked: fields with a telling name, at any depth; values beside such a name, as in a JSON patch or a list of
# headers; and the credentials and signatures in URLs.
# Source: the Bare Metal API shows six asterisks.

MASK: Final = "******"
WITHHELD: Final = "message withheld: the password is too short to be masked in it"

_MIN_MASKED_CHARACTERS: Final = 4

_SECRET: Final = re.compile(
    r"passw|passphrase|passcode|(?:\b|_|admin|root|user|bmc)pass(?![a-z])|pwd|pswd|secret|token|community|credential"
    r"|authorization(?![a-z])|cookies?(?![a-z])"
    r"|configdrive|key_contents|(?:api|access|account|auth|encrypt\w{0,8}|fernet|host|kg|priv|private|shared|ssh|ssl)[_-]?key",
    re.IGNORECASE,
)
# The signature of a presigned URL.
_SIGNATURE: Final = re.compile(r"sig(?:nature)?\Z", re.IGNORECASE)
_QUERY: Final = re.compile(r"(?<=[?&;])([^=&;#\s]{1,64})=[^&;#\s]+")
_USER_INFO: Final = re.compile(r"(?<=://)[^/?#\s]{1,1024}@")
# Documents that have a name and its value in two fields: {"name": "Authorization", "value": "Basic ..."}.
_NAMING: Final = ("name", "path", "field", "key")
_NAMED: Final = frozenset({"value", "values"})


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a field with this name holds a secret."""
    return _SECRET.search(name) is not None


def is_too_short(secret: str | None) -> bool:
    """Whether the secret is so short that masking it in a text would reveal it."""
    return bool(secret) and len(secret or "") < _MIN_MASKED_CHARACTERS


def without_user(text: str) -> str:
    """Return ``text`` with user name and password masked in every URL."""
    return _USER_INFO.sub(f"{MASK}@", text) if "@" in text and "://" in text else text


def without_secrets(text: str) -> str:
    """Return ``text`` with the secrets in URLs masked: user, password, tokens and signatures."""
    return without_parameters(without_user(text)) if "://" in text else text


def mask(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with the secrets masked, those in URLs too."""
    return {key: MASK if value and _is_hidden(document, key) else _mask_value(value) for key, value in document.items()}


def _is_hidden(document: dict[str, Any], key: str) -> bool:
    """Whether this field of the document is a secret, by its own name or by the name beside it."""
    if is_secret(key):
        return True
    return key in _NAMED and any(isinstance(name := document.get(field), str) and is_secret(name) for field in _NAMING)


def _mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return mask(value)
    return [_mask_value(item) for item in value] if isinstance(value, list) else value


def without_parameters(text: str) -> str:
    """Return ``text`` with the tokens and signatures in the query of each URL masked, complete or not."""
    return _QUERY.sub(_parameter, text)


def _parameter(match: re.Match[str]) -> str:
    name = match[1]
    return f"{name}={MASK}" if is_secret(name) or _SIGNATURE.search(name) else match[0]


def unmask(document: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` with every mask replaced by the stored value, so that it can be written back as shown.

    ``KeyError``, with the field's name, if there is no stored value for a mask.
    """
    return {
        key: _restore_value(key, value, stored.get(key), hidden=_is_hidden(document, key))
        for key, value in document.items()
    }


_encode_shown: Final = msgspec.json.Encoder(order="deterministic").encode


def _restore_value(key: str, value: Any, stored: Any, *, hidden: bool) -> Any:
    if value == stored:
        return value
    if isinstance(value, dict):
        return unmask(value, stored if isinstance(stored, dict) else {})
    if isinstance(value, list):
        kept = stored if isinstance(stored, list) else []
        by_text = {_encode_shown(_mask_value(item)): item for item in reversed(kept)}
        return [
            _item(key, item, kept[number : number + 1], by_text, hidden=hidden) for number, item in enumerate(value)
        ]
    if stored and value == (MASK if hidden else _mask_value(stored)):
        return stored
    if (hidden and value == MASK) or (isinstance(value, str) and "://" in value and holds_mask(value)):
        raise KeyError(key)
    return value


def holds_mask(value: Any) -> bool:
    """Whether the mask of a secret is in the value, at any depth."""
    if isinstance(value, dict):
        return any(map(holds_mask, value.values()))
    if isinstance(value, list):
        return any(map(holds_mask, value))
    return isinstance(value, str) and (value == MASK or f"={MASK}" in value or f"://{MASK}@" in value)


def _item(key: str, value: Any, at_place: list[Any], by_text: dict[bytes, Any], *, hidden: bool) -> Any:
    """Return the stored item with this representation, preferably the one at this position.

    A changed item needs its secrets."""
    text = _encode_shown(value)
    if at_place and text == _encode_shown(_mask_value(at_place[0])):
        return at_place[0]
    return by_text[text] if text in by_text else _restore_value(key, value, None, hidden=hidden)


# Untrusted text, made safe to show on a terminal, in a log or in a message.
#
# Unauthenticated machines may have written it, so control characters are escaped: they could move the cursor, forge
# lines or change the window's title. Pure.

# Besides control characters, these are escaped: characters that reverse, join or hide text (Unicode's category Cf and
# similar ones), and unpaired surrogates, which no terminal accepts.
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f\ud800-\udfff]"
)
_BREAKS: Final = str.maketrans({"\n": "\\n", "\t": "\\t"})


def clean(text: str) -> str:
    """Return the text with control characters (except line feed and tab) and invisible characters escaped."""
    return _UNFIT.sub(_escape_character, text)


def clean_json(text: str) -> str:
    """Return a JSON text with the same characters as escapes of JSON, which mean the same document."""
    return text if text.isascii() and "\x7f" not in text else _UNFIT.sub(_json_escaped, text)


def _json_escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Return the text without NUL and unpaired surrogates, which the text columns of some databases refuse."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def many(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 node``, ``2,000 nodes``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def utc_text(seconds: float) -> str:
    """Return a time, in seconds since the epoch, as people read it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def one_line(text: str, most: int) -> str:
    """Return the text on one line, with all control characters escaped, cut to at most ``most`` characters.

    The number of omitted characters is appended. Only the kept part is processed, so the cost does not depend on
    length.
    """
    cut = len(text) - most
    kept = clean(text[:most]).translate(_BREAKS)
    return kept if cut <= 0 else f"{kept[:most]}... ({many(cut, 'more character')})"


# Characters that begin a formula, in normal and in full width.
_FORMULA: Final = "=+@\uff1d\uff0b\uff20\uff0d-"
_FORMULA_CELL: Final = re.compile(rf"[\t\r\n{_FORMULA}]")
# A spreadsheet that separates lists by semicolons begins a new cell within a quoted one. Numbers are not formulas.
_SEPARATOR: Final = re.compile(r"[;\t\r\n]")
# Matches whole runs of blanks and separators only: otherwise a search would begin again at each character.
_FORMULA_WITHIN: Final = re.compile(rf"(?<![;\s\"'])[;\s\"']++(?=[{_FORMULA}])(?![+-]?[\d.]++(?:[\s;]|$))")


def spreadsheet_cell(value: Any) -> Any:
    """Return a value for CSV, cleaned, that no spreadsheet takes for a formula. Source: OWASP, CSV injection."""
    if not isinstance(value, str):
        return "" if value is None else value
    cleaned = clean(value)
    plain = _FORMULA_WITHIN.sub(_neutralize_cell, cleaned)
    return f"'{plain}" if _FORMULA_CELL.match(cleaned) else plain


def _neutralize_cell(run: re.Match[str]) -> str:
    return f"{run[0]}'" if _SEPARATOR.search(run[0]) else run[0]


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Hosts.


def normalized_ip(address: str) -> str | None:
    """Return the IP address in canonical form; None if it is invalid, loopback or unspecified."""
    return _normalized(address) if len(address) <= _MAX_ADDRESS_CHARACTERS else _normalize(address)


def _normalize(address: str) -> str | None:
    try:
        parsed = ipaddress.ip_address(address.strip().split("%", 1)[0].split("/", 1)[0])
    except ValueError:
        return None
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    return None if parsed.is_loopback or parsed.is_unspecified else str(parsed)


_RESERVED_NETWORK: Final = ipaddress.ip_network("240.0.0.0/4")


def bmc_ip(address: object) -> str | None:
    """Return the canonical address of a BMC; None for a multicast, link-local or loopback address."""
    canonical = normalized_ip(address) if isinstance(address, str) else None
    parsed = None if canonical is None else ipaddress.ip_address(canonical)
    nobodys = parsed is None or parsed.is_multicast or parsed.is_link_local
    return None if nobodys or parsed in _RESERVED_NETWORK else canonical


# One subscriber usually has a whole IPv6 /64.
IPV6_PREFIX: Final = 64


@lru_cache(maxsize=1024)
def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address in ``text``, as IPv4 if it is an IPv4-mapped one; None if it is not an address."""
    if len(text) > _MAX_ADDRESS_CHARACTERS:
        return None
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def limit_key(source: str) -> str:
    """Return the key under which limits count a source: the address, or the /64 of an IPv6 address."""
    address = parse_ip(source)
    if not isinstance(address, ipaddress.IPv6Address):
        return source if address is None else str(address)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))


# Longer than any IP address. An inspection looks at its BMC's address half a dozen times.
_MAX_ADDRESS_CHARACTERS: Final = 64
_normalized: Final = lru_cache(maxsize=4096)(_normalize)


def is_loopback(host: str) -> bool:
    """Whether the host is loopback or localhost: data sent there stays on this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
