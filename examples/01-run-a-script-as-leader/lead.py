#!/usr/bin/env python3
"""Run a command on one of many hosts, only while this host holds the lease.

    lead.py [options] NAME -- COMMAND [ARGUMENT...]

Start the same command line on every host. One host runs the command, the others wait. The command
finds its epoch in LEASE_EPOCH: a number that grows with every new leader. Pass it to the systems
that the command writes to, so that they can reject writes of an earlier leader.

If the service requires a login, put an access token (`ferroscope token create`) into FERROSCOPE_TOKEN,
or its file's path into FERROSCOPE_TOKEN_FILE. The token is sent over plain HTTP to this host only; for
another host use https, with FERROSCOPE_CACERT for a private certificate authority. The command does not get it.

Exit codes: that of the command (128 + signal if a signal killed it); 75 if the lease was lost and
the command was killed; 0 after SIGTERM. Needs only Linux and Python 3.8 or newer.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

LOST = 75
MARGIN = 0.2  # the fraction of the lease's duration that is reserved for stopping the command


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: the token is for this service only."""

    def redirect_request(self, *_):
        return None


class Service:
    """The lease API; every call returns (status, document), with status 0 if there was no response."""

    def __init__(self, url, name, timeout, token=""):
        self._url = url.rstrip("/") + "/v1/leases/" + quote(name)
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", **({"X-Auth-Token": token} if token else {})}
        context = ssl.create_default_context(cafile=os.environ.get("FERROSCOPE_CACERT"))
        self._opener = urllib.request.build_opener(NoRedirects, urllib.request.HTTPSHandler(context=context))

    def acquire(self, holder, duration):
        return self._call("POST", "", {"holder": holder, "duration": duration, "data": f"pid {os.getpid()}"})

    def renew(self, lease):
        return self._call("PUT", "", {"epoch": lease["epoch"], "token": lease["token"]})

    def release(self, lease):
        return self._call("DELETE", "?" + urlencode({"epoch": lease["epoch"], "token": lease["token"]}), None)

    def _call(self, method, query, body):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + query, data, self._headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else {}
        except urllib.error.HTTPError as error:
            text = error.read()
            try:
                return error.code, json.loads(text)
            except ValueError:
                return error.code, {}
        except (OSError, ValueError) as error:
            return 0, {"error": str(error)}


def boottime():
    """Return a monotonic time in seconds that also advances while the host is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def say(text):
    print(f"lead: {text}", file=sys.stderr, flush=True)


def acquire(service, options, stop):
    """Retry until the lease is acquired; return it and the end of its trusted time. (None, 0) if stopped."""
    said = None
    while not stop.is_set():
        asked = boottime()
        status, answer = service.acquire(options.holder, options.duration)
        if status == 201:
            return answer, asked + options.duration * (1 - MARGIN)
        if status in (400, 401, 403, 404):
            error = json.loads(answer.get("error_message", "{}"))
            raise SystemExit(f"lead: the service rejected the request: {error.get('faultstring', f'HTTP {status}')}")
        lease = answer.get("lease") or {}
        why = f"held by {lease.get('holder')}" if status == 409 else f"no response: {status or answer['error']}"
        if why != said:
            say(why)
            said = why
        pause = lease.get("remaining") or options.poll
        stop.wait(min(pause, options.poll))
    return None, 0.0


class Renewer(threading.Thread):
    """Renews the lease in a separate thread, so that a missing response does not delay anything else."""

    def __init__(self, service, lease, trusted, duration):
        super().__init__(daemon=True)
        self.trusted = trusted
        self.lost = ""
        self._service, self._lease, self._duration = service, lease, duration

    def run(self):
        while not self.lost:
            time.sleep(self._duration / 4)
            asked = boottime()
            status, _ = self._service.renew(self._lease)
            if status == 200:
                self.trusted = asked + self._duration * (1 - MARGIN)
            elif status in (404, 409):
                self.lost = "the lease has another holder"

    def why_not(self):
        """Return why the lease can no longer be trusted; empty if it can."""
        return self.lost or ("" if boottime() < self.trusted else "the lease could not be renewed in time")


def die_with_parent():
    """Let the kernel kill the command if this process is killed, because no code runs here then."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def kill(command, number):
    """Send a signal to the command and all its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command.pid, number)


def wait(command, seconds):
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(seconds)


def lead(service, options, lease, trusted, stop):
    """Run the command under the lease; return the exit code."""
    say(f"leading {options.name} in epoch {lease['epoch']}")
    environment = dict(os.environ, LEASE_NAME=options.name, LEASE_EPOCH=str(lease["epoch"]))
    environment.pop("FERROSCOPE_TOKEN", None)
    renewer = Renewer(service, lease, trusted, options.duration)
    command = subprocess.Popen(options.command, env=environment, start_new_session=True, preexec_fn=die_with_parent)
    renewer.start()
    try:
        while command.poll() is None and not stop.is_set():
            if renewer.why_not():
                say(f"{renewer.why_not()}; killing the command")
                return LOST  # no SIGTERM: the command must not do anything else
            wait(command, 0.1)
        if command.poll() is None:
            kill(command, signal.SIGTERM)
            wait(command, max(0.0, min(options.grace, renewer.trusted - boottime())))
    finally:
        kill(command, signal.SIGKILL)
        command.wait()
    renewer.lost = "over"
    service.release(lease)
    if stop.is_set():
        return 0
    return command.returncode if command.returncode >= 0 else 128 - command.returncode


def find_token(url):
    """Return the token from the environment, "" if there is none; it must not cross a network in plain text."""
    token, file = os.environ.get("FERROSCOPE_TOKEN", ""), os.environ.get("FERROSCOPE_TOKEN_FILE", "")
    if not token and file:
        token = Path(file).read_text()
    parts = urlsplit(url)
    if token and parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise SystemExit(f"lead: the token would be sent to {parts.hostname} over plain HTTP; use https")
    return token.strip()


def main():
    parser = argparse.ArgumentParser(description="Run a command on one of many hosts.")
    parser.add_argument("--url", default=os.environ.get("FERROSCOPE_URL", "http://127.0.0.1:6385"))
    parser.add_argument("--holder", default=f"{socket.gethostname()}:{os.getpid()}", help="name of this holder")
    parser.add_argument("--duration", type=float, default=6.0, help="lifetime of the lease without renewal, in seconds")
    parser.add_argument(
        "--poll", type=float, default=0.5, help="seconds between two attempts while another holder leads"
    )
    parser.add_argument(
        "--grace", type=float, default=5.0, help="seconds to wait for the command to exit after SIGTERM"
    )
    parser.add_argument("name", help="name of the lease, such as backup/nightly")
    parser.add_argument("command", nargs="+", help="the command to run, after --")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    token = find_token(options.url)
    service = Service(options.url, options.name, timeout=max(0.5, options.duration / 4.0), token=token)
    lease, trusted = acquire(service, options, stop)
    return 0 if lease is None else lead(service, options, lease, trusted, stop)


if __name__ == "__main__":
    sys.exit(main())
