"""Options of where inspection data is kept."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

STORAGE: Final = (
    cfg.StrOpt(
        "backend",
        default="database",
        choices=["database", "swift", "s3", "none"],
        help="Where data is kept once its inspection has ended; until then it is in the database. none: nowhere.",
    ),
    cfg.FloatOpt("period", default=5.0, min=0.1, help="Seconds between two looks for data to move there."),
    cfg.FloatOpt("timeout", default=10.0, min=0.1, max=120.0, help="Seconds that one try may take."),
    cfg.IntOpt("retries", default=2, min=0, max=10, help="How often a request to it is tried again."),
    cfg.FloatOpt(
        "retry_pause", default=0.2, min=0.0, max=10.0, help="Seconds before it is tried again; doubled each time."
    ),
    cfg.FloatOpt(
        "longest_pause",
        default=60.0,
        min=0.1,
        help="Longest pause between two tries to move data while the store is away, in seconds; the first is 2 s.",
    ),
)


S3: Final = (
    cfg.StrOpt("endpoint", default="", help="Base URL, such as https://s3.example.com; keys are in its path."),
    cfg.StrOpt("bucket", default="ferroscope", help="The bucket, which has to exist."),
    cfg.StrOpt("prefix", default="", help="What the objects' keys begin with, such as 'inspections/'."),
    cfg.StrOpt("region", default="us-east-1", help="The region that requests are signed for."),
    cfg.StrOpt("access_key", default="", help="Who we are."),
    cfg.StrOpt("secret_key", default="", secret=True, help="The key that requests are signed with."),
    cfg.StrOpt("ca_file", default="", help="Certificates to trust; empty: those of the system."),
)


SWIFT: Final = (
    cfg.StrOpt("auth_url", default="", help="Where tokens are: Keystone's URL, or Swift's /auth/v1.0."),
    cfg.StrOpt("auth_version", default="3", choices=["3", "1"], help="3: Keystone. 1: Swift's own."),
    cfg.StrOpt("username", default="", help="The user; with version 1 'account:user'."),
    cfg.StrOpt("password", default="", secret=True, help="The password, or the key with version 1."),
    cfg.StrOpt("project_name", default="", help="The project whose account it is."),
    cfg.StrOpt("user_domain_name", default="Default", help="The user's domain."),
    cfg.StrOpt("project_domain_name", default="Default", help="The project's domain."),
    cfg.StrOpt("application_credential_id", default="", help="An application credential, instead of user and project."),
    cfg.StrOpt("application_credential_secret", default="", secret=True, help="Its secret."),
    cfg.StrOpt("region", default="", help="The region in the catalogue; empty: any."),
    cfg.StrOpt(
        "interface",
        default="public",
        choices=["public", "internal", "admin"],
        help="Which of the catalogue's addresses to use.",
    ),
    cfg.StrOpt("endpoint", default="", help="The account's URL, instead of the catalogue's."),
    cfg.StrOpt("container", default="ferroscope", help="The container; it is made where it is missing."),
    cfg.StrOpt("prefix", default="", help="What the objects' names begin with."),
    cfg.StrOpt("ca_file", default="", help="Certificates to trust; empty: those of the system."),
)
