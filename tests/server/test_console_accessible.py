"""Every view of the console at three widths, in light and dark: axe-core and the window's width.

`CORRAL_SCREENSHOTS_OF_ALL=FOLDER` stores a screenshot of each, and `CORRAL_SCREENSHOTS=FOLDER` the
documentation's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import httpx
import pytest

from ..bench.report.headless import INSTALLED, Browser
from .console import CATCH, MESSAGE, address, ask_path, click, create_key, fill, sign_in, wait
from .harness import live_server, run_config, wait_until
from .test_console_evaluate import judged_store
from .test_console_pictures import FARM, QUESTION
from .test_console_sources import chunk_with, fill_farm, upload

pytest.importorskip("pypdfium2")

AXE = INSTALLED / "axe.min.js"
PICTURES = {"evaluate": ("section:has(.tuning)", 1100), "health": ("main", 640)}
"""What the documentation shows of views: an element, and its height at most."""
SIZES = [*product((1440, 768, 390), ("light", "dark"))]
VIOLATIONS = "axe.run().then((it) => it.violations.map((one) => [one.id, one.nodes[0].html]))"
CUT = (
    "[...document.querySelectorAll('main .scroll')]"
    ".filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"
)
"""The tables with columns that are not in their frame."""
OPEN_ALL = (
    "document.querySelectorAll('main details:not([open]) > summary').forEach((one) => one.click())"
)


@dataclass(frozen=True)
class View:
    """A view of the console.

    Attributes:
        path: Its address; `{NAME}` is replaced by the id of a file, `{chunk}` by that of a chunk.
        ready: A script that is true once it shows its data.
        presses: Labels of buttons to press then.
        then: A script that is true after that.
    """

    path: str
    ready: str
    presses: tuple[str, ...] = ()
    then: str = "true"


def has(selector: str, count: int = 1) -> str:
    """Return the script that is true once the page has elements."""
    return f"document.querySelectorAll({selector!r}).length >= {count}"


DOCUMENT = "/ui/dbs/farm/documents/{%s}"
VIEWS = {
    "ask": View(address("dbs", "farm", "ask"), has("#question")),
    "answer": View(ask_path("farm", QUESTION), has(".answered[aria-busy=false] #sources li")),
    "why": View(
        ask_path("farm", QUESTION, "why", "context", "options", "copies"),
        f"{has('.answered[aria-busy=false]')} && {has('.hit')} && {has('#context')}",
    ),
    "documents": View(
        address("dbs", "farm", "documents"), f"{has('#documents tr', 6)} && {has('#jobs .failed')}"
    ),
    "nothing": View(address("dbs", "farm", "documents", q="nothing like it"), has("#no-documents")),
    "source": View(DOCUMENT % "winter" + "?chunk={chunk}", has(".chunk.cited .code-number")),
    "code": View(DOCUMENT % "feed", has(".code .code-keyword")),
    "page": View(DOCUMENT % "fences" + "?page=1&chunk={page_chunk}", has(".page rect")),
    "chunks": View(DOCUMENT % "fences" + "?view=chunks", has(".chunks .chunk")),
    "about": View(DOCUMENT % "winter" + "?view=about", has("#attributes")),
    "evaluate": View(
        address("dbs", "db", "evaluate"),
        f"{has('#questions tr', 10)} && {has('.tuning[data-status=completed] .trials tr', 5)}",
        ("Suggest questions",),
        has("#suggestions li", 10),
    ),
    "settings": View(address("dbs", "farm", "settings"), has("main .facts dt", 5)),
    "databases": View(address("dbs"), has("#register-form"), ("Sizes",), has("main td.n", 6)),
    "jobs": View(address("jobs"), has("#all-jobs tr", 5)),
    "keys": View(address("keys"), has("#keys tr")),
    "reports": View(address("reports"), has("main h1")),
    "health": View(address("health"), "document.querySelector('.charts')?.dataset.looks >= 3"),
    "missing": View(address("nothing"), has("main h1")),
}


@dataclass(frozen=True)
class Filled:
    """A server with something in each view.

    Attributes:
        ids: The ids of files and chunks by their names in `View.path`.
        key: An admin's key.
    """

    url: str
    ids: dict[str, str]
    key: str


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Yield a server with documents, a failed job, judgments, a tuning and a key."""
    home = tmp_path_factory.mktemp("console")
    with live_server(run_config(dimension=8), home) as url:
        ids = fill_farm(url)
        judged_store(url, 40)
        with httpx.Client(base_url=url, timeout=60) as http:
            for name in ("winter.md", "dogs.md"):
                ids[name] = upload(http, name, FARM[name].encode())
            broken = {"file": ("broken.pdf", b"%PDF-1.7\nbroken")}
            sent = http.post("/v1/files", files=broken, data={"purpose": "assistants"}).json()
            http.post("/v1/vector_stores/farm/files", json={"file_id": sent["id"]})
            path = "/v1/tunings?vector_db_id=db"
            http.post("/v1/tunings", json={"vector_db_id": "db", "name": "main"})
            wait_until(lambda: http.get(path).json()["data"][0]["status"] == "completed", 300)
        ids = {name.split(".")[0]: document for name, document in ids.items()}
        ids["chunk"] = chunk_with(url, ids["winter"], "hay")
        ids["page_chunk"] = chunk_with(url, ids["fences"], "fence keeps")
        yield Filled(url, ids, create_key(home, "admin"))


