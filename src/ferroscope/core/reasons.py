"""Reason codes: why something failed, was refused or has to wait, each with a hint on what to do.

Codes are stable, because scripts and metrics rely on them; hints are for people and may change.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Stable codes; ``HINTS`` has advice for each."""

    RAMDISK_ERROR = "ramdisk-error"
    INVALID_INVENTORY = "invalid-inventory"
    HOOK_FAILED = "hook-failed"
    RULE_FAILED = "rule-failed"
    REFUSED_BY_RULE = "refused-by-rule"
    NAME_TAKEN = "name-taken"
    TIMEOUT = "timeout"
    START_TIMEOUT = "start-timeout"
    PROCESSING_TIMEOUT = "processing-timeout"
    ABORTED = "aborted"
    RESTARTED = "restarted"
    IMPORTED = "imported"
    POWER_FAILED = "power-failed"
    POWER_OFF_DISABLED = "power-off-disabled"
    BMC_UNREACHABLE = "bmc-unreachable"
    BMC_REFUSED = "bmc-refused"
    BMC_CREDENTIALS = "bmc-credentials"
    BMC_CERTIFICATE = "bmc-certificate"
    BMC_NOT_ALLOWED = "bmc-not-allowed"
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
    PXE_FILTER_CLOSED = "pxe-filter-closed"
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
    STORE_UNAVAILABLE = "store-unavailable"
    INTERNAL = "internal"


# The message of an abort; clients of ironic-inspector compare it.
CANCELED: Final = "Canceled by operator"

