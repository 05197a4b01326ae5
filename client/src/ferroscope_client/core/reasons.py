"""Reason codes: why something failed, was refused or has to wait, as stable codes.

Scripts and metrics rely on the codes; ``explanations`` has the texts for people, which may change.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Stable codes; ``explanations`` has advice for each."""

    RAMDISK_ERROR = "ramdisk-error"
    INVALID_INVENTORY = "invalid-inventory"
    HOOK_FAILED = "hook-failed"
    RULE_FAILED = "rule-failed"
    REFUSED_BY_RULE = "refused-by-rule"
    NAME_TAKEN = "name-taken"
    TIMEOUT = "timeout"
    RAMDISK_SILENT = "ramdisk-silent"
    START_TIMEOUT = "start-timeout"
    PROCESSING_TIMEOUT = "processing-timeout"
    ABORTED = "aborted"
    RESTARTED = "restarted"
    IMPORTED = "imported"
    POWER_FAILED = "power-failed"
    NOT_RESTARTED = "not-restarted"
    POWER_OFF_DISABLED = "power-off-disabled"
    BMC_UNREACHABLE = "bmc-unreachable"
    BMC_NAME_UNKNOWN = "bmc-name-unknown"
    BMC_CONNECTION_REFUSED = "bmc-connection-refused"
    BMC_NOT_READY = "bmc-not-ready"
    BMC_REFUSED = "bmc-refused"
    BMC_CREDENTIALS = "bmc-credentials"
    BMC_PRIVILEGES = "bmc-privileges"
    BMC_CERTIFICATE = "bmc-certificate"
    BMC_CERTIFICATE_EXPIRED = "bmc-certificate-expired"
    BMC_CERTIFICATE_HOST = "bmc-certificate-host"
    BMC_CA_UNUSABLE = "bmc-ca-unusable"
    BMC_NOT_REDFISH = "bmc-not-redfish"
    BMC_SYSTEM_UNCLEAR = "bmc-system-unclear"
    BMC_OTHER_MACHINE = "bmc-other-machine"
    BMC_NOT_ALLOWED = "bmc-not-allowed"
    BMC_UNCONFIRMED = "bmc-unconfirmed"
    DRIVER_INFO_INVALID = "driver-info-invalid"
    ENCRYPTION_KEY_MISSING = "encryption-key-missing"
    DECRYPTION_FAILED = "decryption-failed"
    REFERENCE_UNRESOLVED = "reference-unresolved"
    DRIVER_UNKNOWN = "driver-unknown"
    DRIVER_INCOMPLETE = "driver-incomplete"
    UNMANAGED_BOOT = "unmanaged-boot"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    INTERRUPTED = "interrupted"
    THROTTLED = "throttled"
    BMC_SILENT = "bmc-silent"
    BMC_BUSY = "bmc-busy"
    BMC_PASSWORD_UNCLEAR = "bmc-password-unclear"  # noqa: S105  # a code
    PXE_FILTER_CLOSED = "pxe-filter-closed"
    ISO_UNREACHABLE = "iso-unreachable"
    ISO_INVALID = "iso-invalid"
    ISO_CERTIFICATE = "iso-certificate"
    ILLEGAL_EVENT = "illegal-event"
    STALE_REQUEST = "stale-request"
    CONFLICTING_CALLBACK = "conflicting-callback"
    PORT_CONFLICT = "port-conflict"
    LOOKUP_UNKNOWN = "lookup-unknown"
    LOOKUP_AMBIGUOUS = "lookup-ambiguous"
    LOOKUP_CONFLICT = "lookup-conflict"
    LOOKUP_NOT_WAITING = "lookup-not-waiting"
    LOOKUP_BMC_ALONE = "lookup-bmc-alone"
    CALLBACK_INVALID = "callback-invalid"
    CALLBACK_UNPROVEN = "callback-unproven"
    CALLBACK_REFUSED = "callback-refused"
    DATA_CONTRADICTS = "data-contradicts"
    DATA_REJECTED = "data-rejected"
    DISCOVERY_LIMITED = "discovery-limited"
    DISCOVERY_REJECTED = "discovery-rejected"
    NOT_TRACKED = "not-tracked"
    REGISTRY_UNAVAILABLE = "registry-unavailable"
    REGISTRY_REFUSED = "registry-refused"
    NODE_LOCKED = "node-locked"
    DATA_MISSING = "data-missing"
    DATA_DAMAGED = "data-damaged"
    DATA_TOO_LARGE = "data-too-large"
    HARDWARE_DEVIATES = "hardware-deviates"
    STORE_UNAVAILABLE = "store-unavailable"
    INTERNAL = "internal"


# The BMC can do nothing for us at present: workers stop calling it for a while.
UNAVAILABLE: Final = frozenset(
    {Reason.BMC_UNREACHABLE, Reason.BMC_NAME_UNKNOWN, Reason.BMC_CONNECTION_REFUSED, Reason.BMC_NOT_READY}
)

# The message of an abort; clients of ironic-inspector compare it.
CANCELED: Final = "Canceled by operator"
