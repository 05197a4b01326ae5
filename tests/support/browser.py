"""A headless Chromium, driven by the DevTools protocol over two pipes; it needs no port and no driver."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE

_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Chromium ends all its requests with this error when an address of the machine comes or goes, as they do while other
# tests make network namespaces. A user would load the page again.
_NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
# The requests without which a page is not complete, by DevTools' names.
_PARTS = ("Document", "Stylesheet", "Script")
# Key -> its code for Windows, by which browsers know it, and what it types.
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "ArrowDown": (40, ""), "Escape": (27, "")}


class BrowserError(Exception):
    """Chromium refused a command, or did not answer."""


class Chromium:
    """One page of one process. ``complaints``: console errors, exceptions and violations of the content policy."""

    def __init__(self, profile: Path, *, fonts: Path | None = None) -> None:
        """``fonts``: a configuration of fontconfig, instead of that of this machine."""
        program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
        if program is None:
            raise BrowserError("Chromium is not installed; run: tools/setup.sh browser")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        options = ["--headless", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb",
                   "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                   f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # fmt: skip
        # The protocol uses descriptors 3 and 4.
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, *options, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | ({} if fonts is None else {"FONTCONFIG_FILE": str(fonts)}),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def close(self) -> None:
        """End the process."""
        os.close(self._out)
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def command(self, method: str, **params: Any) -> Any:
        """Return the result of a command."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def go(self, url: str) -> None:
        """Load a page, with everything that belongs to it."""
        self._events.clear()
        self.command("Page.navigate", url=url)
        self._loaded()

    def click(self, selector: str) -> None:
        """Click on what leads to another page, and load that."""
        self._events.clear()
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self._loaded()

    def press(self, key: str, *, leads: bool = False) -> None:
        """Press and release a key; with ``leads``, load the page to which that leads."""
        self._events.clear()
        code, text = _KEYS[key]
        known = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.command("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **known)
        self.command("Input.dispatchKeyEvent", type="keyUp", **known)
        if leads:
            self._loaded()

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file in a form, as a user does."""
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.command("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression; a promise is awaited."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(str(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def text(self) -> str:
        """Return the text of the page without its frame; "" while it is left for another one."""
        try:
            found = self.evaluate("document.querySelector('main')?.innerText ?? ''")
        except BrowserError as exc:
            if "navigated" not in str(exc):
                raise
            return ""
        return " ".join(str(found).split())

    def shape(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """Set the size of the page, and the preferred colors."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """Return what is visible, as PNG."""
        return base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"])

    def _loaded(self) -> None:
        """Wait until the page is loaded; load it again if Chromium gave up on a part of it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            while not any(event["method"] == "Page.loadEventFired" for event in self._events):
                self._receive(deadline)
            if not any(_is_interrupted(event) for event in self._events):
                return
            self._events.clear()
            self.command("Page.reload")

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrowserError("Chromium did not answer in time")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise BrowserError("Chromium has ended")
            self._buffer += data
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self._events.append(message)
            self._complain(message["method"], message["params"])
        return message

    def _complain(self, method: str, params: Any) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            if _NETWORK_CHANGED in params["entry"]["text"]:
                return
            self.complaints.append(f"{params['entry'].get('url', '')} {params['entry']['text']}"[:500])


def _is_interrupted(event: dict[str, Any]) -> bool:
    """Whether the event says that a page, or a part of it, was not loaded because this machine's addresses changed."""
    if event["method"] != "Network.loadingFailed" or event["params"]["type"] not in _PARTS:
        return False
    return str(event["params"]["errorText"]) == _NETWORK_CHANGED
