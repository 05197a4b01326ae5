"""Forms that browsers send: bounded, from our own pages, with or without a file."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

import falcon
import msgspec
from falcon.media.multipart import MultipartFormHandler

from ferroscope.api.errors import BadRequestError, BodyTooLargeError, ForbiddenError
from ferroscope.api.http.context import ApiContext
from ferroscope.contrib.ui import session
from ferroscope.contrib.ui.session import Visitor
from ferroscope_client.core import json_safety
from ferroscope_client.core.json_safety import depth_exceeds
from ferroscope_client.core.text_files import NotTextError, text_of

# Bytes of a form: the UUIDs of a thousand machines. With a file: MOST_OF_A_FILE once, plain or sealed in base64.
MAX_BYTES: Final = 128 * 1024
MOST_OF_A_FILE: Final = 1024 * 1024
MAX_BYTES_WITH_FILE: Final = 3 * 1024 * 1024
_TOKEN: Final = re.compile("[0-9a-f]{64}")
# Fields of a form or a query.
_MAX_FIELDS: Final = 2000


def check_size(req: falcon.Request, most: int) -> None:
    """Raise ``BodyTooLargeError`` for a form whose declared size is larger."""
    if (req.content_length or 0) > most:
        raise _too_large(most)


class Given(msgspec.Struct, frozen=True):
    """The fields of a form; ``late``: this browser has logged in or out since it received the form."""

    fields: dict[str, list[str]] = {}
    late: bool = False


def read(context: ApiContext, req: falcon.Request, visitor: Visitor, most: int) -> Given:
    """Return the form, which must be one of ours; ``ForbiddenError``, ``BodyTooLargeError``, ``BadRequestError``.

    The content of a file is the value of its field; its name is that of ``FIELD.name``.
    """
    is_ours = session.check_origin(context, req)
    check_size(req, most)
    stream: Any = req.stream if req.env.get("wsgi.input_terminated") else req.bounded_stream
    raw = stream.read(most + 1)
    if len(raw) > most:
        raise _too_large(most)
    kind = req.content_type or ""
    form = _parts(raw, kind) if kind.startswith("multipart/form-data") else fields(raw.decode("utf-8", "replace"))
    token = (form.get("csrf") or [""])[0]
    late = not session.is_token(visitor, token)
    if late and not (is_ours and _TOKEN.fullmatch(token)):
        raise ForbiddenError("This form has expired. Reload the page and try again.")
    return Given(form, late)


def fields(text: str) -> dict[str, list[str]]:
    """Return the fields of a query, or of a form without a file; ``BadRequestError``."""
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise BadRequestError(f"Too many fields: at most {_MAX_FIELDS} are allowed.") from None


def back(form: Mapping[str, list[str]], usual: str = "") -> str:
    """Return the page that the form says it came from, with its search, if it is ours; otherwise the usual one."""
    page = (form.get("back") or [""])[0].strip()
    return page if page.startswith("/ui/") else usual


def plain(document: Any, max_depth: int) -> Any:
    """Return a document as JSON has it; ``ValueError`` if it has other values, or is nested too deeply."""
    try:
        content = msgspec.json.encode(document)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueError(f"a value that JSON does not support: {exc}") from None
    if depth_exceeds(content, max_depth):
        raise ValueError(f"nested too deeply: at most {max_depth} levels are allowed")
    return json_safety.decode_own(content)


def _parts(raw: bytes, kind: str) -> dict[str, list[str]]:
    form: dict[str, list[str]] = {}
    handler = MultipartFormHandler()
    handler.parse_options.max_body_part_buffer_size = MOST_OF_A_FILE
    try:
        for part in handler.deserialize(io.BytesIO(raw), kind, len(raw)):
            content = part.get_data()
            try:
                text = text_of(content) if part.filename else content.decode("utf-8-sig")
            except NotTextError as exc:
                raise BadRequestError(f"The file cannot be read: {exc}.") from None
            except UnicodeDecodeError as exc:
                raise BadRequestError(f"The form is not in UTF-8: {exc.reason} at byte {exc.start + 1}.") from None
            form.setdefault(part.name or "", []).append(text)
            if part.filename:
                form[f"{part.name}.name"] = [part.filename[:255]]
    except falcon.HTTPError as exc:
        if "too large" in str(exc.description):
            raise _too_large(MOST_OF_A_FILE) from None
        raise BadRequestError(f"Invalid form: {exc.description or exc.title}") from None
    return form


def _too_large(most: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The form is too large: at most {most} bytes are allowed.")
