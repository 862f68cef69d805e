"""Pages for people: `/` and `/docs`, whole without a network."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from corral.bench.report import render_html

from ..bench.report.example_report import example_report
from ..bench.report.headless import Browser
from .console import wait
from .harness import InProcess, live_server, message_of, run_config

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_the_root_says_what_this_is(app: InProcess) -> None:
    """JSON with the places for a program, the console for a browser; every place is there.

    If this fails: whoever opens the server's address sees an error.
    """
    said = app.ok("GET", "/")
    assert said.pop("name") == "Corral"
    assert said.pop("version")
    assert said["docs"] == "/docs"
    moved = app.send("GET", "/", headers=HTML)
    assert (moved.status_code, moved.headers["location"]) == (307, "ui/")
    page = app.send("GET", "/ui/", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    linked = ["/" + path for path in re.findall(r'(?:href|src)="([^"#.][^"#]*)"', page.text)]
    assert len(linked) > 3
    for path in [*linked, *said.values()]:
        assert app.send("GET", path).status_code == 200


def test_the_documentation_comes_from_here(app: InProcess) -> None:
    """Every address in the page is one of this server's, and is there."""
    page = app.send("GET", "/docs", headers=HTML)
    assert page.status_code == 200
    assert not re.findall(r"""["'(](?:https?:)?//""", page.text)
    assert "default-src 'self'" in page.headers["content-security-policy"]
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(addresses) == 3
    for address in [*addresses, "openapi.json"]:
        got = app.send("GET", f"/{address}")
        assert got.status_code == 200
        assert len(got.content) > 100
    assert (
        app.send("GET", "/docs/assets/swagger-ui-bundle.js")
        .headers["content-type"]
        .startswith(("text/javascript", "application/javascript"))
    )


@pytest.mark.parametrize("name", ["%2e%2e", "%2e%2e%2fmain.py", "__init__.py", "x.css"])
def test_no_other_file_is_served(app: InProcess, name: str) -> None:
    """Only the three files of Swagger UI, whatever the address says."""
    refused = app.send("GET", f"/docs/assets/{name}")
    assert refused.status_code == 404
    assert message_of(refused)


def test_a_browser_shows_the_documentation_without_a_network(url: str, browser: Browser) -> None:
    """Every route is on the page, no other host is asked, and the page's policy stops nothing.

    If this fails: /docs is a white page, or works only where the internet does.
    """
    browser.open(f"{url}/docs", 1000)
    deadline = time.monotonic() + 60
    while not (shown := browser.evaluate("document.querySelectorAll('.opblock').length")):
        assert time.monotonic() < deadline, browser.errors
        time.sleep(0.1)
    assert shown > 15
    assert browser.errors == []
    assert [r for r in browser.requests if not r.startswith((f"{url}/", "data:"))] == []


def test_reports_are_listed_in_a_sandbox(app: InProcess) -> None:
    """Those in the data folder's `reports`, the newest first; no other file is served."""
    for name in ("one", "two <b>"):
        folder = app.home / "reports" / name
        folder.mkdir(parents=True)
        (folder / "report.html").write_text(f"<h1>{name}</h1>", "utf-8")
    (app.home / "reports" / "report.html").write_text("outside")
    listed = app.ok("GET", "/reports")["data"]
    assert {report["name"] for report in listed} == {"one", "two <b>"}
    shown = app.send("GET", "/reports/two%20%3Cb%3E")
    assert shown.status_code == 200
    assert "sandbox" in shown.headers["content-security-policy"]
    for path in ("/reports/..%2Freports", "/reports/%2e%2e%2freports%2fone", "/reports/none"):
        assert app.send("GET", path).status_code == 404


def test_a_report_sorts_its_tables_and_asks_for_nothing(tmp_path: Path, browser: Browser) -> None:
    """Opened from the page, its buttons work; its script is of no origin and reaches no route.

    If this fails: the buttons are dead, or a text in a report acts as whoever looks at it.
    """
    folder = tmp_path / "reports" / "one"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text(render_html(example_report()), "utf-8")
    with live_server(run_config(), tmp_path) as url:
        browser.open(f"{url}/ui/reports", 1280)
        opened = wait(browser, "document.querySelector('#reports a')?.href")
        browser.open(opened, 1280)
        browser.evaluate("document.querySelector('thead button').click()")
        sort = "document.querySelector('thead th').getAttribute('aria-sort')"
        assert browser.evaluate(sort) == "ascending"
        assert browser.errors == []
        assert browser.evaluate("self.origin") == "null"
        for path in ("/v1/vector-dbs", "/v1/health"):
            asked = f"fetch({json.dumps(url + path)}).then(() => 'reached', () => 'refused')"
            assert browser.evaluate(asked) == "refused"
