"""The inspect interface ``ferroscope``: hands an inspection over, and takes its result.

Ferroscope, to which this Ironic is attached, does the whole inspection: it powers the machine through this Ironic's
API, as soon as the node is unlocked, and writes properties, traits and ports there. Meanwhile the node is in ``inspect
wait``, unlocked, and its conductor asks from time to time whether the inspection has ended.

What was agreed is in the node's ``driver_internal_info``, so that any conductor goes on with it after a restart:
``requested`` (Ferroscope has accepted) and ``silent_since`` (Unix time since when it has not answered, or None). If it
is still there when the inspection has ended here, it has to be aborted at Ferroscope.
"""

import time

from ironic.common import exception, states
from ironic.conductor import periodics, utils
from ironic.drivers import base
from ironic.drivers.modules import inspect_utils
from oslo_config import cfg
from oslo_log import log

from ferroscope_ironic import options
from ferroscope_ironic.client import Client, RefusedError, UnavailableError

LOG = log.getLogger(__name__)
CONF = cfg.CONF
options.register(CONF)

_AGREED = "ferroscope_inspection"
# Where an inspection may be under way, here or still there. Beyond these Ferroscope leaves the machine alone by itself.
_CHECKED = [states.INSPECTWAIT, states.INSPECTFAIL, states.MANAGEABLE]
# Of an inspection under way: credentials or roles are being changed (without a role all nodes are unknown). That is no
# reason to give up what Ferroscope goes on with.
_LOGIN = (401, 403, 404)


def _is_agreed(node):
    return _AGREED in (node.driver_internal_info or {})


