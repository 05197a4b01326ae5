"""The table of all routes, and the WSGI application made from it.

A row: method and path, handler, policy, status, type of the response; the types of query and body are the
handler's. Below ``since`` (a minor microversion) a route does not exist for the caller. Policy names are those of the
services whose APIs these are. The OpenAPI document is generated from this table too.

Any path works on either listener; only ``/``, ``/v1`` and unknown paths depend on it.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any, Final

import falcon

from ferroscope.api import errors, introspection
from ferroscope.api.auth.access import METRICS
from ferroscope.api.baremetal import (
    absent,
    agent,
    boot_device,
    callback_body,
    callbacks,
    conductors,
    drivers,
    groups,
    history,
    inbox,
    inventory,
    maintenance,
    node_bmc,
    node_fields,
    node_policies,
    nodes,
    notes,
    port_fields,
    portgroups,
    ports,
    power,
    provision,
    ramdisk,
    ramdisk_boot,
    rule_schema,
    rules,
    search,
    traits,
    vmedia,
)
from ferroscope.api.http import openapi
from ferroscope.api.http.arrivals import Arrivals
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.dispatch import Responder, responder, send_failure
from ferroscope.api.http.route import BINARY, PLAIN, TEXT, Route, Surface, join_routes, make
from ferroscope.api.service import audit, expectations, leases, root, saved_searches, status
from ferroscope.core.virtual_media import Medium
from ferroscope.rules.explain import RuleExplanation
from ferroscope_client.installed import load_installed

_shared = partial(make, Surface.SHARED)
_service = partial(make, Surface.SERVICE)
_bare_metal = partial(make, Surface.BARE_METAL)
_introspection = partial(make, Surface.INTROSPECTION)

_NODE: Final = "/v1/nodes/{node}"
_LEASE: Final = "/v1/leases/{name:path}"
_INTROSPECTED: Final = "/v1/introspection/{node}"
_GROUP: Final = "/v1/portgroups/{portgroup}"
_CHASSIS: Final = "/v1/chassis/{chassis}"

_Root = (root.BareMetalRoot, root.IntrospectionRoot)
_V1 = (root.BareMetalV1, root.IntrospectionV1)
_Called = (callbacks.CallbackAnswer, agent.AgentAnswer)
_Node, _NodeList = node_fields.NodeView, node_fields.NodeList
_Port, _PortList = port_fields.PortView, port_fields.PortList
_Group, _GroupList = portgroups.PortgroupView, portgroups.PortgroupList
_Supported, _Device = boot_device.SupportedBootDevices, boot_device.BootDeviceView
_Status, _StatusList = introspection.IntrospectionStatus, introspection.IntrospectionList
_Rule, _RuleList = rule_schema.InspectionRule, rule_schema.InspectionRuleList
_OldRule, _OldRuleList = rule_schema.IntrospectionRule, rule_schema.IntrospectionRuleList
_Data, _Accepted = introspection.IntrospectionData, introspection.EmptyReply

# fmt: off
_OWN: Final[tuple[Route, ...]] = (
    _shared("GET /", root.get_root, "public_api", 200, _Root),
    _shared("GET /v1", root.get_v1, "public_api", 200, _V1),
    _service("GET /healthcheck", root.get_healthcheck, "public_api", 200, root.Health),
    _service("GET /openapi.json", openapi.serve(lambda: ROUTES), "public_api", 200, dict[str, Any]),

    _service("GET /metrics", root.get_metrics, METRICS, 200, str, media=TEXT),

    _service("GET /v1/status", status.get_status, "ferroscope:status:get", 200, status.StatusView),
    _service("GET /v1/audit", audit.list_audit, "ferroscope:audit:get", 200, audit.AuditList),
    _service("GET /v1/leases", leases.list_leases, "ferroscope:lease:list", 200, leases.LeaseList),
    _service(f"GET {_LEASE}", leases.get_lease, "ferroscope:lease:get", 200, leases.LeaseView),
    _service(f"POST {_LEASE}", leases.acquire_lease, "ferroscope:lease:hold", 201, leases.LeaseView,
             conflict=leases.LeaseConflict),
    _service(f"PUT {_LEASE}", leases.renew_lease, "ferroscope:lease:hold", 200, leases.LeaseView,
             conflict=leases.LeaseConflict),
    _service(f"DELETE {_LEASE}", leases.release_lease, "ferroscope:lease:hold", 204,
             conflict=leases.LeaseConflict),
    _service("DELETE /v1/lease_names/{name:path}", leases.forget_lease, "ferroscope:lease:forget", 204,
             conflict=leases.LeaseConflict),

    _bare_metal("GET /v1/expectations", expectations.get_expectations,
                "ferroscope:expectation:get", 200, expectations.ExpectationRoutes),
    _bare_metal("PUT /v1/expectations", expectations.set_expectations,
                "ferroscope:expectation:set", 200, expectations.ExpectationRoutes),
    _bare_metal("POST /v1/expectations/check", expectations.check,
                "ferroscope:expectation:set", 200, expectations.Checked),

    _bare_metal("GET /v1/search", search.search, "ferroscope:search", 200, search.SearchResult),

    _bare_metal("GET /v1/saved_searches", saved_searches.list_saved,
                saved_searches.POLICY, 200, saved_searches.SavedSearchList),
    _bare_metal("PUT /v1/saved_searches/{search}", saved_searches.save,
                saved_searches.POLICY, 200, saved_searches.SavedSearchView),
    _bare_metal("DELETE /v1/saved_searches/{search}", saved_searches.remove, saved_searches.POLICY, 204),

    _bare_metal("POST /v1/nodes", nodes.create_node, "baremetal:node:create", 201, _Node,
                instead=("baremetal:node:create:self_owned_node",)),
    _bare_metal("GET /v1/nodes", nodes.list_nodes, "baremetal:node:list", 200, _NodeList,
                instead=("baremetal:node:list_all",)),
    _bare_metal("GET /v1/nodes/detail", nodes.list_nodes_detail, "baremetal:node:list", 200, _NodeList,
                instead=("baremetal:node:list_all",)),
    _bare_metal(f"GET {_NODE}", nodes.get_node, "baremetal:node:get", 200, _Node),
    _bare_metal(f"PATCH {_NODE}", nodes.update_node, "baremetal:node:update", 200, _Node,
                instead=node_policies.SUFFICIENT),
    _bare_metal(f"DELETE {_NODE}", nodes.delete_node, "baremetal:node:delete", 204,
                instead=("baremetal:node:delete:self_owned_node",)),
    _bare_metal(f"GET {_NODE}/states", nodes.get_states, "baremetal:node:get_states", 200,
                node_fields.NodeStates),
    _bare_metal(f"PUT {_NODE}/states/provision", provision.set_provision_state,
                "baremetal:node:set_provision_state", 202),
    _bare_metal(f"PUT {_NODE}/states/power", power.set_power_state, "baremetal:node:set_power_state", 202),
    _bare_metal(f"GET {_NODE}/validate", nodes.validate_node,
                "baremetal:node:validate", 200, drivers.NodeValidation),
    _bare_metal(f"PUT {_NODE}/maintenance", maintenance.set_maintenance, "baremetal:node:set_maintenance", 202),
    _bare_metal(f"DELETE {_NODE}/maintenance", maintenance.clear_maintenance, "baremetal:node:clear_maintenance", 202),
    _bare_metal(f"POST {_NODE}/notes", notes.add_note, notes.POLICY, 201, notes.Notes),
    _bare_metal(f"DELETE {_NODE}/notes/{{number}}", notes.remove_note, notes.POLICY, 204),
    _bare_metal("POST /v1/inbox", inbox.add, "baremetal:node:create", 201, inbox.InboxAnswer),
    _bare_metal(f"POST {_NODE}/approve", inbox.approve, "baremetal:node:create", 204),
    _bare_metal(f"POST {_NODE}/reject", inbox.reject, "baremetal:node:delete", 204),
    _bare_metal("GET /v1/rejections", inbox.list_rejections, "ferroscope:inbox:get", 200, inbox.RejectionList),
    _bare_metal("POST /v1/rejections", inbox.reject_source, "baremetal:node:delete", 200, inbox.Rejected),
    _bare_metal(
        "GET /v1/refused_callers", inbox.list_refused_callers, "ferroscope:inbox:get", 200, inbox.RefusedCallerList
    ),
    _bare_metal("DELETE /v1/rejections/{address}", inbox.readmit, "baremetal:node:create", 204),
    _bare_metal(f"GET {_NODE}/traits", traits.get_traits,
                "baremetal:node:traits:list", 200, traits.Traits, since=37, unsupported=errors.NotAcceptableError),
    _bare_metal(f"PUT {_NODE}/traits", traits.set_traits, "baremetal:node:traits:set", 204, since=37,
                unsupported=errors.NotAllowedError),
    _bare_metal(f"DELETE {_NODE}/traits", traits.remove_traits, "baremetal:node:traits:delete", 204, since=37),
    _bare_metal(f"PUT {_NODE}/traits/{{trait}}", traits.add_trait, "baremetal:node:traits:set", 204, since=37,
                unsupported=errors.NotAllowedError),
    _bare_metal(f"DELETE {_NODE}/traits/{{trait}}", traits.remove_trait,
                "baremetal:node:traits:delete", 204, since=37),
    _bare_metal(f"GET {_NODE}/children", groups.list_children,
                "baremetal:node:get", 200, groups.Children, since=83),
    _bare_metal(f"GET {_NODE}/firmware", inventory.list_firmware,
                "baremetal:node:firmware:get", 200, inventory.Firmware, since=86),
    _bare_metal(f"GET {_NODE}/management/boot_device", boot_device.get_boot_device,
                "baremetal:node:get_boot_device", 200, _Device),
    _bare_metal(f"PUT {_NODE}/management/boot_device", boot_device.set_boot_device,
                "baremetal:node:set_boot_device", 204),
    _bare_metal(f"GET {_NODE}/management/boot_device/supported", boot_device.get_supported_boot_devices,
                "baremetal:node:get_boot_device", 200, _Supported),
    _bare_metal(f"GET {_NODE}/bmc/password", node_bmc.get_password_change,
                "baremetal:node:get:driver_info", 200, node_bmc.PasswordChange),
    _bare_metal(f"PUT {_NODE}/bmc/password", node_bmc.set_password,
                node_bmc.POLICY, 202, node_bmc.PasswordAccepted),
    _bare_metal(f"POST {_NODE}/bmc/trial", node_bmc.try_bmc, node_bmc.TRIAL_POLICY, 202),
    _bare_metal(f"GET {_NODE}/vmedia", vmedia.list_media,
                "baremetal:node:vmedia:get", 200, list[Medium], since=vmedia.LIST_SINCE),
    _bare_metal(f"POST {_NODE}/vmedia", vmedia.attach, "baremetal:node:vmedia:attach", 204, since=vmedia.SINCE_MINOR),
    _bare_metal(f"DELETE {_NODE}/vmedia", vmedia.detach, "baremetal:node:vmedia:detach", 204, since=vmedia.SINCE_MINOR),
    _bare_metal(f"GET {_NODE}/inventory", inventory.get_inventory,
                "baremetal:node:inventory:get", 200, inventory.NodeInventory, since=81),
    _bare_metal(f"POST {_NODE}/inventory/reapply", inventory.reapply,
                "ferroscope:inspection:reapply", 202, raw=callback_body.Callback | None),
    _bare_metal(f"GET {_NODE}/inventory/revisions", inventory.list_revisions,
                "baremetal:node:inventory:get", 200, inventory.RevisionList),
    _bare_metal(f"GET {_NODE}/inventory/diff", inventory.get_diff,
                "baremetal:node:inventory:get", 200, inventory.DiffView),
    _bare_metal(f"GET {_NODE}/log", inventory.get_log,
                "baremetal:node:inventory:get", 200, str, media=BINARY),
    _bare_metal(f"GET {_NODE}/history", history.list_history,
                "baremetal:node:history:get", 200, history.History, since=78),
    _bare_metal(f"GET {_NODE}/history/{{event}}", history.get_history_event,
                "baremetal:node:history:get", 200, history.HistoryEvent, since=78),
    _bare_metal(f"GET {_NODE}/timeline", history.get_timeline, "baremetal:node:history:get", 200, history.Timeline),
    _bare_metal(f"GET {_NODE}/inspections", history.list_inspections,
                "baremetal:node:history:get", 200, history.InspectionRoutes),
    _bare_metal(f"GET {_NODE}/ports", ports.list_node_ports, "baremetal:port:list", 200, _PortList,
                instead=("baremetal:port:list_all",)),
    _bare_metal(f"GET {_NODE}/ports/detail", ports.list_node_ports_detail, "baremetal:port:list", 200, _PortList,
                instead=("baremetal:port:list_all",)),

    _bare_metal("POST /v1/ports", ports.create_port, "baremetal:port:create", 201, _Port, late=True),
    _bare_metal("GET /v1/ports", ports.list_ports, "baremetal:port:list", 200, _PortList,
                instead=("baremetal:port:list_all",)),
    _bare_metal("GET /v1/ports/detail", ports.list_ports_detail, "baremetal:port:list", 200, _PortList,
                instead=("baremetal:port:list_all",)),
    _bare_metal("GET /v1/ports/{port}", ports.get_port, "baremetal:port:get", 200, _Port),
    _bare_metal("PATCH /v1/ports/{port}", ports.update_port, "baremetal:port:update", 200, _Port),
    _bare_metal("DELETE /v1/ports/{port}", ports.delete_port, "baremetal:port:delete", 204),

    _bare_metal(f"GET {_NODE}/portgroups", portgroups.list_node_portgroups,
                "baremetal:portgroup:list", 200, _GroupList, instead=("baremetal:portgroup:list_all",), since=24),
    _bare_metal(f"GET {_NODE}/portgroups/detail", portgroups.list_node_portgroups_detail,
                "baremetal:portgroup:list", 200, _GroupList, instead=("baremetal:portgroup:list_all",), since=24),
    _bare_metal("POST /v1/portgroups", portgroups.create_portgroup,
                "baremetal:portgroup:create", 201, _Group, late=True, since=23),
    _bare_metal("GET /v1/portgroups", portgroups.list_portgroups,
                "baremetal:portgroup:list", 200, _GroupList, instead=("baremetal:portgroup:list_all",), since=23),
    _bare_metal("GET /v1/portgroups/detail", portgroups.list_portgroups_detail,
                "baremetal:portgroup:list", 200, _GroupList, instead=("baremetal:portgroup:list_all",), since=23),
    _bare_metal(f"GET {_GROUP}", portgroups.get_portgroup, "baremetal:portgroup:get", 200, _Group, since=23),
    _bare_metal(f"PATCH {_GROUP}", portgroups.update_portgroup, "baremetal:portgroup:update", 200, _Group, since=23),
    _bare_metal(f"DELETE {_GROUP}", portgroups.delete_portgroup, "baremetal:portgroup:delete", 204, since=23),
    _bare_metal(f"GET {_GROUP}/ports", portgroups.list_ports,
                "baremetal:port:list", 200, _PortList, instead=("baremetal:port:list_all",), since=24),
    _bare_metal(f"GET {_GROUP}/ports/detail", portgroups.list_ports_detail,
                "baremetal:port:list", 200, _PortList, instead=("baremetal:port:list_all",), since=24),

    _bare_metal("POST /v1/chassis", groups.create_chassis, "baremetal:chassis:create", 201, groups.ChassisView),
    _bare_metal("GET /v1/chassis", groups.list_chassis, "baremetal:chassis:get", 200, groups.ChassisList),
    _bare_metal("GET /v1/chassis/detail", groups.list_chassis_detail,
                "baremetal:chassis:get", 200, groups.ChassisList),
    _bare_metal(f"GET {_CHASSIS}", groups.get_chassis, "baremetal:chassis:get", 200, groups.ChassisView),
    _bare_metal(f"PATCH {_CHASSIS}", groups.update_chassis, "baremetal:chassis:update", 200, groups.ChassisView),
    _bare_metal(f"DELETE {_CHASSIS}", groups.delete_chassis, "baremetal:chassis:delete", 204),
    _bare_metal(f"GET {_CHASSIS}/nodes", groups.list_nodes, "baremetal:node:list", 200, _NodeList,
                instead=("baremetal:node:list_all",)),
    _bare_metal(f"GET {_CHASSIS}/nodes/detail", groups.list_nodes_detail, "baremetal:node:list", 200, _NodeList,
                instead=("baremetal:node:list_all",)),

    _bare_metal("GET /v1/conductors", conductors.list_conductors,
                "baremetal:conductor:get", 200, conductors.ConductorList, since=conductors.SINCE_MINOR),
    _bare_metal("GET /v1/conductors/{hostname}", conductors.get_conductor,
                "baremetal:conductor:get", 200, conductors.ConductorView, since=conductors.SINCE_MINOR),
    _bare_metal("GET /v1/allocations", absent.allocations, "baremetal:allocation:list", 200, absent.Empty,
                instead=("baremetal:allocation:list_all",), since=52),
    _bare_metal("GET /v1/deploy_templates", absent.deploy_templates,
                "baremetal:deploy_template:get", 200, absent.Empty, since=55),
    _bare_metal("GET /v1/runbooks", absent.runbooks, "baremetal:runbook:list", 200, absent.Empty,
                instead=("baremetal:runbook:list_all",), since=92),
    *(
        row
        for owner in ("/v1", _NODE)
        for row in (
            _bare_metal(f"GET {owner}/volume", absent.get_volume, "baremetal:volume:list", 200, absent.Volume,
                        instead=("baremetal:volume:list_all",), since=32),
            _bare_metal(f"GET {owner}/volume/connectors", absent.connectors, "baremetal:volume:list", 200,
                        absent.Empty, instead=("baremetal:volume:list_all",), since=32),
            _bare_metal(f"GET {owner}/volume/targets", absent.targets, "baremetal:volume:list", 200,
                        absent.Empty, instead=("baremetal:volume:list_all",), since=32),
        )
    ),
    _bare_metal(f"GET {_NODE}/vifs", absent.vifs, "baremetal:node:vif:list", 200, absent.Empty, since=28),
    _bare_metal(f"GET {_NODE}/bios", absent.bios, "baremetal:node:bios:get", 200, absent.Empty, since=40),

    _bare_metal("GET /v1/shards", groups.list_shards, "baremetal:shards:get", 200, groups.ShardList, since=82),

    _bare_metal("GET /v1/inspection_rules", rules.list_rules,
                "baremetal:inspection_rule:get", 200, _RuleList, since=96),
    _bare_metal("POST /v1/inspection_rules", rules.create_rule,
                "baremetal:inspection_rule:create", 201, _Rule, since=96),
    _bare_metal("DELETE /v1/inspection_rules", rules.delete_rules,
                "baremetal:inspection_rule:delete", 204, since=96),
    _bare_metal("POST /v1/inspection_rules/explain", rules.explain_rules,
                "baremetal:inspection_rule:explain", 200, RuleExplanation, since=96),
    _bare_metal("GET /v1/inspection_rules/{rule}", rules.get_rule,
                "baremetal:inspection_rule:get", 200, _Rule, since=96),
    _bare_metal("PATCH /v1/inspection_rules/{rule}", rules.update_rule,
                "baremetal:inspection_rule:update", 200, _Rule, since=96),
    _bare_metal("DELETE /v1/inspection_rules/{rule}", rules.delete_rule,
                "baremetal:inspection_rule:delete", 204, since=96),

    _bare_metal("GET /v1/drivers", drivers.list_drivers, "baremetal:driver:get", 200, drivers.DriverList),
    _bare_metal("GET /v1/drivers/{driver}", drivers.get_driver, "baremetal:driver:get", 200, drivers.DriverView),
    _bare_metal("GET /v1/drivers/{driver}/properties", drivers.get_driver_properties,
                "baremetal:driver:get_properties", 200, dict[str, str]),

    _bare_metal("POST /v1/continue_inspection", callbacks.continue_inspection,
                "baremetal:driver:ipa_continue_inspection", 202, _Called, raw=callback_body.Callback, ramdisk=True,
                in_flood=True, refused=callbacks.too_large),
    _bare_metal("GET /v1/lookup", ramdisk.get_lookup,
                "baremetal:driver:ipa_lookup", 200, agent.AgentAnswer, since=22, ramdisk=True),
    _bare_metal("GET /v1/ramdisk_parameters/{node}/disk.img", ramdisk_boot.get_disk,
                "baremetal:driver:ipa_lookup", 200, str, ramdisk=True, media=BINARY),
    _bare_metal("GET /v1/ramdisk_parameters/{node}/{key}/disk.img", ramdisk_boot.get_secret_disk,
                "baremetal:driver:ipa_lookup", 200, str, ramdisk=True, in_flood=True, media=BINARY),
    _bare_metal("GET /v1/media/{name}", ramdisk_boot.get_image,
                "baremetal:driver:ipa_lookup", 200, str, ramdisk=True, in_flood=True, media=BINARY, also=206),
    _bare_metal("GET /v1/boot.ipxe", ramdisk_boot.get_script,
                "baremetal:driver:ipa_lookup", 200, str, ramdisk=True, media=PLAIN),
    _bare_metal("POST /v1/heartbeat", ramdisk.heartbeat_by_name,
                "baremetal:node:ipa_heartbeat", 202, ramdisk=True, in_flood=True),
    _bare_metal("POST /v1/heartbeat/{node}", ramdisk.heartbeat,
                "baremetal:node:ipa_heartbeat", 202, since=ramdisk.HEARTBEAT_SINCE, ramdisk=True,
                in_flood=True),

    _introspection("POST /v1/continue", callbacks.continue_introspection,
                   "introspection:continue", 202, callbacks.CallbackAnswer, raw=callback_body.Callback, ramdisk=True,
                   in_flood=True, refused=callbacks.too_large),
    _introspection("GET /v1/introspection", introspection.list_introspections,
                   "introspection:status", 200, _StatusList, instead=("baremetal:node:list",)),
    _introspection(f"POST {_INTROSPECTED}", introspection.start_introspection, "introspection:start", 202, _Accepted),
    _introspection(f"GET {_INTROSPECTED}", introspection.get_introspection, "introspection:status", 200, _Status),
    _introspection(f"POST {_INTROSPECTED}/abort", introspection.abort_introspection,
                   "introspection:abort", 202, _Accepted),
    _introspection(f"GET {_INTROSPECTED}/data", introspection.get_data, "introspection:data", 200, _Data),
    _introspection(f"GET {_INTROSPECTED}/data/unprocessed", introspection.get_unprocessed_data,
                   "introspection:data", 200, _Data),
    _introspection(f"POST {_INTROSPECTED}/data/unprocessed", introspection.reapply,
                   "introspection:reapply", 202, _Accepted, raw=_Data | None),
    _introspection("GET /v1/rules", introspection.list_rules, "introspection:rule:get", 200, _OldRuleList),
    _introspection("POST /v1/rules", introspection.create_rule, "introspection:rule:create", 201, _OldRule,
                   also=200),
    _introspection("DELETE /v1/rules", introspection.delete_rules, "introspection:rule:delete", 204),
    _introspection("GET /v1/rules/{rule}", introspection.get_rule, "introspection:rule:get", 200, _OldRule),
    _introspection("POST /v1/rules/{rule}", introspection.put_rule, "introspection:rule:create", 201, _OldRule,
                   also=200),
    _introspection("PUT /v1/rules/{rule}", introspection.put_rule, "introspection:rule:create", 201, _OldRule,
                   also=200),
    _introspection("DELETE /v1/rules/{rule}", introspection.delete_rule, "introspection:rule:delete", 204),
)
# fmt: on

ROUTES: Final[tuple[Route, ...]] = join_routes(_OWN, load_installed("ferroscope.routes"))
"""All routes, with those of other packages."""


def create_app(context: ApiContext) -> falcon.App[falcon.Request, falcon.Response]:
    """Return the application; it is stateless, and safe for any number of threads."""
    resources = {route.path.split("/")[2] for route in ROUTES if route.surface is Surface.BARE_METAL}
    access = context.access
    app = falcon.App(middleware=[Arrivals(context.process.new_uuid, access.hosts, access.proxies, resources)])
    app.req_options.strip_url_path_trailing_slash = True
    # For empty answers: ironicclient complains about an empty "JSON" document.
    app.resp_options.default_media_type = falcon.MEDIA_TEXT
    by_path: dict[str, dict[str, Responder]] = defaultdict(dict)
    for route in ROUTES:
        by_path[route.template][f"on_{route.method.lower()}"] = responder(context, route)
    for path, responders in by_path.items():
        if "on_get" in responders:
            responders["on_head"] = responders["on_get"]
        app.add_route(path, type("Resource", (), {name: staticmethod(on) for name, on in responders.items()})())
    _handle_errors(app, context)
    return app


def _handle_errors(app: falcon.App[Any, Any], context: ApiContext) -> None:
    def on_http_error(req: falcon.Request, resp: falcon.Response, exc: falcon.HTTPError, _params: Any) -> None:
        send_failure(context, req, resp, _translate(req, exc))

    def on_fault(req: falcon.Request, resp: falcon.Response, exc: Exception, _params: Any) -> None:
        send_failure(context, req, resp, exc)

    app.add_error_handler(Exception, on_fault)
    app.add_error_handler(falcon.HTTPError, on_http_error)


def _translate(req: falcon.Request, exc: falcon.HTTPError) -> errors.ApiError:
    headers = {key: str(value) for key, value in dict(exc.headers or {}).items()}
    answer = errors.ApiError(_message(req, exc, headers), headers)
    answer.status = exc.status_code
    return answer


def _message(req: falcon.Request, exc: falcon.HTTPError, headers: dict[str, str]) -> str:
    if isinstance(exc, falcon.HTTPRouteNotFound):
        return f"{req.path[:200]} does not exist. GET /openapi.json lists all paths."
    if isinstance(exc, falcon.HTTPMethodNotAllowed):
        return f"{req.method} is not allowed for {req.path[:200]}; allowed: {headers.get('Allow', 'nothing')}."
    return f"{exc.title or exc.status}. {exc.description or ''}".strip()
