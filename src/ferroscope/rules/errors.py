"""What can be wrong with a rule: with its text, with the data that it meets, or by its own decision."""

from __future__ import annotations

from collections.abc import Sequence

from ferroscope.core.reasons import Reason


class InvalidRuleError(Exception):
    """The rule as written cannot be used; ``problems`` names each wrong field and says what is right."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RuleError(Exception):
    """The rule cannot be carried out on this data: the inspection fails."""


class NameTakenError(RuleError):
    """The name that a rule gives the node is another node's."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"the name {name!r} that it gives the node is that of node {owner} already")


class MissingDataError(RuleError):
    """A placeholder or a path names something that is not there."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no {name}")


class RefusedError(Exception):
    """The rule's own action ``fail`` refused the machine; the message is the operator's."""


class RuleFailedError(Exception):
    """A rule ended the inspection: which one, what of it may be told, and the kind of the failure."""

    def __init__(self, rule: str, message: str, reason: Reason = Reason.RULE_FAILED) -> None:
        self.rule = rule
        self.message = message
        self.reason = reason
        super().__init__(message)
