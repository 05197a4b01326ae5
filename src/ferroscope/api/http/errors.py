"""Answers that are errors: what to raise, and the bodies that the clients of each API parse.

A message says what is wrong, why, and what to do. Nothing internal is ever part of one.
Source: what ironicclient, openstacksdk and ironic-inspector-client read out of a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ferroscope.contracts.errors import ConflictError, NotFoundError, StaleError, StoreUnavailableError
from ferroscope.contracts.remote import ObjectMissingError, ObjectStoreError
from ferroscope.core.delivery import IllegalEventError, Refused
from ferroscope.core.states import RESTING, Event

INTERNAL_MESSAGE: Final = "Internal error; see the service log. Report it if it persists."
LOOKUP_FAILED: Final = "Resource could not be found."


class ApiError(Exception):
    """An answer of ``status`` with ``message``; ``headers`` are added to the answer."""

    status = 500

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.message = message
        self.headers = dict(headers or {})
        super().__init__(message)


class BadRequestError(ApiError):
    """The call itself is wrong, whatever the state of things."""

    status = 400


class ForbiddenError(ApiError):
    """This installation, or a switch of the node, does not permit the call."""

    status = 403


class MissingError(ApiError):
    """There is no such thing, or not for this caller."""

    status = 404


class NotAcceptableError(ApiError):
    """The microversion does not go with the call."""

    status = 406


class StateConflictError(ApiError):
    """The call is right, but not in the present state."""

    status = 409


class TooLargeError(ApiError):
    """The body exceeds the limit."""

    status = 413


class TooManyError(ApiError):
    """This caller has failed too often of late; it may try again later."""

    status = 429


class UnavailableError(ApiError):
    """Not now; nothing was changed."""

    status = 503


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


_ALREADY: Final = {
    "name": "the name is already in use; choose another one",
    "uuid": "the UUID is already in use; leave it out to have one generated",
    "address": "the MAC address is already in use by another port; delete that port first",
    "instance_uuid": "the instance is already associated with another node; remove it there first",
}


# What callers ask for; the table's other events come about by themselves.
_ASKED: Final = frozenset({Event.INSPECT, Event.ABORT})
_ASKED_AT_REST: Final = frozenset({Event.INSPECT, Event.REAPPLY, Event.DELETE})
_COMMANDS: Final = {
    Event.SET_POWER: "Setting the power state",
    Event.SET_BOOT_DEVICE: "Setting the boot device",
    Event.VERIFY: "Verifying the BMC's credentials",
}


def bare_metal_body(status: int, message: str) -> bytes:
    """Return the body as ironicclient and openstacksdk read it: JSON inside a JSON string."""
    return msgspec.json.encode(BareMetalFailure(error_message=bare_metal_message(status, message)))


def bare_metal_message(status: int, message: str) -> str:
    """Return the inner JSON document of a Bare Metal API error."""
    fault = Fault(faultcode="Server" if status >= 500 else "Client", faultstring=message)
    return msgspec.json.encode(fault).decode()


def introspection_body(_status: int, message: str) -> bytes:
    """Return the body as ironic-inspector-client reads it."""
    return msgspec.json.encode(IntrospectionFailure(error=Message(message=message)))


def translate(exc: Exception) -> ApiError | None:
    """Return the answer that an error of the domain or the store means; None where it means a fault."""
    match exc:
        case ApiError():
            return exc
        case NotFoundError():
            return MissingError(f"{exc.kind.capitalize()} {exc.ident} could not be found.")
        case ConflictError():
            advice = _ALREADY.get(exc.field, "choose another one")
            return StateConflictError(f"The {exc.field} {exc.value} is in use already: {advice}.")
        case StaleError():
            return StateConflictError("Somebody else changed the node at the same time; read it again and repeat.")
        case IllegalEventError():
            return StateConflictError(_illegal(exc))
        case Refused():
            return StateConflictError(_sentence(str(exc)))
        case ObjectMissingError():
            return MissingError(_sentence(f"The data cannot be read: {exc}"))
        case ObjectStoreError():
            return UnavailableError(_sentence(f"The data cannot be read now: {exc}"), {"Retry-After": "5"})
        case StoreUnavailableError():
            return UnavailableError(
                "The database does not answer at present; nothing was changed. Try again in a second.",
                {"Retry-After": "1"},
            )
        case _:
            return None


def _illegal(exc: IllegalEventError) -> str:
    """Return what was asked for, the present state, and what a caller may ask for in it."""
    options = [event for event in exc.allowed if event in (_ASKED_AT_REST if exc.state in RESTING else _ASKED)]
    what = _COMMANDS.get(exc.event, str(exc.event).capitalize())
    possible = ", ".join(options) or "nothing until this is over"
    return f"{what} is not possible while the inspection is {exc.state}; allowed now: {possible}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
