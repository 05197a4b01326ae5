"""The examples that AWS publishes in "Authenticating Requests: Using the Authorization Header" of the S3 reference."""

from __future__ import annotations

import hashlib

from ferroscope.storage.s3 import authorization
from tests.support.rows import each

FIELDS = {"host": "examplebucket.s3.amazonaws.com", "x-amz-date": "20130524T000000Z"}


@each(
    ("method", "path", "body", "more", "signature"),
    [
        (
            "GET", "/test.txt", b"", {"range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT", "/test%24file.text", b"Welcome to Amazon S3.",
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
    ],
)  # fmt: skip
def test_the_signatures_are_those_of_awss_examples(
    method: str, path: str, body: bytes, more: dict[str, str], signature: str
) -> None:
    fields = FIELDS | more | {"x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
    value = authorization(
        method, path, fields, region="us-east-1",
        access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )  # fmt: skip
    assert value == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        f"SignedHeaders={';'.join(sorted(fields))}, Signature={signature}"
    )
