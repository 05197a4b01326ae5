"""The node: the only declaration of its fields.

The columns, the representation and its schema, what callers and rules may set, and the filters and sort keys of
lists are all derived from the annotations below. A stored field is a line in ``Node`` and a migration; one that is
kept in ``attributes`` is a line in ``NodeAttributes``. Fields of the Bare Metal API that are not stored are in
``api.baremetal.node_fields``. Source of the microversions: the Bare Metal API reference; 84 is that of the
specification that merged the inspector into the Bare Metal service, and of Ferroscope's own fields.
"""

from __future__ import annotations

from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from ferroscope_client.core.states import Provision, State

Document = dict[str, Any]


class TextForm(StrEnum):
    """The form of a text: free, or a rule of ``values`` or ``labels``; other spellings are normalized."""

    TEXT = "text"
    NAME = "name"
    GROUP = "group"
    UUID = "uuid"
    LABELS = "labels"


class NodeField(msgspec.Struct, frozen=True, kw_only=True):
    """What a field's type and default do not express.

    ``since``: the microversion from which it is shown and may be set; None: never shown. ``shown_as``: its name in the
    API; ``masked``: secrets in it are masked; ``encrypted``: and encrypted in the database. ``settable``: callers may
    set it, and ``rules`` too. ``filters``: the microversion from which lists can be filtered by it. ``length``: the
    maximum of a text. ``merged``: a task's change to its copy is applied to the node; otherwise only ``transition`` and
    the store change it. ``absent``: the row may have been written by a release without this field. The rest is taken
    from the annotated line; ``stored``: in its own column, otherwise in ``attributes``.
    """

    since: int | None = None
    shown_as: str | None = None
    masked: bool = False
    encrypted: bool = False
    settable: bool = False
    rules: bool = True
    filters: int | None = None
    form: TextForm = TextForm.TEXT
    length: int | None = None
    unique: bool = False
    merged: bool = True
    absent: bool = False
    name: str = ""
    type: Any = None
    default: Any = None
    required: bool = False
    stored: bool = True

    @property
    def plain(self) -> Any:
        """The type of a value other than None."""
        return (
            next((member_type for member_type in get_args(self.type) if member_type is not NoneType), None)
            if self._optional
            else self.type
        )

    @property
    def nullable(self) -> bool:
        """Whether it may be None; a field in ``attributes`` is then not stored at all."""
        return self._optional or not self.stored

    @property
    def sorts(self) -> bool:
        """Whether lists can be sorted by it: it is shown, and is neither a document nor a list."""
        return self.since is not None and isinstance(self.plain, type)

    @property
    def _optional(self) -> bool:
        return NoneType in get_args(self.type)


class Node(msgspec.Struct, kw_only=True):
    """A bare-metal machine.

    ``state`` is the state of its inspection, ``provision_state`` its equivalent in the Bare Metal API; only
    ``transition`` writes them. ``inspection`` is the UUID of the newest inspection. ``internal`` belongs to the drivers
    and the service, ``attributes`` holds the settable fields that nothing here interprets. ``version`` increases with
    each save, to detect lost updates. ``search_digest`` is the digest of the search index rows, ``hardware`` their
    summary (see ``hardware.search_index``). ``sources``: see ``update_sources``. ``inbox``: it was discovered and
    awaits approval. ``orphaned_at``: since when the attached registry has not listed it.
    """

    uuid: Annotated[str, NodeField(since=1, length=36, merged=False)]
    driver: Annotated[str, NodeField(since=1, length=255, settable=True, filters=16)]
    name: Annotated[str | None, NodeField(since=5, form=TextForm.NAME, length=255, unique=True, settable=True)] = None
    driver_info: Annotated[Document, NodeField(since=1, masked=True, encrypted=True, settable=True)] = {}
    properties: Annotated[Document, NodeField(since=1, settable=True)] = {}
    extra: Annotated[Document, NodeField(since=1, settable=True)] = {}
    labels: Annotated[Document, NodeField(since=84, form=TextForm.LABELS, settable=True, absent=True)] = {}
    instance_info: Annotated[Document, NodeField(since=1, masked=True, encrypted=True, settable=True)] = {}
    instance_uuid: Annotated[
        str | None,
        NodeField(since=1, form=TextForm.UUID, length=36, unique=True, settable=True, rules=False, filters=1),
    ] = None
    maintenance: Annotated[bool, NodeField(since=1, settable=True, filters=1)] = False
    resource_class: Annotated[str | None, NodeField(since=21, length=80, settable=True, filters=21)] = None
    conductor_group: Annotated[str, NodeField(since=46, form=TextForm.GROUP, length=255, settable=True, filters=46)] = (
        ""
    )
    owner: Annotated[str | None, NodeField(since=50, length=255, settable=True, filters=50)] = None
    chassis_uuid: Annotated[
        str | None, NodeField(since=1, form=TextForm.UUID, length=36, settable=True, rules=False, filters=1)
    ] = None

    state: Annotated[State, NodeField(length=16, merged=False)] = State.NONE
    provision_state: Annotated[Provision, NodeField(since=1, length=16, filters=9, merged=False)] = Provision.ENROLL
    target_provision_state: Annotated[str | None, NodeField(since=1, length=16, merged=False)] = None
    provision_updated_at: Annotated[float | None, NodeField(since=1, merged=False)] = None
    power_state: Annotated[str | None, NodeField(since=1, length=16)] = None
    target_power_state: Annotated[str | None, NodeField(since=1, length=16)] = None
    inspection: Annotated[str | None, NodeField(length=36, merged=False)] = None
    inspection_started_at: Annotated[float | None, NodeField(since=6, merged=False)] = None
    inspection_finished_at: Annotated[float | None, NodeField(since=6, merged=False)] = None
    last_error: Annotated[str | None, NodeField(since=1)] = None
    auto_discovered: Annotated[bool, NodeField(since=84, filters=84)] = False
    inbox: Annotated[bool, NodeField(since=84, filters=84, absent=True)] = False
    orphaned_at: Annotated[float | None, NodeField(since=84)] = None
    hardware: Annotated[Document, NodeField(since=84, absent=True)] = {}
    search_digest: Annotated[str | None, NodeField(length=64)] = None
    sources: Annotated[Document, NodeField(absent=True)] = {}
    internal: Annotated[Document, NodeField(since=3, shown_as="driver_internal_info", masked=True)] = {}
    attributes: Annotated[Document, NodeField()] = {}
    created_at: Annotated[float, NodeField(since=1, merged=False)] = 0.0
    updated_at: Annotated[float | None, NodeField(since=1, merged=False)] = None
    version: Annotated[int, NodeField(merged=False)] = 0

    # Hooks that were written for Ironic call these. Source: its inspection hooks.

    def save(self) -> None:
        """Do nothing: the worker commits the changes of all hooks together, or none of them."""

    def set_property(self, key: str, value: Any) -> None:
        """Set one of ``properties``."""
        self.properties[key] = value


