"""API errors: the exceptions to raise, and the error bodies that the clients of each API parse.

A message says what is wrong and what to do. It never contains internal details.
Source: what ironicclient, openstacksdk and ironic-inspector-client read from an error response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ferroscope.contracts.errors import (
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    SecretKeyError,
    StaleError,
    StoreUnavailableError,
)
from ferroscope.contracts.remote import ObjectMissingError, ObjectStoreError
from ferroscope.core.delivery import IllegalEventError, NotInspectableError, TooManyCommandsError
from ferroscope.core.states import Event
from ferroscope_client.core.states import RESTING

INTERNAL_MESSAGE: Final = "Internal error; see the service log (request ID {request_id})."
LOOKUP_FAILED: Final = "Resource could not be found."


class ApiError(Exception):
    """An error response with ``status`` and ``message``; ``headers`` are added to the response.

    ``guesses``: how many guesses an anonymous call made; see ``rate_limit.Callers``.
    """

    status = 500
    guesses = 0

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.message = message
        self.headers = dict(headers or {})
        super().__init__(message)


class BadRequestError(ApiError):
    """The request is invalid, regardless of any state."""

    status = 400


class UnauthorizedError(ApiError):
    """The call has no credentials, or wrong ones; ``WWW-Authenticate`` is added to the response."""

    status = 401


class ForbiddenError(ApiError):
    """The configuration, a setting of the node or a policy forbids the request."""

    status = 403


class MissingError(ApiError):
    """The resource does not exist, or not for this caller."""

    status = 404
    guesses = 1


class NotAllowedError(ApiError):
    """The method does not exist for this path, or not for this caller."""

    status = 405


class NotAcceptableError(ApiError):
    """The request needs another microversion."""

    status = 406


class UnknownOutcomeError(ApiError):
    """The change may or may not have been stored. Not 503, after which clients repeat the request automatically."""

    status = 504


class StateConflictError(ApiError):
    """The request is valid, but not in the current state."""

    status = 409


class PreconditionError(ApiError):
    """The caller does not hold the lease that the request requires."""

    status = 412


class BodyTooLargeError(ApiError):
    """The request body exceeds the limit."""

    status = 413


class TooManyError(ApiError):
    """This source has had too many failed requests; it may try again later."""

    status = 429


class UnavailableError(ApiError):
    """Temporarily unavailable; nothing was changed."""

    status = 503


def belongs_to_ironic(action: str, url: str) -> ForbiddenError:
    """Return the error for a change that only the attached Ironic at ``url`` makes."""
    where = f" ({url})" if url else ""
    return ForbiddenError(f"{action} is not possible here: the nodes belong to Ironic; send the request there{where}.")


class Fault(msgspec.Struct, frozen=True):
    """The inner document of a Bare Metal API error."""

    faultcode: str
    faultstring: str
    debuginfo: str | None = None


class BareMetalFailure(msgspec.Struct, frozen=True):
    """A Bare Metal API error: ``error_message`` is itself a JSON document, a ``Fault``."""

    error_message: str


class Message(msgspec.Struct, frozen=True):
    """The inner document of an Introspection API error."""

    message: str


class IntrospectionFailure(msgspec.Struct, frozen=True):
    """An Introspection API error."""

    error: Message


# For ramdisks, whose repeated calls take effect once.
REPEAT_IT: Final = "The database has not confirmed this request; repeat it in a second: it has effect once."
_UNKNOWN: Final = (
    "The outcome is unknown: the database has not confirmed the change, and could not be asked whether it was stored. "
    "Read the object, for a node its state and its timeline, before repeating the request; a request with an "
    "Idempotency-Key may be repeated at any time."
)
_IN_USE: Final = {
    "name": 'The name "{value}" is already in use; choose another name.',
    "uuid": "UUID {value} is already in use; omit it to have one generated.",
    "address": "MAC address {value} is already in use by another port; delete that port first.",
    "instance_uuid": "Instance {value} is already associated with another node; clear instance_uuid there first.",
}


# The events that a caller can request; all others follow from these automatically.
_REQUESTABLE: Final = frozenset({Event.INSPECT, Event.ABORT})
_REQUESTABLE_AT_REST: Final = frozenset({Event.INSPECT, Event.REAPPLY, Event.DELETE})
_COMMANDS: Final = {
    Event.SET_POWER: "Setting the power state",
    Event.SET_BOOT_DEVICE: "Setting the boot device",
    Event.ATTACH_VMEDIA: "Attaching virtual media",
    Event.DETACH_VMEDIA: "Detaching virtual media",
    Event.SET_PASSWORD: "Changing the BMC's password",
    Event.VERIFY: "Verifying the BMC's credentials",
}


def bare_metal_body(status: int, message: str) -> bytes:
    """Return the body in the form that ironicclient and openstacksdk read: JSON inside a JSON string."""
    return msgspec.json.encode(BareMetalFailure(error_message=bare_metal_message(status, message)))


def bare_metal_message(status: int, message: str) -> str:
    """Return the inner JSON document of a Bare Metal API error."""
    fault = Fault(faultcode="Server" if status >= 500 else "Client", faultstring=message)
    return msgspec.json.encode(fault).decode()


def introspection_body(_status: int, message: str) -> bytes:
    """Return the body in the form that ironic-inspector-client reads."""
    return msgspec.json.encode(IntrospectionFailure(error=Message(message=message)))


def translate(exc: Exception) -> ApiError | None:
    """Return the API error for an exception of the core or the store; None if it is an internal error."""
    match exc:
        case ApiError():
            return exc
        case NotFoundError():
            return MissingError(f"{exc.kind.capitalize()} {exc.ident} could not be found.")
        case ConflictError():
            template = _IN_USE.get(exc.field, f"{exc.field} {{value}} is already in use; choose another one.")
            return StateConflictError(template.format(value=exc.value))
        case StaleError():
            return StateConflictError("The node was modified concurrently. Read it again and repeat the request.")
        case IllegalEventError():
            return StateConflictError(_illegal(exc))
        case NotInspectableError() | TooManyCommandsError():
            return StateConflictError(_as_sentence(str(exc)))
        case ObjectMissingError():
            return MissingError(_as_sentence(f"The data cannot be read: {exc}"))
        case ObjectStoreError():
            message = _as_sentence(f"The data is temporarily unavailable: {exc}")
            return UnavailableError(message, {"Retry-After": "5"})
        case SecretKeyError():
            return UnavailableError(_as_sentence(str(exc)))
        case OutcomeUnknownError():
            return UnknownOutcomeError(_UNKNOWN)
        case StoreUnavailableError():
            fault = exc.failure.fault
            why, advice = _as_sentence(fault.summary), _as_sentence(fault.advice)
            more = "For more, run ferroscope doctor on a host of the service."
            return UnavailableError(f"{why} Nothing was changed. {advice} {more}", {"Retry-After": "1"})
        case _:
            return None


def _illegal(exc: IllegalEventError) -> str:
    """Return a message with the request, the current state, and the requests that are possible in it."""
    requestable = _REQUESTABLE_AT_REST if exc.state in RESTING else _REQUESTABLE
    options = [event for event in exc.allowed if event in requestable]
    action = _COMMANDS.get(exc.event, str(exc.event).capitalize())
    possible = ", ".join(options) or "nothing until it ends"
    return f"{action} is not possible {exc.where}; allowed now: {possible}."


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
