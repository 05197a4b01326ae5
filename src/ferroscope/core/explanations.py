"""The meaning of each reason code, what to do about it, and which commands help: the only table of these texts.

Hints are in last errors, events and timelines; ``ferroscope explain`` shows all. NODE and MAC are placeholders.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.core.reasons import Reason


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
        "The ramdisk called back, but reported that it could not collect the inventory.",
        "This needs a person: mend what the message names on the machine or in its ramdisk, then inspect it again.",
        (_TIMELINE, _LOG, INSPECT),
    ),
    Reason.INVALID_INVENTORY: Explanation(
        "The callback was accepted, but a hook that is not optional misses data in the inventory.",
        "This needs a person: correct what the message names on the machine or its ramdisk, or put ? before the hook "
        "in [inspector] hooks.",
        (_TIMELINE, "ferroscope node inventory NODE -o json", INSPECT),
    ),
    Reason.HOOK_FAILED: Explanation(
        "A hook raised an error on the data of the machine; nothing of this inspection was stored on the node.",
        "This needs a person: correct the data, or the options of the hook that rejected it, then reapply.",
        (_TIMELINE, "ferroscope node inventory NODE -o json", _REAPPLY),
    ),
    Reason.RULE_FAILED: Explanation(
        "An inspection rule could not be applied to the data of the machine.",
        "This needs a person: correct the rule, then reapply; to see why it failed, run: ferroscope rule explain RULE "
        "--node NODE.",
        ("ferroscope rule explain RULE --node NODE", _REAPPLY),
    ),
    Reason.REFUSED_BY_RULE: Explanation(
        "An inspection rule with the action fail matched this machine.",
        "This needs a person: correct the machine, or the rule that rejects it, then reapply.",
        ("ferroscope rule list", "ferroscope rule explain RULE --node NODE", _REAPPLY),
    ),
    Reason.NAME_TAKEN: Explanation(
        "An inspection rule sets the name of the node, and another node already has this name.",
        "This needs a person: rename the node that has the name, or correct the rule that sets it, then reapply.",
        ("ferroscope node show NAME", "ferroscope rule list", _REAPPLY),
    ),
    Reason.TIMEOUT: Explanation(
        "The machine was powered on, but its ramdisk did not call back within [inspector] timeout.",
        "This needs a person: see on its console whether it boots the ramdisk and reaches the callback URL; unknown "
        "MACs are in the inbox.",
        (_TIMELINE, _INBOX, _VALIDATE, _STATUS, INSPECT),
    ),
    Reason.RAMDISK_SILENT: Explanation(
        "The machine loaded its boot script, but its ramdisk did not call back within [inspector] timeout.",
        "This needs a person: check the memory, and the way to the callback URL, on the console; DHCP and the boot "
        "host work.",
        (_TIMELINE, _STATUS, INSPECT),
    ),
    Reason.START_TIMEOUT: Explanation(
        "The machine could not be powered on within [inspector] timeout: its BMC was too slow, or failed each time.",
        "This needs a person: see the timeline, try the BMC, and restart the BMC if it stays slow.",
        (_TIMELINE, TRY, INSPECT),
    ),
    Reason.PROCESSING_TIMEOUT: Explanation(
        "The callback was received, but hooks and rules did not finish within [inspector] timeout.",
        "This needs a person: find the hook or rule that did not finish in the worker's log, then reapply.",
        (_STATUS, _TIMELINE, _REAPPLY),
    ),
    Reason.ABORTED: Explanation(
        "An operator aborted the inspection.",
        "The inspection was aborted; start it again when ready.",
        (INSPECT,),
    ),
    Reason.RESTARTED: Explanation(
        "The inspection was waiting for its machine when a newer one was started.",
        "A newer inspection of the node has replaced this one; nothing to do.",
        (_TIMELINE,),
    ),
    Reason.IMPORTED: Explanation(
        "The node was imported from ironic-inspector, in which its last inspection had failed.",
        "It failed in ironic-inspector, before it was imported; the message is from there. Inspect it again.",
        (INSPECT, _SHOW),
    ),
    Reason.POWER_FAILED: Explanation(
        "The BMC did not report the power state that was needed or commanded within [drivers] power_timeout.",
        "This needs a person: check the BMC and its log; the power state did not become, or is not known to be, what "
        "it should be.",
        (_TIMELINE, _VALIDATE, INSPECT),
    ),
    Reason.NOT_RESTARTED: Explanation(
        "The BMC accepted a soft reboot, or a reset because of disable_power_off; the machine was not restarted.",
        "After a soft reboot, reboot it hard; else restart the BMC, or clear disable_power_off, and inspect again.",
        (_REBOOT, _ENABLE_POWER_OFF, INSPECT, _TIMELINE),
    ),
    Reason.POWER_OFF_DISABLED: Explanation(
        "The node must not be powered off, and the request would have done so.",
        "The node has disable_power_off set; reboot it, or clear the field to power it off.",
        (_REBOOT, _ENABLE_POWER_OFF),
    ),
    Reason.BMC_UNREACHABLE: Explanation(
        "The BMC did not answer in time, or closed the connection without an answer.",
        "This needs a person: check that the BMC has power and a cable, that its address is right, and the network "
        "and firewalls to it.",
        (_SHOW, _STATUS, TRY, INSPECT),
    ),
    Reason.BMC_NAME_UNKNOWN: Explanation(
        "The host name of the BMC does not resolve to an address on the worker.",
        "Correct the host name in driver_info, or the name servers of the workers; an IP address needs neither.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _DOCTOR, TRY, INSPECT),
    ),
    Reason.BMC_CONNECTION_REFUSED: Explanation(
        "A host has the address of the BMC, but nothing listens on the port, or a firewall rejects the connection.",
        "Correct the address and its port, or enable the service on the BMC; a BMC that restarts comes back by itself.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", TRY, INSPECT),
    ),
    Reason.BMC_NOT_READY: Explanation(
        "The BMC answered that it is busy, restarting or temporarily unavailable, and stayed so.",
        "Wait until the BMC is ready, and try again; if it stays busy, restart the BMC.",
        (TRY, INSPECT, _TIMELINE),
    ),
    Reason.BMC_REFUSED: Explanation(
        "The BMC answered with an error, and has not done what was asked.",
        "This needs a person: do what the BMC's answer in the message asks for; its own log says more. Restart the "
        "BMC if it says nothing.",
        (_TIMELINE, TRY, INSPECT),
    ),
    Reason.BMC_CREDENTIALS: Explanation(
        "The BMC rejected the user name or the password.",
        "The BMC rejected the credentials; correct driver_info before it locks the account.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", TRY, INSPECT),
    ),
    Reason.BMC_PASSWORD_UNCLEAR: Explanation(
        "The BMC accepted neither the stored password nor the new one, after the change of its password.",
        "Both passwords are kept; wait until the BMC unlocks the account, then resume the change.",
        ("ferroscope bmc set-password NODE --resume --wait", _TIMELINE),
    ),
    Reason.BMC_PRIVILEGES: Explanation(
        "The BMC knows the account, but the account may not do this.",
        "This needs a person: give the account the role of an operator or administrator on the BMC; for IPMI, see "
        "also ipmi_priv_level.",
        (_VALIDATE, "ferroscope node set NODE -d ipmi_priv_level=OPERATOR", INSPECT),
    ),
    Reason.BMC_CERTIFICATE: Explanation(
        "The TLS certificate of the BMC is not signed by a trusted CA.",
        "Put the BMC's CA into [drivers] ca_directory, and name it; or set false if nobody else can answer for BMCs.",
        ("ferroscope node set NODE -d redfish_verify_ca=FILE", TRY, INSPECT),
    ),
    Reason.BMC_CERTIFICATE_EXPIRED: Explanation(
        "The TLS certificate of the BMC has expired, or is not valid yet.",
        "This needs a person: renew the certificate on the BMC, or set the clock of the BMC or of the worker.",
        (TRY, INSPECT),
    ),
    Reason.BMC_CERTIFICATE_HOST: Explanation(
        "The TLS certificate of the BMC is for another host than the one in redfish_address.",
        "Set redfish_address to the host that the certificate is for, or renew the certificate for this one.",
        ("ferroscope node set NODE -d redfish_address=URL", TRY, INSPECT),
    ),
    Reason.BMC_CA_UNUSABLE: Explanation(
        "The CA file in redfish_verify_ca is not below [drivers] ca_directory, or the worker cannot read it.",
        "Put the file below [drivers] ca_directory on every worker, and set redfish_verify_ca to its name there.",
        ("ferroscope node set NODE -d redfish_verify_ca=FILE", TRY, INSPECT),
    ),
    Reason.BMC_NOT_REDFISH: Explanation(
        "What answers at the address of the BMC is no Redfish service: http instead of https, or a web page.",
        "There is no Redfish service at redfish_address; check its scheme, port and host.",
        ("ferroscope node set NODE -d redfish_address=URL", TRY, INSPECT),
    ),
    Reason.BMC_SYSTEM_UNCLEAR: Explanation(
        "The BMC manages several systems, or none, and driver_info does not say which of them the node is.",
        "Set redfish_system_id in driver_info to the system of this node; the error lists them.",
        ("ferroscope node set NODE -d redfish_system_id=PATH", TRY, INSPECT, _TIMELINE),
    ),
    Reason.BMC_OTHER_MACHINE: Explanation(
        "The BMC at this address is that of another machine than before, by its serial number and system UUID.",
        "Correct the BMC address; if the machine itself got a new mainboard, approve it, and try again.",
        ("ferroscope node set NODE -d redfish_address=URL", "ferroscope node approve NODE", TRY, INSPECT),
    ),
    Reason.BMC_NOT_ALLOWED: Explanation(
        "The BMC address is outside of the networks that [drivers] bmc_networks allows.",
        "Correct the address; or add its network to [drivers] bmc_networks on all hosts, and restart their processes.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _DOCTOR, TRY, INSPECT),
    ),
    Reason.BMC_UNCONFIRMED: Explanation(
        "The machine itself has reported its BMC address, and nobody has approved it: no password is sent there.",
        "Approve the node, set its BMC address yourself, or list the networks of BMCs in [drivers] bmc_networks.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _SHOW, TRY, INSPECT),
    ),
    Reason.DRIVER_INFO_INVALID: Explanation(
        "The driver_info of the node lacks a value, or has one that the driver cannot use.",
        "This needs a person: correct driver_info; to list its keys, run: ferroscope driver properties DRIVER.",
        (_VALIDATE, "ferroscope driver properties DRIVER", "ferroscope node set NODE -d PROPERTY=VALUE"),
    ),
    Reason.ENCRYPTION_KEY_MISSING: Explanation(
        "A secret of the node is encrypted with a key that this host does not have.",
        "This needs a person: add the key to [secrets] key_file on this host; to check, run: ferroscope doctor.",
        (_DOCTOR,),
    ),
    Reason.DECRYPTION_FAILED: Explanation(
        "A secret of the node cannot be decrypted with the key that it names: it was copied or damaged.",
        "The encrypted value is not for this node or field; set the secret in driver_info again.",
        ("ferroscope node set NODE -d PROPERTY=VALUE", _VALIDATE),
    ),
    Reason.REFERENCE_UNRESOLVED: Explanation(
        "A secret of the node is a reference to a secret source that has no such secret, or is not configured.",
        "This needs a person: correct the reference in driver_info, or [secrets] sources on the workers.",
        (_VALIDATE, _DOCTOR),
    ),
    Reason.DRIVER_UNKNOWN: Explanation(
        "The workers do not have the driver of the node.",
        "This needs a person: add the node's driver to [drivers] enabled on the workers, or set another driver.",
        ("ferroscope driver list", "ferroscope node set NODE --driver DRIVER"),
    ),
    Reason.DRIVER_INCOMPLETE: Explanation(
        "The driver is enabled, but a program or package that it needs is not installed on the worker.",
        "This needs a person: install what the driver needs on the worker's host; to list it, run there: ferroscope "
        "doctor.",
        (_DOCTOR, "ferroscope driver list"),
    ),
    Reason.UNMANAGED_BOOT: Explanation(
        "The service cannot make the machine boot the ramdisk, and [inspector] require_managed_boot demands that.",
        "This needs a person: set what virtual media or boot_interface ipxe need to boot the ramdisk, or set "
        "require_managed_boot = False.",
        (_VALIDATE, "ferroscope driver properties DRIVER"),
    ),
    Reason.ATTEMPTS_EXHAUSTED: Explanation(
        "A request was attempted [worker] max_attempts times without success.",
        "This needs a person: find in the timeline why each attempt failed or its worker died, then start again; "
        "outages are not counted.",
        (_TIMELINE, _STATUS, INSPECT),
    ),
    Reason.INTERRUPTED: Explanation(
        "A worker stopped or died while it was working on the request.",
        "The worker died during the task and [worker] interrupted = error; start the inspection again.",
        (INSPECT, _TIMELINE, _STATUS),
    ),
    Reason.THROTTLED: Explanation(
        "The inspection waits for its turn to power the machine on. It is retried automatically.",
        "Power-ons are limited by [worker] reboot_throttle; the machine is powered on soon.",
        (_TIMELINE, _STATUS),
    ),
    Reason.BMC_SILENT: Explanation(
        "Earlier requests to this BMC timed out, so the request is delayed. It is retried automatically.",
        "This needs a person: check the BMC's address and network; it has not answered recently, so it is retried "
        "less often.",
        (_STATUS, _TIMELINE, TRY),
    ),
    Reason.BMC_BUSY: Explanation(
        "Another request to this BMC is in progress, or the worker had no slot, lookup or processor for it in time.",
        "The BMC, its network or the worker was busy with other requests; try again, or see who uses its sessions.",
        (TRY, INSPECT, _STATUS, _TIMELINE),
    ),
    Reason.PXE_FILTER_CLOSED: Explanation(
        "The machine boots from the network, and no PXE filter has confirmed that it allows its MAC addresses.",
        "This needs a person: run ferroscope status, and start or mend the pxe-filter; none lets the machine boot yet.",
        (_STATUS, _PORTS),
    ),
    Reason.ISO_UNREACHABLE: Explanation(
        "The worker could not reach the ISO image that the BMC is to boot; the BMC may be able to.",
        "This needs a person: check [inspector] ramdisk_iso (or deploy_iso) and its web server, also from the BMC's "
        "network.",
        (_TIMELINE, _DOCTOR),
    ),
    Reason.ISO_INVALID: Explanation(
        "The URL from which the BMC is to boot has no bootable ISO image, or its server does not serve parts of it.",
        "This needs a person: build it, or correct ramdisk_iso or deploy_iso; worker and BMC must find the same "
        "image, served in parts.",
        (_TIMELINE, "ferroscope node set NODE -d deploy_iso=URL", INSPECT),
    ),
    Reason.ISO_CERTIFICATE: Explanation(
        "The ISO image is served over https with a certificate that the worker does not trust.",
        "This needs a person: serve the image over http, or give the BMC the CA, because it may reject the "
        "certificate, too.",
        (_TIMELINE,),
    ),
    Reason.ILLEGAL_EVENT: Explanation(
        "The operation is not possible in the present state of the node.",
        "This needs a person: choose what the node's state allows; the message lists it.",
        (_SHOW, _TIMELINE),
    ),
    Reason.STALE_REQUEST: Explanation(
        "A request arrived after the inspection to which it belongs had ended, and was dropped.",
        "The request belongs to an inspection that has already ended; nothing to do.",
        (_TIMELINE,),
    ),
    Reason.CONFLICTING_CALLBACK: Explanation(
        "After the callback of an inspection, another one with different data arrived.",
        "This needs a person: check for two machines with one MAC; one inspection got two different callbacks. If the "
        "database was restored from a backup meanwhile, the machine belongs to an inspection that is lost; inspect it "
        "again.",
        (_TIMELINE, _PORTS, INSPECT),
    ),
    Reason.PORT_CONFLICT: Explanation(
        "The data has a MAC address that belongs to a port of another node.",
        "This needs a person: remove the wrong port, then reapply; another node has a port with this MAC.",
        ("ferroscope node show MAC", _PORTS, _REAPPLY),
    ),
    Reason.LOOKUP_UNKNOWN: Explanation(
        "A machine called back, and none of its addresses belongs to a node.",
        "No node has any of these addresses; enroll the node or add a port with one of its MACs.",
        ("ferroscope node set NODE --add-port 52:54:00:12:34:56", "ferroscope node show MAC"),
    ),
    Reason.LOOKUP_AMBIGUOUS: Explanation(
        "A machine called back, and its addresses belong to several nodes.",
        "This needs a person: delete the second node of the machine or the wrong ports, or ignore shared MACs; "
        "several nodes match.",
        ("ferroscope node show MAC", _PORTS),
    ),
    Reason.LOOKUP_CONFLICT: Explanation(
        "A machine called back with the UUID or secret of one node and addresses of another.",
        "This needs a person: correct the enrollment of the nodes; UUID, secret, MACs and BMC address belong to "
        "different ones.",
        ("ferroscope node show MAC", _PORTS),
    ),
    Reason.LOOKUP_NOT_WAITING: Explanation(
        "A known machine called back, but no inspection of it is in progress.",
        "The node was not waiting for a callback; start an inspection first.",
        (INSPECT, _TIMELINE),
    ),
    Reason.LOOKUP_BMC_ALONE: Explanation(
        "A machine called back with the BMC address of a node, but none of its MAC addresses.",
        "This needs a person: correct the node's ports, or remove them; the BMC address matches, but no MAC does.",
        (_SHOW, _PORTS),
    ),
    Reason.CALLBACK_INVALID: Explanation(
        "A machine sent a callback that is not valid JSON, has no inventory, or is too large.",
        "This needs a person: check the machine's ramdisk and console; its callback was not a valid inventory.",
        (_TIMELINE, _LOG),
    ),
    Reason.CALLBACK_UNPROVEN: Explanation(
        "A callback came without the secret of the inspection, or with a wrong one.",
        "This needs a person: find out which machine called; it did not prove to be the one that was booted. See the "
        "trust in a ramdisk.",
        (_TIMELINE, INSPECT),
    ),
    Reason.CALLBACK_REFUSED: Explanation(
        "A machine called back, but its callback was not accepted, and the inspection then timed out.",
        "This needs a person: correct what the message names: the ramdisk, the node's MACs, or the inbox; then "
        "inspect the machine again.",
        (_TIMELINE, "ferroscope node ports NODE", _INBOX, INSPECT),
    ),
    Reason.DATA_CONTRADICTS: Explanation(
        "The callback has another serial number, system UUID or other MAC addresses than the last inspection.",
        "This needs a person: approve a new mainboard, or reject another machine: ferroscope node inbox.",
        (_INBOX, "ferroscope node approve NODE", "ferroscope node reject NODE"),
    ),
    Reason.DATA_REJECTED: Explanation(
        "An operator rejected data that contradicted the last inspection.",
        "This needs a person: check which machine sent the data that an operator rejected, then inspect the node "
        "again.",
        (_TIMELINE, INSPECT),
    ),
    Reason.DISCOVERY_LIMITED: Explanation(
        "An unknown machine was not enrolled, because a limit of automatic discovery has been reached.",
        "This needs a person: clear the inbox, or raise the limits; too many unknown machines called back.",
        (_INBOX, "ferroscope node approve NODE"),
    ),
    Reason.DISCOVERY_REJECTED: Explanation(
        "An unknown machine was not enrolled, because an operator has rejected it before.",
        "This needs a person: decide about this machine, which was rejected; to allow it again, run: ferroscope node "
        "readmit MAC.",
        ("ferroscope node rejected", "ferroscope node readmit MAC"),
    ),
    Reason.NOT_TRACKED: Explanation(
        "The node is no longer in the attached Ironic or in the inventory that it came from.",
        "This needs a person: enroll it again in the registry, which does not list it, or set instance_uuid here.",
        ("ferroscope node list --orphaned",),
    ),
    Reason.REGISTRY_UNAVAILABLE: Explanation(
        "The attached Ironic could not be reached. The request is retried automatically.",
        "This needs a person: start the attached Ironic, or mend the network to it; inspections continue when it "
        "answers.",
        (_STATUS, _TIMELINE),
    ),
    Reason.REGISTRY_REFUSED: Explanation(
        "The attached Ironic answered a request for this node with an error.",
        "This needs a person: see the message of the attached Ironic, which rejected the request, and the roles of "
        "[ironic].",
        (_TIMELINE, _SHOW),
    ),
    Reason.NODE_LOCKED: Explanation(
        "The attached Ironic has locked the node. The request is retried automatically.",
        "This needs a person: if the lock is stale, restart the conductor that holds it; else Ironic is working on "
        "the node.",
        (_TIMELINE, _SHOW),
    ),
    Reason.DATA_MISSING: Explanation(
        "The operation needs the data of an inspection, but none is stored.",
        "There is no stored inspection data; inspect the node first.",
        (INSPECT, _TIMELINE),
    ),
    Reason.DATA_DAMAGED: Explanation(
        "The object in the object store is not what was stored there.",
        "This needs a person: restore the object in the object store, which is damaged, or inspect the node again.",
        (INSPECT, _TIMELINE),
    ),
    Reason.DATA_TOO_LARGE: Explanation(
        "The data has more values than hooks and rules can process.",
        "This needs a person: check the ramdisk's collectors, and who can call back; the inspection data is too large.",
        (_TIMELINE, _LOG),
    ),
    Reason.HARDWARE_DEVIATES: Explanation(
        "The hardware is not what ferroscope expect says it should be.",
        "This needs a person: correct the machine or the expectation; to list both, run: ferroscope expect report.",
        ("ferroscope expect report", INSPECT),
    ),
    Reason.STORE_UNAVAILABLE: Explanation(
        "The database could not be reached. The request is retried automatically.",
        "This needs a person: start or mend the database; the request is carried out once it is back. To see why, "
        "run: ferroscope doctor.",
        (_STATUS, _DOCTOR),
    ),
    Reason.INTERNAL: Explanation(
        "An unexpected error occurred; the log of the worker has its traceback.",
        "This needs a person: report this bug in Ferroscope with the timeline and the log.",
        (_TIMELINE,),
    ),
}

HINTS: Final = {reason: explanation.hint for reason, explanation in EXPLANATIONS.items()}


def hint(reason: Reason) -> str:
    """Return the hint for ``reason``."""
    return HINTS[reason]
