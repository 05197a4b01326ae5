"""``python -m tests.corpus.build``: write all cases, and what our hooks make of them now. Then read the difference."""

from __future__ import annotations

import msgspec

from tests.corpus import DIRECTORY, Case
from tests.corpus.catalog import cases
from tests.corpus.perform import perform


def build() -> list[Case]:
    """Return the cases with what comes of them, as it reads from JSON."""
    made = []
    for case in cases():
        plain = msgspec.json.decode(msgspec.json.encode(case), type=Case)
        plain.expected = perform(plain)
        made.append(plain)
    return made


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    made = {f"{case.name}.json": case for case in build()}
    for path in DIRECTORY.glob("*.json"):
        if path.name not in made:
            path.unlink()
    for name, case in made.items():
        text = msgspec.json.format(msgspec.json.encode(case), indent=1)
        (DIRECTORY / name).write_bytes(text + b"\n")
    print(f"{len(made)} cases")


if __name__ == "__main__":
    main()
