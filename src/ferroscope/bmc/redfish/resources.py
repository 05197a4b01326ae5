"""sushy's resources, of which one odd value costs that value only.

sushy reads every property that it knows, and refuses a resource with one of another type than the standard's, also if
nobody wants to know it: a memory size with its unit, an empty date, ``Id`` or ``Name`` missing. Here such a property is
unknown, like one that is missing; an action without an address is none.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import sushy
from sushy import main as sushy_main
from sushy.exceptions import BadRequestError, HTTPError, ResourceNotFoundError, SushyError
from sushy.resources import base
from sushy.resources.manager import virtual_media
from sushy.resources.system import system

from ferroscope.bmc.redfish.connector import is_partial
from ferroscope.bmc.redfish.failures import message_of
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.hardware.parts import mapping

# What fields and their adapters raise for a value of another type.
_STUMBLES: Final = (SushyError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


_PROTOCOLS: Final = {"http": "HTTP", "https": "HTTPS", "nfs": "NFS", "cifs": "CIFS", "smb": "CIFS"}
_FUTURE: Final = re.compile(r"FutureState ?URI ?\((/redfish/[^\s()]{1,200})\)")


class _Lenient:
    """What comes before sushy's class in the list of bases."""

    def _parse_attributes(self, json_doc: Document) -> Document:
        for name, field in base._collect_fields(self):
            setattr(self, name, _whole(_value(field, mapping(json_doc), self)))
        return {}  # sushy only logs it


class Root(_Lenient, sushy_main.Sushy):  # type: ignore[misc]
    """The service root."""

    def _parse_attributes(self, json_doc: Document) -> Document:
        super()._parse_attributes(json_doc)
        version = mapping(json_doc).get("RedfishVersion")
        self.redfish_version = version if isinstance(version, str) else None
        return {}


class System(_Lenient, system.System):  # type: ignore[misc]
    """A computer system."""

    boot: Any
    manufacturer: Any
    _settings: Any
    # Where the BMC says that settings are written: AMI's does not link it from the system (DMTF/Redfish-Tacklebox#144).
    _future = ""

    def _parse_attributes(self, json_doc: Document) -> Document:
        super()._parse_attributes(json_doc)
        # sushy looks into these without asking whether they are there.
        self.manufacturer = self.manufacturer if isinstance(self.manufacturer, str) else None
        if self.boot is not None and self.boot.allowed_values is None:
            self.boot.allowed_values = []
        return {}

    def get_allowed_system_boot_source_values(self) -> set[Any]:
        """Return the boot devices that the BMC lists, in any case; all if it lists none that is known."""
        listed = getattr(self.boot, "allowed_values", None)
        words = {str(value).lower() for value in listed} if isinstance(listed, list) else set()
        return {source for source in sushy.BootSource if source.value.lower() in words} or set(sushy.BootSource)

    def get_allowed_reset_system_values(self) -> set[Any]:
        """Return the resets that the BMC lists; all if it lists none in a form that anybody knows."""
        self._get_reset_action_element()
        allowed: set[Any] = set()
        with contextlib.suppress(AttributeError, LookupError, TypeError):
            allowed = super().get_allowed_reset_system_values()
        return allowed or set(sushy.ResetType)

    @property
    def settings(self) -> str:
        """The path of the resource of settings, which count from the next boot; "" if there is none."""
        link = mapping(mapping(mapping(self.json).get("@Redfish.Settings")).get("SettingsObject")).get("@odata.id")
        return link if isinstance(link, str) else self._future

    def set_system_boot_options(self, **options: Any) -> None:
        """Write boot options, to the system itself if its resource of settings is none."""
        try:
            super().set_system_boot_options(**options)
        except (AttributeError, TypeError, ResourceNotFoundError):
            if self._settings is None:
                raise
            self._settings = None
            super().set_system_boot_options(**options)
        except BadRequestError as exc:
            matched = _FUTURE.search(str(exc.body))
            if matched is None or self.settings:
                raise
            self._future = matched[1]
            self._settings = SimpleNamespace(resource_uri=self._future)
            super().set_system_boot_options(**options)


class VirtualMedia(_Lenient, virtual_media.VirtualMedia):  # type: ignore[misc]
    """A virtual drive; one that does not say which methods it allows may be written."""

    def insert(self, url: str, media_type: str) -> None:
        """Insert an image, with the optional parameters that the service demands, and no others."""
        target, is_write = self._get_insert_media_uri()
        if is_write:
            self.insert_media(url)
            return
        body: Document = {"Image": url}
        offered = {"Inserted": True, "WriteProtected": True, "TransferMethod": "Stream", "MediaType": media_type}
        if protocol := _PROTOCOLS.get(urlsplit(url).scheme):
            offered["TransferProtocolType"] = protocol
        while True:
            try:
                self._conn.post(target, data=body)
            except HTTPError as exc:
                answer = message_of(exc)
                demanded = {name: value for name, value in offered.items() if name not in body and name in answer}
                if not demanded and "UserName" not in body and self.is_credentials_required(exc):
                    demanded = {"UserName": "none", "Password": "none"}
                if not demanded:
                    raise
                body |= demanded
            else:
                return

    def _allow_patch(self) -> bool:
        return not self._get_headers().get("Allow") or bool(super()._allow_patch())


def system_of(root: Root, path: str) -> System:
    """Return the system at ``path``; sushy's exceptions, ``BmcError`` if it lacks what commands need, for now."""
    resource = System(
        root._conn, path, redfish_version=root.redfish_version, registries=root.lazy_registries, root=root
    )
    if is_partial(mapping(resource.json)) and not resource.json.get("Actions"):
        message = f"the BMC answers with part of the system {path} and an error"
        raise BmcError(message, transient=True, reason=Reason.BMC_NOT_READY, pause=0.0)
    return resource


def spell_values(values: Iterable[Any]) -> str:
    """Return sushy's constants in Redfish's spelling, for messages."""
    return ", ".join(sorted(str(constant.value) for constant in values))


def _value(field: Any, body: Document, resource: Any) -> Any:
    """Return what sushy makes of a property; of one with parts, what it makes of each."""
    with contextlib.suppress(*_STUMBLES):
        return field._load(body, resource)
    if not isinstance(field, base.CompositeField):
        return field._default
    for name in field._path:
        body = mapping(body.get(name))
    composite = copy.copy(field)
    for name, part in field._subfields.items():
        setattr(composite, name, _value(part, body, resource))
    return composite


def _whole(value: Any) -> Any:
    """Return a value, None if it has parts and lacks one that it must have."""
    if not isinstance(value, base.CompositeField):
        return value
    for name, part in value._subfields.items():
        part_value = _whole(getattr(value, name))
        if part_value is None and part._required:
            return None
        setattr(value, name, part_value)
    return value
