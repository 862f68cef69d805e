"""A headless Chromium, spoken to over two pipes in the DevTools protocol; no driver is needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Message = dict[str, Any]

INSTALLED = Path(sys.prefix) / "browser"
"""Where `make test` puts a browser, beside the libraries and fonts that it needs."""

ON_THE_PATH = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
TIMEOUT_SECONDS = 30

# The protocol's pipes are the file descriptors 3 and 4, which only the started process can know.
_START = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
_START += "os.execv(sys.argv[3], sys.argv[3:])"


def find_browser() -> str | None:
    """Return $CORRAL_BROWSER, the browser of `make test`, or one on the PATH; None without one."""
    given = os.environ.get("CORRAL_BROWSER")
    if given:
        return given
    installed = INSTALLED / "chromium"
    if installed.exists() and platform.machine() == "x86_64":
        return str(installed)
    return next((path for name in ON_THE_PATH if (path := shutil.which(name))), None)


# A picture is decoded where there is a decoder; data: addresses are all that the page may load.
_COUNT_COLORS = """
(async (source, boxes) => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  return (boxes ?? [{x: 0, y: 0, width: image.width, height: image.height}]).map((box) => {
    const counts = new Map();
    const pixels = context.getImageData(box.x, box.y, box.width, box.height).data;
    for (const color of new Uint32Array(pixels.buffer)) {
      counts.set(color, (counts.get(color) ?? 0) + 1);
    }
    return [...counts.values()].filter((count) => count >= 4).length;
  });
})(%s, %s)
"""


class Browser:
    """A browser with one page; everything that it says on the way is kept.

    Args:
        binary: Its program.
        switches: Further ones for its command line.

    Attributes:
        errors: What was written to the console as an error, thrown, or refused by the page's
            policy.
        requests: Addresses that were asked for, the pages themselves not among them.
    """

    def __init__(self, binary: str, *switches: str) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self._pages: set[str] = set()
        self._profile = tempfile.TemporaryDirectory()
        self._process, self._in, self._out = self._launch(binary, switches)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        self._profile.cleanup()

    def open(self, page: Path | str, width: int, height: int = 900, scheme: str = "light") -> None:
        """Load a file or an address in a window of this size and color scheme.

        Errors and requests begin anew: those of the page before, whose server may be gone, end.
        """
        self._call("Page.navigate", url="about:blank")
        self._until(lambda: bool(self.evaluate("location.href") == "about:blank"))
        self.errors.clear()
        self.requests.clear()
        self.resize(width, height, scheme)
        address = page if isinstance(page, str) else page.absolute().as_uri()
        self._pages.add(address)
        self._call("Page.navigate", url=address)
        self._until(lambda: self.evaluate("document.readyState") == "complete")
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def resize(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Give the window this size and color scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files in a file input, as a person would in its dialog."""
        script = f"document.querySelector({json.dumps(selector)})"
        found = self._call("Runtime.evaluate", expression=script)["result"]["objectId"]
        self._call("DOM.setFileInputFiles", objectId=found, files=[str(f) for f in files])

    def paste(self) -> None:
        """Paste what was copied into the element that has the focus."""
        self._call("Input.dispatchKeyEvent", type="keyDown", commands=["Paste"])

    def press(self, key: str) -> None:
        """Press and release a key: Tab, Enter or a letter."""
        code = {"Tab": 9, "Enter": 13}.get(key) or ord(key.upper())
        text = {} if key == "Tab" else {"text": "\r" if key == "Enter" else key}
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )

    def screenshot(self, box: dict[str, float] | None = None) -> bytes:
        """Return a PNG of the whole page, or of a box (x, y, width, height) in it."""
        if box is None:
            box = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {**box, "scale": 1}
        shot = self._call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def colors(self, png: bytes, boxes: Sequence[dict[str, float]] | None = None) -> list[int]:
        """Return how many colors each box of a picture has, of which each covers four pixels.

        Args:
            png: The picture.
            boxes: (x, y, width, height) in it; None for the whole picture.
        """
        source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        found = self.evaluate(_COUNT_COLORS % (json.dumps(source), json.dumps(boxes)))
        assert isinstance(found, list)
        return found

    def _launch(self, binary: str, more: Sequence[str]) -> tuple[subprocess.Popen[bytes], int, int]:
        to_browser, write = os.pipe()
        read, from_browser = os.pipe()
        switches = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-zygote",
        ]
        switches += ["--disable-dev-shm-usage", "--remote-debugging-pipe", "--disable-extensions"]
        switches += ["--no-first-run", "--disable-background-networking", "--disable-sync"]
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", _START, str(to_browser), str(from_browser), binary),
                *switches,
                *more,
                f"--user-data-dir={self._profile.name}",
            ],
            pass_fds=(to_browser, from_browser),
            env=_environment(Path(self._profile.name)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        return process, write, read

    def _call(self, method: str, **params: Any) -> Message:
        number = next(self._numbers)
        message: Message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                result: Message = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> Message:
        end = time.monotonic() + TIMEOUT_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._out], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser is silent"
            part = os.read(self._out, 1 << 20)
            assert part, f"the browser ended with code {self._process.wait()}"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: Message = json.loads(text)
        return message

    def _note(self, event: Message) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] == "error":
                self.errors.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                address = params["request"]["url"]
                if address not in self._pages and not address.startswith("data:"):
                    self.requests.append(address)

    def _until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not holds():
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)


def _environment(folder: Path) -> dict[str, str]:
    """The installed browser's own libraries and fonts, so that no machine has to have them."""
    found = dict(os.environ)
    if INSTALLED.exists() and "CORRAL_BROWSER" not in found:
        dirs = "".join(f"<dir>{d}</dir>" for d in (INSTALLED / "fonts", "/usr/share/fonts"))
        cache = f"<cachedir>{folder}/fonts</cachedir>"
        fonts = folder / "fonts.conf"
        fonts.write_text(f"<fontconfig>{dirs}{cache}</fontconfig>", "utf-8")
        found["LD_LIBRARY_PATH"] = str(INSTALLED / "al2023" / "lib")
        found["FONTCONFIG_FILE"] = str(fonts)
    return found
