"""A headless Chromium, spoken to over its DevTools pipe: the standard library is enough.

The protocol: https://chromedevtools.github.io/devtools-protocol/ ; with --remote-debugging-pipe the browser reads
messages from file descriptor 3 and writes them to 4, each ended by a zero byte.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
)  # fmt: skip
PATIENCE_S = 60.0


def chromium() -> str | None:
    """Its path, where there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. `events` are all messages that the browser sent of itself since the tab was opened."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._received = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command's result; `RuntimeError` where the browser refuses it, `TimeoutError` where it does not answer."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, file: Path) -> None:
        """Load a file and wait until it and its images are there."""
        self.events.clear()
        self.send("Page.navigate", url=file.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript, or the promise that it is, comes to; `AssertionError` where it throws."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        box = self.value(f"{element}.getBoundingClientRect().toJSON()")
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def type(self, text: str) -> None:
        """Keyboard input into what has the focus."""
        self.send("Input.insertText", text=text)

    def picture(self) -> bytes:
        """The window as PNG."""
        return b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def complaints(self) -> list[Any]:
        """Errors and warnings of the console, exceptions, and violations of the page's security policy."""
        return [
            event["params"]
            for event in self.events
            if event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled")
            or (event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"))
        ]

    def requests(self) -> list[str]:
        """Addresses that were asked for, those inside the page left out."""
        asked = (event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [url for params in asked if not (url := params["request"]["url"]).startswith("data:")]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._reader], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._reader, 1 << 20)
            if not part:
                raise RuntimeError("the browser has gone")
            self._received += part
        line, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser(profile: Path, window: tuple[int, int] = (1280, 900)) -> Iterator[Page]:
    """A page of a browser that is gone afterwards, its helpers included."""
    to_browser, writer = os.pipe()
    reader, from_browser = os.pipe()
    flags = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={window[0]},{window[1]}", "--remote-debugging-pipe"]
    shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
    process = subprocess.Popen(
        ["bash", "-c", shell, "bash", str(chromium()), *flags, "about:blank"],
        pass_fds=(to_browser, from_browser), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(reader, writer)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(reader)
        os.close(writer)