def _interface(since: int) -> NodeField:
    return NodeField(since=since, length=255, settable=True)


class NodeAttributes(msgspec.Struct, kw_only=True):
    """The possible keys of a node's ``attributes``, with the values that are shown if they are missing. Never
    instantiated."""

    automated_clean: Annotated[bool | None, NodeField(since=47, settable=True)] = None
    bios_interface: Annotated[str | None, _interface(40)] = None
    boot_interface: Annotated[str | None, _interface(31)] = None
    console_interface: Annotated[str | None, _interface(31)] = None
    deploy_interface: Annotated[str | None, _interface(31)] = None
    description: Annotated[str | None, NodeField(since=51, length=4096, settable=True)] = None
    deviations: Annotated[list[Document], NodeField(since=84)] = []
    disable_power_off: Annotated[bool, NodeField(since=95, settable=True)] = False
    firmware_interface: Annotated[str | None, _interface(86)] = None
    inspect_interface: Annotated[str | None, _interface(31)] = "agent"
    instance_name: Annotated[str | None, NodeField(since=104, length=255, settable=True, rules=False, filters=104)] = (
        None
    )
    lessee: Annotated[str | None, NodeField(since=65, length=255, settable=True, filters=65)] = None
    maintenance_reason: Annotated[str | None, NodeField(since=1)] = None
    maintenance_until: Annotated[str | None, NodeField(since=84)] = None
    management_interface: Annotated[str | None, _interface(31)] = None
    network_data: Annotated[Document, NodeField(since=66, settable=True)] = {}
    network_interface: Annotated[str | None, _interface(20)] = None
    notes: Annotated[list[Document], NodeField(since=84)] = []
    parent_node: Annotated[str | None, NodeField(since=83, length=255, settable=True, rules=False, filters=83)] = None
    power_interface: Annotated[str | None, _interface(31)] = None
    protected: Annotated[bool, NodeField(since=48, settable=True)] = False
    protected_reason: Annotated[str | None, NodeField(since=48, length=255, settable=True)] = None
    raid_interface: Annotated[str | None, _interface(31)] = None
    rescue_interface: Annotated[str | None, _interface(38)] = None
    retired: Annotated[bool, NodeField(since=61, settable=True, filters=61)] = False
    retired_reason: Annotated[str | None, NodeField(since=61, length=255, settable=True)] = None
    shard: Annotated[str | None, NodeField(since=82, length=255, settable=True)] = None
    storage_interface: Annotated[str | None, _interface(33)] = None
    traits: Annotated[list[str], NodeField(since=37)] = []
    vendor_interface: Annotated[str | None, _interface(31)] = None


def _declare_fields(struct: type[msgspec.Struct], *, stored: bool) -> tuple[NodeField, ...]:
    node_fields = []
    for field in msgspec.structs.fields(struct):
        hint, declared = get_args(field.type)
        made = field.default_factory is not msgspec.NODEFAULT
        default = field.default_factory() if made else None if field.required else field.default
        node_fields.append(
            msgspec.structs.replace(
                declared, name=field.name, type=hint, default=default, required=field.required, stored=stored
            )
        )
    return tuple(node_fields)


STORED: Final = _declare_fields(Node, stored=True)
ATTRIBUTES: Final = _declare_fields(NodeAttributes, stored=False)
NODE_FIELDS: Final = STORED + ATTRIBUTES
SETTABLE: Final = {field.name: field for field in NODE_FIELDS if field.settable}
DOCUMENTS: Final = tuple(field.name for field in STORED if get_origin(field.type) is dict)


# Where the values of a node come from.
