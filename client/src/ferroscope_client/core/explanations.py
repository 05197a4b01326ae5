"""The meaning of each reason code, what to do about it, and which commands help: the only table of these texts.

Hints are in last errors, events and timelines; ``ferroscope explain`` shows all. NODE and MAC are placeholders.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope_client.core.reasons import Reason


class Explanation(msgspec.Struct, frozen=True):
    """``meaning``: what has happened; ``hint``: what to do; ``commands``: what to run."""

    meaning: str
    hint: str
    commands: tuple[str, ...]


_TIMELINE: Final = "ferroscope node timeline NODE"
INSPECT: Final = "ferroscope inspect NODE --watch"
_REAPPLY: Final = "ferroscope inspect reapply NODE"
_VALIDATE: Final = "ferroscope node validate NODE"
_STATUS: Final = "ferroscope status"
_SHOW: Final = "ferroscope node show NODE"
_LOG: Final = "ferroscope node log NODE"
_INBOX: Final = "ferroscope node inbox"
_DOCTOR: Final = "ferroscope doctor"
TRY: Final = "ferroscope bmc try NODE"
_PORTS: Final = "ferroscope node ports NODE"
_REBOOT: Final = "ferroscope node power NODE reboot"
_ENABLE_POWER_OFF: Final = "ferroscope node set NODE --enable-power-off"

EXPLANATIONS: Final[dict[Reason, Explanation]] = {
    Reason.RAMDISK_ERROR: Explanation(
        "The ramdisk called back and reported that it could not collect the inventory.",
        "Manual step: fix what the message names on the machine or in its ramdisk, then inspect it again.",
        (_TIMELINE, _LOG, INSPECT),
    ),
    Reason.INVALID_INVENTORY: Explanation(
        "The callback was accepted, but the inventory lacks data that a required hook needs.",
        "Manual step: fix what the message names on the machine or in its ramdisk, or put ? before the hook in "
        "[inspector] hooks.",
        (_TIMELINE, "ferroscope node inventory NODE -o json", INSPECT),
    ),
    Reason.HOOK_FAILED: Explanation(
        "A hook failed on the machine's data. This inspection changed nothing on the node.",
        "Manual step: correct the data or the hook's options, then reapply.",
        (_TIMELINE, "ferroscope node inventory NODE -o json", _REAPPLY),
    ),
    Reason.RULE_FAILED: Explanation(
        "An inspection rule could not be applied to the machine's data.",
        "Manual step: correct the rule, then reapply. To see why it failed, run: ferroscope rule explain RULE --node "
        "NODE.",
        ("ferroscope rule explain RULE --node NODE", _REAPPLY),
    ),
    Reason.REFUSED_BY_RULE: Explanation(
        "An inspection rule with the action fail matched this machine.",
        "Manual step: correct the machine, or the rule that rejects it, then reapply.",
        ("ferroscope rule list", "ferroscope rule explain RULE --node NODE", _REAPPLY),
    ),
    Reason.NAME_TAKEN: Explanation(
        "An inspection rule sets a node name that another node already has.",
        "Manual step: rename the other node or correct the rule, then reapply.",
        ("ferroscope node show NAME", "ferroscope rule list", _REAPPLY),
    ),
    Reason.TIMEOUT: Explanation(
        "The machine was powered on, but its ramdisk did not call back within [inspector] timeout.",
        "Manual step: on its console, check that it boots the ramdisk and reaches the callback URL. Unknown MACs are "
        "in the inbox.",
        (_TIMELINE, _INBOX, _VALIDATE, _STATUS, INSPECT),
    ),
    Reason.RAMDISK_SILENT: Explanation(
        "The machine loaded its boot script, but its ramdisk did not call back within [inspector] timeout.",
        "Manual step: on the console, check for low memory and the route to the callback URL. DHCP and the boot host "
        "work.",
        (_TIMELINE, _STATUS, INSPECT),
    ),
    Reason.START_TIMEOUT: Explanation(
        "The machine could not be powered on within [inspector] timeout: its BMC was too slow or kept failing.",
        "Manual step: see the timeline and try the BMC. If it stays slow, restart the BMC.",
        (_TIMELINE, TRY, INSPECT),
    ),
    Reason.PROCESSING_TIMEOUT: Explanation(
        "The callback was received, but hooks and rules did not finish within [inspector] timeout.",
        "Manual step: find the slow hook or rule in the worker's log, then reapply.",
        (_STATUS, _TIMELINE, _REAPPLY),
    ),
    Reason.ABORTED: Explanation(
        "An operator aborted the inspection.",
        "Start the inspection again when ready.",
        (INSPECT,),
    ),
    Reason.RESTARTED: Explanation(
        "A newer inspection was started while this one was waiting for its machine.",
        "A newer inspection replaced this one. No action is needed.",
        (_TIMELINE,),
    ),
    Reason.IMPORTED: Explanation(
        "The node was imported from ironic-inspector, where its last inspection had failed.",
        "The inspection failed before the import; the message is from ironic-inspector. Inspect it again.",
        (INSPECT, _SHOW),
    ),
    Reason.POWER_FAILED: Explanation(
        "The BMC did not report the required power state within [drivers] power_timeout.",
        "Manual step: check the BMC and its log. The machine did not reach the power state, or the BMC cannot report "
        "it.",
        (_TIMELINE, _VALIDATE, INSPECT),
    ),
    Reason.NOT_RESTARTED: Explanation(
        "The BMC accepted a soft reboot, or a reset (disable_power_off), but the machine did not restart.",
        "After a soft reboot, try a hard reset. Otherwise restart the BMC or clear disable_power_off.",
        (_REBOOT, _ENABLE_POWER_OFF, INSPECT, _TIMELINE),
    ),
    Reason.POWER_OFF_DISABLED: Explanation(
        "The request would have powered off a node that must stay on.",
        "The node has disable_power_off set. Reboot it, or clear the field to power it off.",
        (_REBOOT, _ENABLE_POWER_OFF),
    ),
    Reason.BMC_UNREACHABLE: Explanation(
        "The BMC did not answer in time, or closed the connection without answering.",
        "Manual step: check the BMC's power, cable and address, and the network and firewalls between it and the "
        "worker.",
        (_SHOW, _STATUS, TRY, INSPECT),
    ),
    Reason.BMC_NAME_UNKNOWN: Explanation(
        "The worker cannot resolve the BMC's host name.",
        "Correct the host name in driver_info or the workers' name servers, or use an IP address.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _DOCTOR, TRY, INSPECT),
    ),
    Reason.BMC_CONNECTION_REFUSED: Explanation(
        "A host answers at the BMC's address, but nothing listens on the port, or a firewall rejects the connection.",
        "Correct the address and port, or enable the service on the BMC. If the BMC is restarting, wait.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", TRY, INSPECT),
    ),
    Reason.BMC_NOT_READY: Explanation(
        "The BMC reported that it was busy, restarting or temporarily unavailable, and did not recover.",
        "Wait until the BMC is ready and try again. If it stays busy, restart the BMC.",
        (TRY, INSPECT, _TIMELINE),
    ),
    Reason.BMC_REFUSED: Explanation(
        "The BMC rejected the command with an error.",
        "Manual step: fix what the BMC's error in the message names, and see the BMC's own log. If neither helps, "
        "restart the BMC.",
        (_TIMELINE, TRY, INSPECT),
    ),
    Reason.BMC_CREDENTIALS: Explanation(
        "The BMC rejected the user name or the password.",
        "Correct the user name or password in driver_info before the BMC locks the account.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", TRY, INSPECT),
    ),
    Reason.BMC_PASSWORD_UNCLEAR: Explanation(
        "After a password change, the BMC accepted neither the stored password nor the new one.",
        "Both passwords are kept. Wait until the BMC unlocks the account, then resume the change.",
        ("ferroscope bmc set-password NODE --resume --wait", _TIMELINE),
    ),
    Reason.BMC_PRIVILEGES: Explanation(
        "The BMC accepted the account, but the account lacks the privilege for this.",
        "Manual step: give the account the operator or administrator role on the BMC. For IPMI, see also "
        "ipmi_priv_level.",
        (_VALIDATE, "ferroscope node set NODE -d ipmi_priv_level=OPERATOR", INSPECT),
    ),
    Reason.BMC_CERTIFICATE: Explanation(
        "The BMC's TLS certificate is not signed by a trusted CA.",
        "Put its CA file into [drivers] ca_directory; set redfish_verify_ca to it, or to false on an isolated network.",
        ("ferroscope node set NODE -d redfish_verify_ca=FILE", TRY, INSPECT),
    ),
    Reason.BMC_CERTIFICATE_EXPIRED: Explanation(
        "The BMC's TLS certificate has expired, or is not valid yet.",
        "Manual step: renew the certificate on the BMC, or correct the clock of the BMC or the worker.",
        (TRY, INSPECT),
    ),
    Reason.BMC_CERTIFICATE_HOST: Explanation(
        "The BMC's TLS certificate is for a different host than the one in redfish_address.",
        "Set redfish_address to the certificate's host, or issue a certificate for this host.",
        ("ferroscope node set NODE -d redfish_address=URL", TRY, INSPECT),
    ),
    Reason.BMC_CA_UNUSABLE: Explanation(
        "The CA file in redfish_verify_ca is not below [drivers] ca_directory, or the worker cannot read it.",
        "Put the file into [drivers] ca_directory on every worker, and set redfish_verify_ca to its name there.",
        ("ferroscope node set NODE -d redfish_verify_ca=FILE", TRY, INSPECT),
    ),
    Reason.BMC_NOT_REDFISH: Explanation(
        "The service at the BMC's address is not Redfish: http instead of https, or a web page.",
        "Check the scheme, port and host of redfish_address.",
        ("ferroscope node set NODE -d redfish_address=URL", TRY, INSPECT),
    ),
    Reason.BMC_SYSTEM_UNCLEAR: Explanation(
        "The BMC manages several systems, or none, and driver_info does not name the node's system.",
        "Set redfish_system_id in driver_info to this node's system; the message lists the systems.",
        ("ferroscope node set NODE -d redfish_system_id=PATH", TRY, INSPECT, _TIMELINE),
    ),
    Reason.BMC_OTHER_MACHINE: Explanation(
        "The BMC at this address now reports another machine's serial number and system UUID.",
        "Correct the BMC address. If the machine got a new mainboard, approve it and try again.",
        ("ferroscope node set NODE -d redfish_address=URL", "ferroscope node approve NODE", TRY, INSPECT),
    ),
    Reason.BMC_NOT_ALLOWED: Explanation(
        "The BMC address is outside the networks that [drivers] bmc_networks allows.",
        "Correct the address, or add its network to [drivers] bmc_networks on all hosts and restart their processes.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _DOCTOR, TRY, INSPECT),
    ),
    Reason.BMC_UNCONFIRMED: Explanation(
        "The machine reported its own BMC address, and no operator has approved it. No password is sent there.",
        "Approve the node, set its BMC address yourself, or list the networks of BMCs in [drivers] bmc_networks.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _SHOW, TRY, INSPECT),
    ),
    Reason.DRIVER_INFO_INVALID: Explanation(
        "The node's driver_info lacks a value, or has one that the driver cannot use.",
        "Manual step: correct driver_info; to list its keys, run: ferroscope driver properties DRIVER.",
        (_VALIDATE, "ferroscope driver properties DRIVER", "ferroscope node set NODE -d PROPERTY=VALUE"),
    ),
    Reason.ENCRYPTION_KEY_MISSING: Explanation(
        "A secret of the node is encrypted with a key that this host does not have.",
        "Manual step: add the key to [secrets] key_file on this host; to check, run: ferroscope doctor.",
        (_DOCTOR,),
    ),
    Reason.DECRYPTION_FAILED: Explanation(
        "A secret of the node cannot be decrypted with its key: it was copied from another node or field, or damaged.",
        "Set the secret in driver_info again.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _VALIDATE),
    ),
    Reason.REFERENCE_UNRESOLVED: Explanation(
        "A secret of the node refers to a secret source that lacks the secret or is not configured.",
        "Manual step: correct the reference in driver_info, or [secrets] sources on the workers.",
        (_VALIDATE, _DOCTOR),
    ),
    Reason.DRIVER_UNKNOWN: Explanation(
        "The node's driver is not enabled on the workers.",
        "Manual step: add the driver to [drivers] enabled, or set another driver.",
        ("ferroscope driver list", "ferroscope node set NODE --driver DRIVER"),
    ),
    Reason.DRIVER_INCOMPLETE: Explanation(
        "The driver is enabled, but a program or package that it needs is not installed on the worker.",
        "Manual step: install what the driver needs on the worker's host. To list it, run there: ferroscope doctor.",
        (_DOCTOR, "ferroscope driver list"),
    ),
    Reason.UNMANAGED_BOOT: Explanation(
        "The service cannot boot the machine into the ramdisk, which [inspector] require_managed_boot requires.",
        "Manual step: configure virtual media or boot_interface ipxe, or set require_managed_boot = false.",
        (_VALIDATE, "ferroscope driver properties DRIVER"),
    ),
    Reason.ATTEMPTS_EXHAUSTED: Explanation(
        "A request was attempted [worker] max_attempts times without success.",
        "Manual step: find in the timeline why each attempt failed or lost its worker (outages excluded), then start "
        "again.",
        (_TIMELINE, _STATUS, INSPECT),
    ),
    Reason.INTERRUPTED: Explanation(
        "The worker stopped or died during the request.",
        "Start the inspection again. With [worker] interrupted = rerun, the service repeats it.",
        (INSPECT, _TIMELINE, _STATUS),
    ),
    Reason.THROTTLED: Explanation(
        "The inspection waits for its turn to power the machine on. It is retried automatically.",
        "No action is needed: [worker] reboot_throttle limits power-ons, and this machine's turn comes.",
        (_TIMELINE, _STATUS),
    ),
    Reason.BMC_SILENT: Explanation(
        "Earlier requests to this BMC timed out, so the request is delayed. It is retried automatically.",
        "Manual step: check the BMC's address and network. It has not answered recently, so retries are less frequent.",
        (_STATUS, _TIMELINE, TRY),
    ),
    Reason.BMC_BUSY: Explanation(
        "Another request to this BMC is in progress, or the worker had no slot, lookup or processor for it in time.",
        "The BMC, its network or the worker was busy. Try again, or check which clients use its sessions.",
        (TRY, INSPECT, _STATUS, _TIMELINE),
    ),
    Reason.PXE_FILTER_CLOSED: Explanation(
        "The machine boots from the network, and no PXE filter has confirmed that it allows its MAC addresses.",
        "Manual step: run ferroscope status, then start or repair the pxe-filter: none lets the machine boot yet.",
        (_STATUS, _PORTS),
    ),
    Reason.ISO_UNREACHABLE: Explanation(
        "The worker could not reach the ISO image for the BMC. The BMC itself may be able to.",
        "Manual step: check [inspector] ramdisk_iso (or deploy_iso) and its web server, also from the BMC's network.",
        (_TIMELINE, _DOCTOR),
    ),
    Reason.ISO_INVALID: Explanation(
        "The boot URL has no bootable ISO image, or its server does not support HTTP range requests.",
        "Manual step: build the image, or correct ramdisk_iso or deploy_iso. Serve it to worker and BMC with HTTP "
        "range requests.",
        (_TIMELINE, "ferroscope node set NODE -d deploy_iso=URL", INSPECT),
    ),
    Reason.ISO_CERTIFICATE: Explanation(
        "The ISO image is served over https with a certificate that the worker does not trust.",
        "Manual step: serve the image over http, or give the BMC the CA: the BMC may reject the certificate as well.",
        (_TIMELINE,),
    ),
    Reason.ILLEGAL_EVENT: Explanation(
        "The operation is not possible in the node's current state.",
        "Manual step: choose what the node's state allows; the message lists it.",
        (_SHOW, _TIMELINE),
    ),
    Reason.STALE_REQUEST: Explanation(
        "A request arrived after its inspection had ended, and was dropped.",
        "No action is needed: the inspection has already ended.",
        (_TIMELINE,),
    ),
    Reason.CONFLICTING_CALLBACK: Explanation(
        "A second callback with different data arrived for the same inspection.",
        "Manual step: check for two machines with the same MAC. If the database was restored from a backup meanwhile, "
        "the machine belongs to a lost inspection: inspect it again.",
        (_TIMELINE, _PORTS, INSPECT),
    ),
    Reason.PORT_CONFLICT: Explanation(
        "The data has a MAC address that belongs to a port of another node.",
        "Manual step: remove the wrong port, then reapply. Another node has a port with this MAC.",
        ("ferroscope node show MAC", _PORTS, _REAPPLY),
    ),
    Reason.LOOKUP_UNKNOWN: Explanation(
        "A machine called back, and none of its addresses belongs to a node.",
        "Enroll the node, or add a port with one of these MACs.",
        ("ferroscope node set NODE --add-port 52:54:00:12:34:56", "ferroscope node show MAC"),
    ),
    Reason.LOOKUP_AMBIGUOUS: Explanation(
        "A machine called back, and its addresses belong to several nodes.",
        "Manual step: delete the duplicate node or the wrong ports, or ignore the shared MACs.",
        ("ferroscope node show MAC", _PORTS),
    ),
    Reason.LOOKUP_CONFLICT: Explanation(
        "A machine called back with the UUID or secret of one node and addresses of another.",
        "Manual step: correct the enrollment: UUID, secret, MACs and BMC address belong to different nodes.",
        ("ferroscope node show MAC", _PORTS),
    ),
    Reason.LOOKUP_NOT_WAITING: Explanation(
        "A known machine called back, but no inspection of it is in progress.",
        "Start an inspection first.",
        (INSPECT, _TIMELINE),
    ),
    Reason.LOOKUP_BMC_ALONE: Explanation(
        "A machine called back with the BMC address of a node, but none of its MAC addresses.",
        "Manual step: correct or remove the node's ports. The BMC address matches, but no MAC does.",
        (_SHOW, _PORTS),
    ),
    Reason.CALLBACK_INVALID: Explanation(
        "A machine sent a callback that is not valid JSON, has no inventory, or is too large.",
        "Manual step: check the machine's ramdisk and console.",
        (_TIMELINE, _LOG),
    ),
    Reason.CALLBACK_UNPROVEN: Explanation(
        "A callback came without the secret of the inspection, or with a wrong one.",
        "Manual step: find out which machine called: it did not prove that it was booted. See: ferroscope docs "
        "trust-in-a-ramdisk.",
        (_TIMELINE, INSPECT),
    ),
    Reason.CALLBACK_REFUSED: Explanation(
        "The machine's callback was rejected, and the inspection then timed out.",
        "Manual step: fix what the message names (the ramdisk, the node's MACs or the inbox), then inspect the "
        "machine again.",
        (_TIMELINE, "ferroscope node ports NODE", _INBOX, INSPECT),
    ),
    Reason.DATA_CONTRADICTS: Explanation(
        "The callback's serial number, system UUID or MAC addresses differ from the last inspection.",
        "Manual step: approve a new mainboard, or reject another machine: ferroscope node inbox.",
        (_INBOX, "ferroscope node approve NODE", "ferroscope node reject NODE"),
    ),
    Reason.DATA_REJECTED: Explanation(
        "An operator rejected data that contradicted the last inspection.",
        "Manual step: check which machine sent the data, then inspect the node again.",
        (_TIMELINE, INSPECT),
    ),
    Reason.DISCOVERY_LIMITED: Explanation(
        "An unknown machine was not enrolled because a limit of automatic discovery was reached.",
        "Manual step: clear the inbox, or raise the limits.",
        (_INBOX, "ferroscope node approve NODE"),
    ),
    Reason.DISCOVERY_REJECTED: Explanation(
        "An unknown machine was not enrolled because an operator had rejected it.",
        "Manual step: decide about the rejected machine. To allow it again, run: ferroscope node readmit MAC.",
        ("ferroscope node rejected", "ferroscope node readmit MAC"),
    ),
    Reason.NOT_TRACKED: Explanation(
        "The node is no longer in the attached Ironic or in the inventory that it came from.",
        "Manual step: enroll the node in the registry again, or set instance_uuid here.",
        ("ferroscope node list --orphaned",),
    ),
    Reason.REGISTRY_UNAVAILABLE: Explanation(
        "The attached Ironic could not be reached. The request is retried automatically.",
        "Manual step: start the attached Ironic, or repair the network to it. Inspections continue when it answers.",
        (_STATUS, _TIMELINE),
    ),
    Reason.REGISTRY_REFUSED: Explanation(
        "The attached Ironic answered a request for this node with an error.",
        "Manual step: see Ironic's message, and the roles of the user in [ironic].",
        (_TIMELINE, _SHOW),
    ),
    Reason.NODE_LOCKED: Explanation(
        "The attached Ironic has locked the node. The request is retried automatically.",
        "Manual step: wait until Ironic releases the node. If its lock is stale, restart the conductor that holds it.",
        (_TIMELINE, _SHOW),
    ),
    Reason.DATA_MISSING: Explanation(
        "The operation needs inspection data, but none is stored.",
        "Inspect the node first.",
        (INSPECT, _TIMELINE),
    ),
    Reason.DATA_DAMAGED: Explanation(
        "The object in the object store is damaged or was replaced.",
        "Manual step: restore the object, or inspect the node again.",
        (INSPECT, _TIMELINE),
    ),
    Reason.DATA_TOO_LARGE: Explanation(
        "The data has more values than hooks and rules can process.",
        "Manual step: check the ramdisk's collectors, and which machines can call back.",
        (_TIMELINE, _LOG),
    ),
    Reason.HARDWARE_DEVIATES: Explanation(
        "The hardware differs from what 'ferroscope expect' defines.",
        "Manual step: correct the machine or the expectation; to list both, run: ferroscope expect report.",
        ("ferroscope expect report", INSPECT),
    ),
    Reason.STORE_UNAVAILABLE: Explanation(
        "The database could not be reached. The request is retried automatically.",
        "Manual step: start or repair the database. The request continues once it is back.",
        (_STATUS, _DOCTOR),
    ),
    Reason.INTERNAL: Explanation(
        "An unexpected error occurred; the log of the worker has its traceback.",
        "Manual step: report this bug in Ferroscope with the timeline and the log.",
        (_TIMELINE,),
    ),
}

HINTS: Final = {reason: explanation.hint for reason, explanation in EXPLANATIONS.items()}


def hint(reason: Reason) -> str:
    """Return the hint for ``reason``."""
    return HINTS[reason]
