"""The changes of a sync in the order in which they are or would be written, and the objects that it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ferroscope.contrib.dcim.dialects import DcimObject
from ferroscope.contrib.dcim.rest import Answers, DcimError, RestClient
from ferroscope_client.core import mac_addresses


class DcimChange(msgspec.Struct, frozen=True):
    """``before`` None: the object is created."""

    kind: str
    name: str
    before: DcimObject | None
    after: DcimObject


class LeftAlone(msgspec.Struct, frozen=True):
    """An object that was left alone; ``code`` says why, for programs."""

    kind: str
    name: str
    code: str
    why: str


class Report(msgspec.Struct, frozen=True):
    """The result of a run."""

    changes: list[DcimChange] = msgspec.field(default_factory=list)
    left: list[LeftAlone] = msgspec.field(default_factory=list)


class LeftAloneError(Exception):
    """An object is not written; the others are."""

    def __init__(self, code: str, why: str) -> None:
        self.code, self.why = code, why
        super().__init__(code)


REFUSED: Final = "refused"
_MAX_OBJECTS_AT_ONCE: Final = 20  # objects; a busy server takes a second for some of them


class DcimWriter:
    """Writes to the DCIM, or with ``dry_run`` only keeps the report. Objects that it refuses are left alone."""

    def __init__(self, client: RestClient, *, dry_run: bool) -> None:
        self._client, self._dry_run = client, dry_run
        self.report = Report()

    def leave(self, kind: str, name: str, reason: LeftAloneError) -> None:
        left = LeftAlone(kind, name, reason.code, reason.why)
        if left not in self.report.left:
            self.report.left.append(left)

    def create(self, kind: str, path: str, wanted: Sequence[tuple[str, DcimObject]]) -> list[tuple[str, DcimObject]]:
        """Create objects, given by name; return those that were created, without an identifier in a dry run."""
        created: list[tuple[str, DcimObject]] = []
        for group in _groups(wanted):
            bodies = [body for _, body in group]
            answers: Answers = [{"id": None} for _ in group] if self._dry_run else self._client.create(path, bodies)
            for (name, body), answer in zip(group, answers, strict=True):
                if isinstance(answer, DcimError):
                    self.leave(kind, name, LeftAloneError(REFUSED, str(answer)))
                else:
                    self.report.changes.append(DcimChange(kind, name, None, body))
                    created.append((name, answer))
        return created

    def create_one(self, kind: str, path: str, name: str, body: DcimObject) -> Any:
        """Create an object that others need; return its identifier; ``LeftAloneError`` if it is refused."""
        created = self.create(kind, path, [(name, body)])
        if not created:
            raise LeftAloneError(REFUSED, f"its {kind} {name} was refused")
        return created[0][1]["id"]

    def update(self, kind: str, path: str, name: str, stored: DcimObject, wanted: DcimObject) -> None:
        """Change the fields that differ; ``LeftAloneError`` if that is refused."""
        if changes := self.differences(stored, wanted):
            if not self._dry_run:
                (answer,) = self._client.update(path, [{"id": stored["id"], **changes}])
                if isinstance(answer, DcimError):
                    raise LeftAloneError(REFUSED, str(answer))
            before = {field: _plain(stored.get(field)) for field in changes}
            self.report.changes.append(DcimChange(kind, name, before, changes))

    def try_update(self, kind: str, path: str, name: str, stored: DcimObject, wanted: DcimObject) -> None:
        """Do the same, with nothing that depends on it."""
        try:
            self.update(kind, path, name, stored, wanted)
        except LeftAloneError as exc:
            self.leave(kind, name, exc)

    def complete(self, kind: str, path: str, wanted: Sequence[tuple[str, DcimObject]]) -> None:
        """Write fields of objects, given by name, as a part of a change that is in the report already."""
        for group in [] if self._dry_run else _groups(wanted):
            for (name, _), answer in zip(group, self._client.update(path, [body for _, body in group]), strict=True):
                if isinstance(answer, DcimError):
                    self.leave(kind, name, LeftAloneError(REFUSED, str(answer)))

    @staticmethod
    def differences(stored: DcimObject, wanted: DcimObject) -> DcimObject:
        return {field: value for field, value in wanted.items() if _plain(stored.get(field)) != _plain(value)}


def _groups(wanted: Sequence[tuple[str, DcimObject]]) -> list[Sequence[tuple[str, DcimObject]]]:
    return [wanted[at : at + _MAX_OBJECTS_AT_ONCE] for at in range(0, len(wanted), _MAX_OBJECTS_AT_ONCE)]


def _plain(value: Any) -> Any:
    """Return the value as it is compared: the identifier of an object; MAC addresses in one form."""
    if isinstance(value, dict):
        return value.get("id")
    return (mac_addresses.normalized_mac(value) or value) if isinstance(value, str) and value else value or None
