"""Hides a BMC's answers from callers without the right to them: they see the reason of a failure, not the text. Pure.

A project chooses the address that a worker calls. If the error quoted the answer, the project could read answers of
other services in the worker's network, and map it. The reason code and its advice are enough to correct a node.
"""

from __future__ import annotations

import re
from typing import Final

from ferroscope_client.core.explanations import EXPLANATIONS
from ferroscope_client.core.reasons import Reason

# The messages of failures for these reasons may quote a BMC's answer, or describe how it failed to answer.
OF_ANSWERS: Final = frozenset(
    {
        Reason.START_TIMEOUT,
        Reason.POWER_FAILED,
        Reason.BMC_UNREACHABLE,
        Reason.BMC_NAME_UNKNOWN,
        Reason.BMC_CONNECTION_REFUSED,
        Reason.BMC_NOT_READY,
        Reason.BMC_REFUSED,
        Reason.BMC_CREDENTIALS,
        Reason.BMC_PRIVILEGES,
        Reason.BMC_CERTIFICATE,
        Reason.BMC_CERTIFICATE_EXPIRED,
        Reason.BMC_CERTIFICATE_HOST,
        Reason.BMC_CA_UNUSABLE,
        Reason.BMC_NOT_REDFISH,
        Reason.BMC_SYSTEM_UNCLEAR,
        Reason.BMC_OTHER_MACHINE,
        Reason.BMC_BUSY,
        Reason.BMC_SILENT,
    }
)
_CODE: Final = re.compile(r"\((" + "|".join(sorted(OF_ANSWERS)) + r")\)")


def without_answer(message: str, reason: str | None) -> str:
    """Return the message of a step or an inspection without a BMC's answer."""
    return EXPLANATIONS[Reason(reason)].meaning if reason in OF_ANSWERS else message


def error_without_answer(last_error: str) -> str:
    """Return ``last_error``, which ends with the code of its reason, without a BMC's answer.

    The answer may contain a code, too, so nothing of the text is kept.
    """
    codes = _CODE.findall(last_error)
    if not codes:
        return last_error
    explanation = EXPLANATIONS[Reason(codes[-1])]
    return f"{explanation.meaning} ({codes[-1]}) {explanation.hint}"