def keep(browser: Browser, name: str, size: str) -> None:
    """Keep a picture of the whole page, and of what the documentation shows of it."""
    if folder := os.environ.get("CORRAL_SCREENSHOTS_OF_ALL"):
        (Path(folder) / f"{name}-{size}.png").write_bytes(browser.screenshot())
    folder = os.environ.get("CORRAL_SCREENSHOTS")
    if folder and size == "1440-light" and name in PICTURES:
        selector, most = PICTURES[name]
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        at = "(({x, y, width, height}) => ({x, y: y + scrollY, width,"
        at += f" height: Math.min(height, {most})}}))({box})"
        (Path(folder) / f"console-{name}.png").write_bytes(browser.screenshot(browser.evaluate(at)))


def check(browser: Browser, name: str) -> None:
    """Check what the page shows at every size, in light and dark."""
    if not AXE.exists():
        pytest.skip("no Chromium: axe-core comes with it")
    browser.evaluate(AXE.read_text("utf-8") + "; 0")
    violations, wide, cut = [], [], []
    for width, scheme in SIZES:
        browser.resize(width, 900, scheme)
        browser.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        violations += [(width, scheme, *each) for each in browser.evaluate(VIOLATIONS)]
        if browser.evaluate("document.documentElement.scrollWidth") > width:
            wide.append(width)
        cut += [(width, label) for label in browser.evaluate(CUT)]
        keep(browser, name, f"{width}-{scheme}")
    assert (violations, wide, cut) == ([], [], [])


def open_view(browser: Browser, filled: Filled, view: View) -> None:
    """Open a view with a key, and everything that is closed in it."""
    browser.open(filled.url + view.path.format(**filled.ids), 1440)
    wait(browser, f"({view.ready}) || {has('#key-form')}")
    if browser.evaluate(has("#key-form")):
        sign_in(browser, filled.key, stays=True)
    wait(browser, view.ready)
    browser.errors.clear()  # of the requests without a key
    for label in view.presses:
        click(browser, label)
    wait(browser, view.then)
    browser.evaluate(OPEN_ALL)
    wait(browser, "document.querySelector('main [aria-busy=true]') === null")


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_accessible(filled: Filled, browser: Browser, name: str) -> None:
    """axe-core finds no violation, and no view is wider than its window, no table than its frame.

    If this fails: the message has the width, the scheme, axe's rule and the element.
    """
    open_view(browser, filled, VIEWS[name])
    check(browser, name)
    assert browser.errors == []


def test_the_form_for_a_key_is_accessible(filled: Filled, browser: Browser) -> None:
    """As every view: empty, and with a key that is refused."""
    browser.open(f"{filled.url}/ui/jobs", 1440)
    browser.evaluate("sessionStorage.clear()")
    browser.open(f"{filled.url}/ui/jobs", 1440)
    sign_in(browser, f"corral_{'0' * 12}_{'0' * 64}")
    wait(browser, "document.querySelector('main [role=alert]') !== null")
    check(browser, "form")


def test_a_question_before_an_act_and_its_message_are_accessible(
    filled: Filled, browser: Browser
) -> None:
    """A new key, the question before it is revoked, and the message after a copy."""
    open_view(browser, filled, VIEWS["keys"])
    browser.evaluate(CATCH)
    fill(browser, "[name=user]", "ann")
    browser.evaluate("document.getElementById('new-key').requestSubmit()")
    wait(browser, has("#secret"))
    click(browser, "Revoke")
    click(browser, "Copy")
    wait(browser, f"{MESSAGE} !== ''")
    check(browser, "secret")
