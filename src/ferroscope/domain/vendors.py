"""What makers are called: the names of PCI vendors by their ids, and the spellings of one maker's name.

A maker's name is compared without what kind of company it is, so that ``vendor == dell`` finds "Dell Inc.".
"""

from __future__ import annotations

from typing import Final

# Ids from the public PCI ID database.
VENDORS: Final = {
    "15b3": "mellanox", "8086": "intel", "14e4": "broadcom", "10de": "nvidia", "1002": "amd", "1022": "amd",
    "1077": "qlogic", "1924": "solarflare", "1425": "chelsio", "19e5": "huawei", "1dd8": "pensando", "177d": "cavium",
    "10ec": "realtek", "1d6a": "aquantia", "1137": "cisco", "1af4": "virtio", "144d": "samsung", "1344": "micron",
    "1c5c": "hynix", "1179": "toshiba", "10df": "emulex", "1d0f": "amazon", "9005": "adaptec", "1000": "lsi",
}  # fmt: skip

# How firmware writes them, folded; the first one is what people say.
_MAKERS: Final = (
    ("dell", "dell emc", "dell computer"),
    ("hpe", "hp", "hewlett-packard", "hewlett packard", "hewlett packard enterprise"),
    ("supermicro", "super micro", "super micro computer"),
    ("cisco", "cisco systems"),
    ("lenovo", "lenovo group", "lenovo(beijing)"),
    ("fujitsu", "fujitsu siemens", "fujitsu client computing"),
    ("asus", "asustek", "asustek computer"),
    ("gigabyte", "gigabyte technology", "giga computing", "giga-byte technology"),
    ("asrock", "asrockrack", "asrock rack"),
    ("quanta", "quanta computer", "quanta cloud technology"),
    ("huawei", "huawei technologies"),
    ("intel", "intel(r)"),
    ("mellanox", "mellanox technologies"),
    ("hynix", "sk hynix"),
    ("wdc", "wd", "western digital"),
    ("amd", "advanced micro devices", "authenticamd"),
)
_COMPANIES: Final = (
    "", " inc.", ", inc.", " inc", " corporation", " corp.", " corp", " technology", " technologies", " electronics",
    " ltd.", " limited", " co., ltd.", " co.,ltd.", " gmbh", " ag",
)  # fmt: skip
_GROUPS: Final = {spelled: group for group in _MAKERS for spelled in group}


def spellings(name: str) -> tuple[str, ...]:
    """Return every way in which the maker of this (folded) name may be stored, that way first."""
    base = name
    for company in sorted(_COMPANIES, key=len, reverse=True):
        if company and name.endswith(company):
            base = name.removesuffix(company)
            break
    names = _GROUPS.get(name) or _GROUPS.get(base) or (base,)
    return tuple(dict.fromkeys((name, *(f"{one}{company}" for one in names for company in _COMPANIES))))
