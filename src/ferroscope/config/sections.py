"""All sections of the configuration: the service's own, and those that packages add.

A package adds one with an entry point in the group ``ferroscope.options``: its name is the section's, its value the
struct that declares the options (see ``declaration``). The struct may have a method ``problem``, which returns what is
wrong with the values, "" if nothing is, and a class attribute ``after``, the section that it follows in descriptions.
A role reads it with ``Settings.part``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from oslo_config import cfg

from ferroscope.config.declaration import oslo_options
from ferroscope.config.options import SECTIONS
from ferroscope_client.installed import load_installed, merge_in_order


@cache
def sections() -> dict[str, type[msgspec.Struct]]:
    """Return the struct of each section by name; ``PluginError``."""
    own: dict[str, Any] = dict(SECTIONS)
    return merge_in_order(own, load_installed("ferroscope.options"))


@cache
def options() -> dict[str, tuple[cfg.Opt, ...]]:
    """Return the options of each section for oslo.config; ``PluginError``."""
    return {section: oslo_options(struct) for section, struct in sections().items()}