class FerroscopeInspect(base.InspectInterface):
    """Inspection by Ferroscope."""

    def __init__(self):
        super().__init__()
        self._client = Client()

    def get_properties(self):
        return {}

    def validate(self, task):
        """All that a node needs is known when it is inspected."""

    def inspect_hardware(self, task):
        """Start an inspection; if Ferroscope does not answer, it is started as soon as it does."""
        _agree(task, requested=False, silent_since=None)  # first: whoever follows a killed conductor has to know
        try:
            self._client.start(task.node.uuid)
        except UnavailableError as exc:
            LOG.warning("Inspection of node %s waits for Ferroscope: %s", task.node.uuid, exc)
            _agree(task, requested=False, silent_since=time.time())
        except RefusedError as exc:
            _forget(task)
            raise exception.HardwareInspectionFailure(error=str(exc)) from exc
        else:
            _agree(task, requested=True, silent_since=None)
        return states.INSPECTWAIT

    def abort(self, task):
        """Abort it at Ferroscope as well; if that does not answer, as soon as it does.

        Ironic calls this also when an inspection has failed or timed out.
        """
        if not _is_agreed(task.node):
            return
        try:
            self._client.abort(task.node.uuid)
        except UnavailableError as exc:
            LOG.warning("Inspection of node %s will be aborted later at Ferroscope: %s", task.node.uuid, exc)
        except RefusedError as exc:
            self._abort_refused(task, exc)
        else:
            _forget(task)

    def _abort_refused(self, task, problem):
        """Abort it later, unless there was nothing to abort or Ferroscope has not known the node for long."""
        agreed = task.node.driver_internal_info[_AGREED]
        since = agreed["silent_since"] or time.time()
        seconds = 2 * CONF.ferroscope.outage_timeout  # once to the failure of the inspection, and once again
        if problem.status == 404 and (not agreed["requested"] or time.time() - since >= seconds):
            LOG.warning("Inspection of node %s cannot be aborted at Ferroscope: %s", task.node.uuid, problem)
            _forget(task)
            return
        LOG.warning("Inspection of node %s will be aborted later at Ferroscope: %s", task.node.uuid, problem)
        _agree(task, silent_since=since)

    @periodics.node_periodic(
        purpose="asking Ferroscope for the results of inspections",
        spacing=lambda: CONF.ferroscope.status_check_period,
        enabled=lambda: True,
        filters={"provision_state_in": _CHECKED},
        predicate=_is_agreed,
        predicate_extra_fields=["driver_internal_info"],
    )
    def _check(self, task, manager, context):
        """Go on with one node's inspection."""
        if not _is_agreed(task.node):  # it has ended since the nodes were listed
            return
        if task.node.provision_state != states.INSPECTWAIT:
            self._abort_abandoned(task)
            return
        try:
            self._ask(task)
        except UnavailableError as exc:
            self._wait(task, exc)
        except RefusedError as exc:
            if exc.status in _LOGIN and task.node.driver_internal_info[_AGREED]["requested"]:
                self._wait(task, exc)
            else:
                self._end(task, error=str(exc))

    def _ask(self, task):
        uuid, agreed = task.node.uuid, task.node.driver_internal_info[_AGREED]
        if not agreed["requested"]:
            if not self._is_active(uuid):  # else it did accept, and only its answer was lost
                self._client.start(uuid)
            task.upgrade_lock()
            if _is_waiting(task):
                _agree(task, requested=True, silent_since=None)
            return
        found = self._client.status(uuid)
        if not found.get("finished"):
            if agreed["silent_since"] is not None:
                task.upgrade_lock()
                if _is_waiting(task):
                    _agree(task, requested=True, silent_since=None)
        elif found.get("error"):
            self._end(task, error=f"Ferroscope: {found['error']}", over=True)
        else:
            self._end(task, data=self._client.data(uuid))

    def _is_active(self, uuid):
        try:
            return not self._client.status(uuid).get("finished", True)
        except RefusedError as exc:
            if exc.status == 404:  # it was never inspected there
                return False
            raise

    def _wait(self, task, problem):
        """Fail the inspection if Ferroscope has not answered, or has refused the login, for too long."""
        agreed = task.node.driver_internal_info[_AGREED]
        since = agreed["silent_since"]
        if since is None or since > time.time():
            LOG.warning("Inspection of node %s waits for Ferroscope: %s", task.node.uuid, problem)
            task.upgrade_lock()
            if _is_waiting(task):
                _agree(task, requested=agreed["requested"], silent_since=time.time())
            return
        seconds = CONF.ferroscope.outage_timeout
        if time.time() - since >= seconds:
            self._end(task, error=f"no inspection, because Ferroscope has been unavailable for {seconds} s: {problem}")

    def _end(self, task, error=None, data=None, over=False):
        """Leave ``inspect wait`` with a result; the node's lock and state decide if somebody else was quicker.

        ``over``: it has failed at Ferroscope, too.
        """
        task.upgrade_lock(purpose="ending an inspection")
        node = task.node
        if not _is_waiting(task):
            return
        if error is not None:
            LOG.error("Inspection of node %(node)s failed: %(error)s", {"node": node.uuid, "error": error})
            if over:
                _forget(task)
            else:
                self.abort(task)
            utils.node_history_record(node, event=error, event_type=states.INTROSPECTION, error=True)
            task.process_event("fail")
            return
        inventory, plugin_data = data or (None, None)
        if inventory is None:
            LOG.warning("Ferroscope has no inventory of node %s: its [inspector] store_data is none", node.uuid)
        else:
            inspect_utils.store_inspection_data(node, inventory, plugin_data, task.context)
        node.del_driver_internal_info(_AGREED)
        task.process_event("done")
        LOG.info("Ferroscope has inspected node %s", node.uuid)

    def _abort_abandoned(self, task):
        """End at Ferroscope what has ended here: it failed, timed out, or its conductor was killed at the start."""
        task.upgrade_lock()  # nobody may start another one meanwhile
        if not _is_agreed(task.node) or task.node.provision_state not in _CHECKED[1:]:
            return
        self.abort(task)


def _is_waiting(task):
    """Whether it still waits, now that the node is locked."""
    return task.node.provision_state == states.INSPECTWAIT and _is_agreed(task.node)


def _agree(task, **changes):
    agreed = task.node.driver_internal_info.get(_AGREED) or {}
    task.node.set_driver_internal_info(_AGREED, {**agreed, **changes})
    task.node.save()


def _forget(task):
    task.node.del_driver_internal_info(_AGREED)
    task.node.save()