HINTS: Final[dict[Reason, str]] = {
    Reason.RAMDISK_ERROR: "The ramdisk reported a failure; see its message and the machine's console.",
    Reason.INVALID_INVENTORY: "The inventory lacks data that a hook needs; check the stored data.",
    Reason.HOOK_FAILED: "A hook rejected the data; correct the data or the hook's options, then reapply.",
    Reason.RULE_FAILED: "A rule failed on this data; to see why, run: ferroscope rule explain RULE --node NODE.",
    Reason.REFUSED_BY_RULE: "An inspection rule rejects this machine; correct the machine or the rule, then reapply.",
    Reason.NAME_TAKEN: "A rule sets a node name that is already in use; rename the other node or correct the rule.",
    Reason.TIMEOUT: "The ramdisk did not call back in time; check PXE boot, DHCP and the callback URL on the console.",
    Reason.START_TIMEOUT: "The BMC took too long to start the machine; check the BMC and its network.",
    Reason.PROCESSING_TIMEOUT: "A hook or a rule did not finish in time; see the worker's log, then reapply.",
    Reason.ABORTED: "The inspection was aborted; start it again when ready.",
    Reason.RESTARTED: "A newer inspection of the node has replaced this one; nothing to do.",
    Reason.IMPORTED: "It failed in ironic-inspector, before it was imported; the message is from there.",
    Reason.POWER_FAILED: "The BMC accepted the command but the power state did not change; check the BMC's log.",
    Reason.POWER_OFF_DISABLED: "The node has disable_power_off set; reboot it, or clear the field to power it off.",
    Reason.BMC_UNREACHABLE: "The BMC did not answer; check its network and its address and credentials in driver_info.",
    Reason.BMC_REFUSED: "The BMC refused the command; check the account's privileges and driver_info.",
    Reason.BMC_CREDENTIALS: "The BMC rejected the credentials; correct driver_info before it locks the account.",
    Reason.BMC_CERTIFICATE: "The BMC's certificate is not trusted; set redfish_verify_ca to the file of its CA.",
    Reason.BMC_NOT_ALLOWED: "Approve the node, or set the BMC address yourself; see also [drivers] bmc_networks.",
    Reason.DRIVER_INFO_INVALID: "Correct driver_info; to list its keys, run: ferroscope driver properties DRIVER.",
    Reason.ENCRYPTION_KEY_MISSING: "Add the key to [secrets] key_file on this host; to check, run: ferroscope doctor.",
    Reason.DECRYPTION_FAILED: "The encrypted value is not for this node or field; set the secret in driver_info again.",
    Reason.REFERENCE_UNRESOLVED: "Correct the reference in driver_info, or [secrets] sources on the workers.",
    Reason.UNMANAGED_BOOT: "Set what the driver needs to boot the ramdisk, or set require_managed_boot = False.",
    Reason.DRIVER_UNKNOWN: "The node's driver is not enabled; add it to [drivers] enabled, or set another driver.",
    Reason.DRIVER_INCOMPLETE: "The worker's host lacks a dependency of the driver; run there: ferroscope doctor.",
    Reason.ATTEMPTS_EXHAUSTED: "All attempts failed or their worker died; check the timeline, then start again.",
    Reason.INTERRUPTED: "The worker died during the task and [worker] interrupted = error; start the inspection again.",
    Reason.THROTTLED: "Power-ons are limited by [worker] reboot_throttle; the machine is powered on soon.",
    Reason.BMC_SILENT: "The BMC has not answered recently, so it is retried less often; check its address and network.",
    Reason.BMC_BUSY: "The BMC, or its network, is busy with other requests; this one follows automatically.",
    Reason.PXE_FILTER_CLOSED: "No PXE filter lets the machine boot yet; run ferroscope status and check pxe-filter.",
    Reason.ILLEGAL_EVENT: "The node's state does not allow this; the message lists what it allows.",
    Reason.STALE_REQUEST: "The request belongs to an inspection that has already ended; nothing to do.",
    Reason.CONFLICTING_CALLBACK: "One inspection got two different callbacks; check for two machines with one MAC.",
    Reason.PORT_CONFLICT: "Another node has a port with this MAC; remove the wrong port, then reapply.",
    Reason.LOOKUP_UNKNOWN: "No node has any of these addresses; enroll the node or add a port with one of its MACs.",
    Reason.LOOKUP_AMBIGUOUS: "Several nodes match these addresses; remove the wrong ports or BMC addresses.",
    Reason.LOOKUP_CONFLICT: "UUID, MACs and BMC address belong to different nodes; correct their enrollment.",
    Reason.LOOKUP_NOT_WAITING: "The node was not waiting for a callback; start an inspection first.",
    Reason.LOOKUP_BMC_ALONE: "The BMC address matches, but no MAC does; correct the node's ports, or remove them.",
    Reason.CALLBACK_INVALID: "The machine's callback was not a valid inventory; check its ramdisk and console.",
    Reason.CALLBACK_UNPROVEN: "The caller did not prove to be the machine that was booted; see the trust in a ramdisk.",
    Reason.CALLBACK_REFUSED: "The callback was refused; the message says why, the timeline shows where it came from.",
    Reason.DATA_CONTRADICTS: "Another machine, or a new mainboard: approve it, or reject it (ferroscope node inbox).",
    Reason.DATA_REJECTED: "An operator rejected the data; check which machine sent it, then inspect the node again.",
    Reason.DISCOVERY_LIMITED: "Too many unknown machines called back; clear the inbox, or raise the limits.",
    Reason.DISCOVERY_REJECTED: "This machine was rejected; to allow it again, run: ferroscope node readmit MAC.",
    Reason.NOT_TRACKED: "The attached registry does not list it; enroll it there again, or set instance_uuid here.",
    Reason.DATA_MISSING: "There is no stored inspection data; inspect the node first.",
    Reason.DATA_DAMAGED: "The object in the object store is damaged; restore it, or inspect the node again.",
    Reason.DATA_TOO_LARGE: "The inspection data is too large; check the ramdisk's collectors, and who can call back.",
    Reason.REGISTRY_UNAVAILABLE: "The attached Ironic does not answer; inspections continue when it does.",
    Reason.REGISTRY_REFUSED: "The attached Ironic rejected the request; see its message and the roles of [ironic].",
    Reason.NODE_LOCKED: "Ironic is working on the node; if its lock is stale, restart the conductor that holds it.",
    Reason.STORE_UNAVAILABLE: "The database is unavailable; the request is carried out once it is back.",
    Reason.INTERNAL: "This is a bug in Ferroscope; please report it with the timeline and the log.",
}


def hint(reason: Reason) -> str:
    """Return the hint for ``reason``."""
    return HINTS[reason]
