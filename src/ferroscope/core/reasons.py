"""Reason codes: why something failed, was refused or has to wait, with a hint what to do.

A code is stable (scripts and metrics rely on it), the hint is for people.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Stable codes; ``HINTS`` has one sentence of advice for each."""

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
    POWER_FAILED = "power-failed"
    POWER_OFF_DISABLED = "power-off-disabled"
    BMC_UNREACHABLE = "bmc-unreachable"
    BMC_REFUSED = "bmc-refused"
    BMC_CREDENTIALS = "bmc-credentials"
    BMC_CERTIFICATE = "bmc-certificate"
    BMC_NOT_ALLOWED = "bmc-not-allowed"
    DRIVER_INFO_INVALID = "driver-info-invalid"
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
    CALLBACK_REFUSED = "callback-refused"
    DISCOVERY_LIMITED = "discovery-limited"
    DISCOVERY_REJECTED = "discovery-rejected"
    NOT_TRACKED = "not-tracked"
    DATA_MISSING = "data-missing"
    DATA_DAMAGED = "data-damaged"
    DATA_TOO_LARGE = "data-too-large"
    STORE_UNAVAILABLE = "store-unavailable"
    INTERNAL = "internal"


HINTS: Final[dict[Reason, str]] = {
    Reason.RAMDISK_ERROR: "The ramdisk itself failed; read its message and the machine's console.",
    Reason.INVALID_INVENTORY: "The inventory lacks something that a hook needs; look at the stored data.",
    Reason.HOOK_FAILED: "A hook refused the data; correct the data or the hook's options, then reapply.",
    Reason.RULE_FAILED: "A rule does not fit the data; see it with: ferroscope rule explain RULE --node NODE.",
    Reason.REFUSED_BY_RULE: "An operator's rule refuses such machines; correct the machine or the rule, then reapply.",
    Reason.NAME_TAKEN: "A rule gives the node a name that another one has; rename that node or correct the rule.",
    Reason.TIMEOUT: "No callback came in time; check PXE boot, DHCP and the callback URL on the console.",
    Reason.START_TIMEOUT: "The BMC took too long to start the machine; look at the BMC and its network.",
    Reason.PROCESSING_TIMEOUT: "A hook or a rule does not come to an end; see the worker's log, then reapply.",
    Reason.ABORTED: "An operator aborted it; start the inspection again when ready.",
    Reason.POWER_FAILED: "The BMC accepted the command but the power state did not follow; look at the BMC's log.",
    Reason.POWER_OFF_DISABLED: "The node has disable_power_off set; reboot it, or clear the field to power it off.",
    Reason.BMC_UNREACHABLE: "The BMC did not answer; check its address, network and credentials in driver_info.",
    Reason.BMC_REFUSED: "The BMC refused the command; check the account's rights and driver_info.",
    Reason.BMC_CREDENTIALS: "The BMC rejected user name or password; correct them in driver_info before it locks out.",
    Reason.BMC_CERTIFICATE: "The BMC's certificate is not trusted; set redfish_verify_ca to its CA's file.",
    Reason.BMC_NOT_ALLOWED: "Approve the node or give its BMC's address yourself; see also [drivers] bmc_networks.",
    Reason.DRIVER_INFO_INVALID: "Correct driver_info; see what the driver reads: ferroscope driver properties DRIVER.",
    Reason.UNMANAGED_BOOT: "Give the node what its driver boots the ramdisk from, or set require_managed_boot = False.",
    Reason.DRIVER_UNKNOWN: "The node's driver is not enabled; add it to [drivers] enabled, or set another driver.",
    Reason.DRIVER_INCOMPLETE: "The worker's host lacks what the driver needs; see there: ferroscope doctor.",
    Reason.ATTEMPTS_EXHAUSTED: "Every permitted attempt failed or its worker died; see the timeline, then start again.",
    Reason.INTERRUPTED: "The worker died half way and [worker] interrupted = error; start the inspection again.",
    Reason.THROTTLED: "Power-ons are spread by [worker] reboot_throttle; it is this machine's turn soon.",
    Reason.BMC_SILENT: "The BMC has not answered lately, so it is asked less often; check its address and network.",
    Reason.BMC_BUSY: "Another request is at this BMC, or at too many of its network; its turn comes.",
    Reason.PXE_FILTER_CLOSED: "No PXE filter lets the machine boot yet; see ferroscope status, run pxe-filter.",
    Reason.ILLEGAL_EVENT: "The node's state does not take this event; see the allowed events in the message.",
    Reason.STALE_REQUEST: "The request belongs to an inspection that has ended already; nothing to do.",
    Reason.CONFLICTING_CALLBACK: "Two different callbacks came for one inspection; look for two machines with one MAC.",
    Reason.PORT_CONFLICT: "Another node has a port with this MAC; remove the wrong port, then reapply.",
    Reason.LOOKUP_UNKNOWN: "No node has any of these addresses; enrol the node or one of its MACs.",
    Reason.LOOKUP_AMBIGUOUS: "Several nodes match these addresses; remove the wrong ports or BMC addresses.",
    Reason.LOOKUP_CONFLICT: "UUID, MACs and BMC address point to different nodes; correct the enrolment.",
    Reason.LOOKUP_NOT_WAITING: "The machine called back while its node was not waiting; start an inspection first.",
    Reason.LOOKUP_BMC_ALONE: "The BMC's address fits, none of the MACs does; correct the node's ports, or remove them.",
    Reason.CALLBACK_INVALID: "The machine called, but what it sent is no inventory; look at its ramdisk and console.",
    Reason.CALLBACK_REFUSED: "The machine called, and was refused; the message says why, the timeline from where.",
    Reason.DISCOVERY_LIMITED: "Too many unknown machines call; work through the inbox, or raise the limits.",
    Reason.DISCOVERY_REJECTED: "Somebody rejected this machine; lift that with: ferroscope node readmit MAC.",
    Reason.NOT_TRACKED: "The attached registry does not list it; enrol it there again, or protect it here to keep it.",
    Reason.DATA_MISSING: "There is no stored inspection data; inspect the node first.",
    Reason.DATA_DAMAGED: "What the object store has is not what was stored; restore the object, or inspect again.",
    Reason.DATA_TOO_LARGE: "No machine sends so much; see what the ramdisk collects, and who else may call back.",
    Reason.STORE_UNAVAILABLE: "The database could not answer; the request is carried out when it is back.",
    Reason.INTERNAL: "This is a fault of Ferroscope; please report it with the timeline and the log.",
}


def hint(reason: Reason) -> str:
    """Return the advice for ``reason``."""
    return HINTS[reason]
