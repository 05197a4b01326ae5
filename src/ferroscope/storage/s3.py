"""S3 and compatible object stores: signed PUT, GET and DELETE of one object.

Three requests and a signature need no SDK. URLs are path-style (``ENDPOINT/BUCKET/KEY``), which every server supports.
Source: the S3 API reference, and "Signature Version 4" in AWS's reference on signing requests.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from ferroscope.config.options import S3Settings
from ferroscope.contracts.remote import ObjectMissingError
from ferroscope.remote.bounded_http import HttpAnswer
from ferroscope.storage.object_http import ObjectHttp, RetryPolicy

_ALGORITHM: Final = "AWS4-HMAC-SHA256"


class S3Store:
    """``contracts.remote.ObjectStore``; the bucket must exist."""

    name = "s3"

    def __init__(self, settings: S3Settings, patience: RetryPolicy) -> None:
        self._settings = settings
        self._http = ObjectHttp("the object store s3", patience, ca_file=settings.ca_file)

    def put(self, key: str, content: bytes) -> None:
        answer = self._send("PUT", key, content)
        if answer.status not in (200, 201):
            raise self._http.refusal(answer, "store an object")

    def get(self, key: str) -> bytes:
        answer = self._send("GET", key)
        if answer.status == 404:
            raise ObjectMissingError(f"object {key} is missing in bucket {self._settings.bucket}")
        if answer.status != 200:
            raise self._http.refusal(answer, "read an object")
        return answer.body

    def delete(self, key: str) -> None:
        answer = self._send("DELETE", key)
        if answer.status not in (200, 204, 404):
            raise self._http.refusal(answer, "delete an object")

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, key: str, body: bytes | None = None) -> HttpAnswer:
        s3 = self._settings
        path = quote(f"/{s3.bucket}/{s3.prefix}{key}", safe="/-_.~")
        base = s3.endpoint.rstrip("/")
        return self._http.send(method, base + path, lambda: self._headers(method, base, path, body or b""), body)

    def _headers(self, method: str, base: str, path: str, body: bytes) -> dict[str, str]:
        parts = urlsplit(base)
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        fields = {"host": parts.netloc.rpartition("@")[2], "x-amz-content-sha256": digest, "x-amz-date": at}
        s3 = self._settings
        value = authorization(
            method, parts.path + path, fields, region=s3.region, access_key=s3.access_key, secret_key=s3.secret_key
        )
        return {**{name: text for name, text in fields.items() if name != "host"}, "authorization": value}


def authorization(
    method: str, path: str, fields: dict[str, str], *, region: str, access_key: str, secret_key: str
) -> str:
    """Return the Authorization header for a request without a query, whose signed headers are ``fields``."""
    signed = ";".join(sorted(fields))
    lines = [f"{name}:{fields[name]}" for name in sorted(fields)]
    canonical = "\n".join([method, path, "", *lines, "", signed, fields["x-amz-content-sha256"]])
    at = fields["x-amz-date"]
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret_key}".encode()
    for step in (at[:8], region, "s3", "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
