"""A node, its machine and its BMC, and what goes wrong with them: a function for each kind of cause."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable
from contextlib import ExitStack
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, Final

from ferroscope import transition
from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.core import bmc_access
from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope.worker.start import LEASE
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from tests.api import working
from tests.api.service import Service, callback_body
from tests.support import examples
from tests.support.certificates import DAY, Authority
from tests.support.processes import free_port
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors import ALL, nvidia, openbmc
from tests.support.vendors import service as vendors
from tests.support.vendors.hardware import SERIAL, UUID
from tests.support.vendors.hosting import Answer, hosted
from tests.support.vendors.personality import Personality
from tests.system.cli.console import Shell

SECOND_UUID: Final = "7f0c6e0e-0000-4000-8000-000000000002"


class WebPage:
    """What answers at an address that is not that of a BMC."""

    def answer(self, _method: str, _path: str, _headers: Any, _body: Any) -> Answer:
        return Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"})


class Site:
    """The node ``n``, its machine, and a worker. ``mend`` is what the person does, ``blanks`` what one knows."""

    def __init__(self, shell: Shell, service: Service, bmc: RedfishBmc, authority: Authority, stack: ExitStack) -> None:
        self.shell, self.service, self.authority, self._stack = shell, service, authority, stack
        self.drivers = {"redfish": bmc, "fake-hardware": FakeBmc()}
        self.worker = working.worker(service, self.drivers)
        self.mac = examples.mac()
        self.body = callback_body(self.mac, serial="S-1")
        self.blanks = {"NODE": "n", "MAC": self.mac, "52:54:00:12:34:56": self.mac}
        self.mend: Callable[[], object] = lambda: None

    def start_bmc(self, personality: Personality = ALL[0], **validity: float) -> vendors.Service:
        """Start the BMC of the machine; it is where the person says that it is."""
        pair = self.authority.issue("bmc", hosts=("127.0.0.1",), **validity)
        bmc = self._stack.enter_context(vendors.serving(personality, (pair.certificate, pair.key)))
        self.blanks |= {"<new address>": bmc.url, "<path of the system>": bmc.system}
        return bmc

    def hang_up(self) -> int:
        """Return the port of what closes each connection without an answer."""
        server = self._stack.enter_context(ThreadingTCPServer(("127.0.0.1", 0), BaseRequestHandler))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._stack.callback(server.shutdown)
        return int(server.server_address[1])

    def start_web_page(self) -> str:
        pair = self.authority.issue("web", hosts=("127.0.0.1",))
        return self._stack.enter_context(hosted(WebPage(), (pair.certificate, pair.key)))

    def enrol_bmc(self, bmc: vendors.Service, **more: Any) -> None:
        info = {"redfish_address": bmc.url, "redfish_username": USER, "redfish_password": PASSWORD}
        info |= {"redfish_verify_ca": "bmc-ca.pem", "redfish_system_id": bmc.system} | more
        info = {name: value for name, value in info.items() if value is not None}
        self.service.enrol(name="n", driver="redfish", driver_info=info)

    def correct_address(self, bmc: vendors.Service) -> None:
        words = ("-d", f"redfish_address={bmc.url}", "-d", "redfish_password=@-")
        self.shell("node", "set", "n", *words, check=0, stdin=PASSWORD)

    def try_bmc(self) -> None:
        answer = self.service.bare_metal.post("/v1/nodes/n/bmc/trial")
        assert answer.status_code == 202, answer.text
        self.work()

    def enrol_machine(self, *, has_port: bool = True) -> None:
        self.service.enrol(name="n")
        if has_port:
            self.shell("node", "set", "n", "--add-port", self.mac, check=0)

    def boot(self) -> None:
        """Start an inspection; the machine does not call back yet."""
        self.shell("inspect", "n", check=0)
        self.work()
        assert self.service.node("n").provision_state is Provision.INSPECT_WAIT

    def begin(self, *, has_port: bool = True) -> None:
        """Bring a new node to waiting for its machine."""
        self.enrol_machine(has_port=has_port)
        self.boot()

    def work(self) -> None:
        """Carry out all requests; the machine does nothing."""
        working.work(self.service, "n", self.worker)

    def play(self) -> None:
        """Carry out all requests; the machine calls back when it is booted."""
        self.work()
        if self.service.node("n").provision_state is Provision.INSPECT_WAIT:
            self.service.call_back(self.body)
            self.work()

    def run(self, command: str) -> None:
        """Run a command while the worker works, with what only a person can fill in."""
        for blank, value in self.blanks.items():
            command = command.replace(blank, value)
        is_over = threading.Event()

        def play_on() -> None:
            while not is_over.wait(0.01):
                self.play()

        thread = threading.Thread(target=play_on)
        thread.start()
        try:
            self.shell(*shlex.split(command)[1:], check=0, stdin=PASSWORD)
        finally:
            is_over.set()
            thread.join()
        self.play()

    def list_notes(self) -> Any:
        """Return what is noted of the node, of its inspections, and of machines that called."""
        paths = ("nodes/n/timeline", "nodes/n/inspections", "refused_callers")
        return [self.service.bare_metal.get(f"/v1/{path}").json for path in paths]

    @property
    def works(self) -> bool:
        node = self.service.node("n")
        return (node.provision_state, node.last_error) == (Provision.MANAGEABLE, None)


# Each returns with the reason in the node's last error, or where it is noted which machine called.


def misname_bmc(site: Site, **wrong: Any) -> None:
    bmc = site.start_bmc()
    place = {"port": bmc.url.rpartition(":")[2], "closed": free_port()}
    place |= {"web": site.start_web_page(), "hangs_up": site.hang_up()}
    more = {key: value.format(**place) if isinstance(value, str) else value for key, value in wrong.items()}
    site.enrol_bmc(bmc, **more)
    site.mend = lambda: site.correct_address(bmc)
    site.try_bmc()


def answer_badly(site: Site, status: int, message: str) -> None:
    """Let the BMC answer everything with this error until it is mended; a BMC that is busy mends itself."""
    bmc = site.start_bmc()
    site.enrol_bmc(bmc)
    error = {"@Message.ExtendedInfo": [{"MessageId": f"Base.1.8.{message}", "Message": message}]}
    bmc.answer = lambda *_: Answer(status, {"error": error})  # type: ignore[method-assign]
    site.mend = lambda: vars(bmc).pop("answer")
    site.try_bmc()
    if status == 503:
        site.mend()


def leave_unconfirmed(site: Site) -> None:
    site.enrol_bmc(site.start_bmc())
    bmc_access.confirm(node := site.service.node("n"), by_operator=False)
    site.service.alter("n", internal=node.internal)
    site.try_bmc()


def let_certificate_expire(site: Site) -> None:
    site.enrol_bmc(site.start_bmc(ends=-DAY))
    site.try_bmc()
    renewed = site.start_bmc()
    site.mend = lambda: site.correct_address(renewed)


def name_no_system(site: Site) -> None:
    site.enrol_bmc(site.start_bmc(nvidia.DGX), redfish_system_id=None)
    site.try_bmc()


def swap_bmcs(site: Site) -> None:
    bmc = site.start_bmc()
    site.enrol_bmc(bmc)
    site.try_bmc()
    own_answer = bmc.answer

    def answer_of_another(*request: Any) -> Answer:
        answer = own_answer(*request)
        text = json.dumps(answer.body).replace(SERIAL, "S-2").replace(UUID, SECOND_UUID)
        return answer._replace(body=json.loads(text))

    bmc.answer = answer_of_another  # type: ignore[method-assign]
    site.try_bmc()
    site.start_bmc()


def lose_driver(site: Site) -> None:
    site.enrol_bmc(site.start_bmc())
    site.service.alter("n", driver="no-longer-here")
    site.mend = lambda: site.service.alter("n", driver="redfish")
    site.try_bmc()


def call_with(site: Site, **wrong: Any) -> None:
    """Send a callback that an inspection fails on."""
    site.begin()
    assert site.service.call_back(site.body | wrong).status_code == 202
    site.work()


def break_by_rule(site: Site, op: str, **args: str) -> None:
    site.service.enrol(name="taken")
    rule = site.service.bare_metal.post("/v1/inspection_rules", {"actions": [{"op": op, "args": args}]}).json["uuid"]
    site.blanks |= {"RULE": rule, "NAME": "taken"}
    site.mend = lambda: site.shell("rule", "delete", rule, check=0)
    call_with(site)


def time_out(site: Site, *, sends: slice | None = None, has_port: bool = True) -> None:
    """Let the time pass after the machine has sent this part of its callback, if any."""
    site.begin(has_port=has_port)
    if sends is not None:
        site.service.call_back(json.dumps(site.body)[sends])
    inspection = site.service.node("n").inspection or ""
    site.service.store.write(lambda tx: tx.inspections.update(inspection, clock_since=1.0))
    request_timeout(site)


def request_timeout(site: Site) -> None:
    site.service.store.write(lambda tx: transition.submit(tx, tx.nodes.get("n"), Event.TIMEOUT, process="periodic"))
    site.work()


def store_failure(site: Site, reason: Reason) -> None:
    """Fail as what needs other settings, other programs or a crash does."""
    site.begin()
    site.service.step("n", Event.FAIL, Fail(reason, "it failed"))


def fail_command(site: Site, reason: Reason) -> None:
    call_with(site)
    site.service.alter("n", last_error=transition.explain(Fail(reason, "it failed")))


def abort(site: Site) -> None:
    site.begin()
    site.shell("node", "abort", "n", check=0)
    site.work()


def restart(site: Site) -> None:
    site.begin()
    assert site.service.introspection.post("/v1/introspection/n").status_code == 202


def call_unknown(site: Site) -> None:
    site.begin(has_port=False)
    assert site.service.call_back(site.body).status_code == 404


def call_when_idle(site: Site) -> None:
    site.enrol_machine()
    assert site.service.call_back(site.body).status_code == 404


def call_as_two(site: Site) -> None:
    """Let one machine call with the MACs of two nodes that wait."""
    second = examples.mac()
    site.service.enrol(name="second")
    site.service.wait("second", mac=second)
    site.begin()
    body = callback_body(site.mac, second) | {"boot_interface": None}
    assert site.service.call_back(body).status_code == 404
    port = site.service.bare_metal.get(f"/v1/ports?address={second}").json["ports"][0]["uuid"]
    site.mend = lambda: site.service.bare_metal.delete(f"/v1/ports/{port}")


def call_in_part(site: Site) -> None:
    site.begin()
    assert site.service.call_back(json.dumps(site.body)[:-1]).status_code == 400


def call_twice(site: Site) -> None:
    site.begin()
    for serial in ("S-1", "S-2"):
        site.service.call_back(callback_body(site.mac, serial=serial))
    site.work()


def replace_board(site: Site, verb: str = "") -> None:
    call_with(site)
    site.boot()
    site.service.call_back(callback_body(site.mac, serial="S-2"))
    site.work()
    if verb:
        site.shell("node", verb, "n", check=0)
        site.work()


def lose_data(site: Site) -> None:
    site.begin()
    assert site.service.call_back(site.body).status_code == 202
    node = site.service.node("n").uuid
    site.service.store.write(lambda tx: [tx.data.drop(held) for held in tx.data.of_node(node)])
    site.work()


def throttle(site: Site) -> None:
    """Let another worker power a machine on, for a second."""
    site.enrol_machine()
    site.shell("inspect", "n", check=0)
    site.service.store.write(lambda tx: tx.leases.acquire(LEASE, "another", 1.0))
    site.worker = working.worker(site.service, site.drivers, throttle=0.01)
    site.worker.step()
    assert site.service.pending("n")


def change_password(site: Site) -> None:
    """Change a password that somebody has changed on the BMC meanwhile."""
    bmc = site.start_bmc(openbmc.ALL[0])
    site.enrol_bmc(bmc)
    site.shell("node", "manage", "n", check=0)
    site.work()
    bmc.logins.passwords[USER] = "set-by-Hand.1"
    site.shell("bmc", "set-password", "n", "--from-file", "-", check=0, stdin="new-Pass.word_12\n")
    site.work()
    bmc.logins.passwords[USER] = PASSWORD


def time_out_early(site: Site) -> None:
    site.begin()
    request_timeout(site)


def lose_secret(site: Site) -> None:
    site.enrol_bmc(site.start_bmc())
    site.service.alter("n", last_error=transition.explain(Fail(Reason.DECRYPTION_FAILED, "of another node")))
