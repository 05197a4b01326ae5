"""What can be wrong with a rule: with its text, with the data that it meets, or by its own decision."""

from __future__ import annotations

from collections.abc import Sequence


class InvalidRuleError(Exception):
    """The rule as written cannot be used; ``problems`` names each wrong field and says what is right."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RuleError(Exception):
    """The rule cannot be carried out on this data: the inspection fails."""


class MissingDataError(RuleError):
    """A placeholder or a path names something that is not there."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no {name}")


class RefusedError(Exception):
    """The rule's own action ``fail`` refused the machine; the message is the operator's."""


class RuleFailedError(Exception):
    """A rule ended the inspection: which one, what of it may be told, and whether it meant to."""

    def __init__(self, rule: str, message: str, *, refused: bool) -> None:
        self.rule = rule
        self.message = message
        self.refused = refused
        super().__init__(message)
