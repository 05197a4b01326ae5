"""Documents as JSON and YAML for terminals and files.

Machines may have chosen the texts in them. Control and invisible characters are written as escapes of the format, so
that whoever reads the text back gets the same document.
"""

from __future__ import annotations

import json
from typing import Any

from ferroscope_client.core.values import clean, clean_json


def json_text(document: Any, *, ascii_only: bool = False) -> str:
    """Return the document as indented JSON."""
    return clean_json(json.dumps(document, indent=2, ensure_ascii=ascii_only))


def yaml_text(document: Any, *, ascii_only: bool = False) -> str:
    """Return the document as YAML; all characters beyond ASCII are escaped if one of them must not be shown."""
    import yaml

    text = str(yaml.safe_dump(document, sort_keys=False, allow_unicode=not ascii_only, width=120))
    return text if ascii_only or clean(text) == text else yaml_text(document, ascii_only=True)
