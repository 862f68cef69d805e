"""Measure how soon each view of the console shows, with many documents and jobs.

    python -m lab.console_speed [--documents 10000] [--jobs 1000] [--judgments 1000] [--rounds 9]

Fills a vector DB in a server of its own, and goes through the views in the browser of the tests.
`goes` is from a change of the address within the page, as a link makes it, to the frame after the
view shows its data; `opens` is from the start of a navigation, as a reload or a shared link. Times
are in milliseconds: the median of all rounds, and the worst. `cpu` is the processor time of server
and browser for `goes`, the mean of all rounds, which other programs change little. `nodes` is the
number of elements. `sent` is the number of requests of `opens`, the page itself not among them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.bench.report.headless import Browser, find_browser
from tests.server.console import address, ask_path
from tests.server.harness import ServerProcess, run_config
from tests.server.test_console_sources import PDF_PAGES, chunk_with, upload
from tests.server.test_pdf_pages import pdf_of

PER_REQUEST = 500
LINES = 12
PAGE_SIZE = 25
LIMIT_MS = 200

DONE = "!document.querySelector('main [aria-busy=true]') && document.querySelector({part})"
GO = """
(async () => {{
  const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
  history.pushState(null, "", "/ui/nothing");
  dispatchEvent(new PopStateEvent("popstate"));
  while (document.querySelector("main h1")?.textContent !== "Not found") await frame();
  const start = performance.now();
  history.pushState(null, "", {path});
  dispatchEvent(new PopStateEvent("popstate"));
  while (!({done})) {{
    if (performance.now() - start > 60000) throw new Error("the view never showed");
    await frame();
  }}
  await frame();
  return [performance.now() - start, document.querySelectorAll("*").length];
}})()
"""
SENT = "performance.getEntriesByType('resource').filter((one) => one.transferSize > 0).length"
OPENED = """
(async () => {{
  while (!({done})) await new Promise((done) => requestAnimationFrame(() => done()));
  return performance.now();
}})()
"""


def documents(count: int) -> Iterator[dict[str, Any]]:
    """Yield documents of some chunks each, with names in no order."""
    for number in range(count):
        name = f"report {number * 7919 % count:05}"
        lines = [f"Line {at} of {name}: the sheep of farm {number} eat hay." for at in range(LINES)]
        yield {
            "document_id": f"d{number:05}",
            "content": "\n\n".join(lines * (1 + number % 3)),
            "metadata": {"title": name, "year": 2000 + number % 25, "farm": f"farm {number % 40}"},
        }


def fill(http: httpx.Client, count: int, jobs: int) -> None:
    """Store documents, the first of them by jobs, and wait until the jobs are done."""
    http.post("/v1/vector-dbs", json={"vector_db_id": "farm"}).raise_for_status()
    every = list(documents(count))
    while every:
        some, every = every[:PER_REQUEST], every[PER_REQUEST:]
        body = {"vector_db_id": "farm", "documents": some, "chunk_size_in_tokens": 128}
        path = "/v1/jobs" if jobs > 0 else "/v1/tool-runtime/rag-tool/insert"
        jobs -= len(some)
        http.post(path, json=body).raise_for_status()
    waiting = "/v1/jobs?limit=1&status=queued&status=running"
    while http.get(waiting).json()["data"]:
        time.sleep(0.5)


def judge(http: httpx.Client, count: int) -> None:
    """Judge a chunk of the first documents, each for a question of its own."""
    for number in range(count):
        path = f"/v1/vector-dbs/farm/documents/d{number:05}?limit=1"
        [chunk] = http.get(path).raise_for_status().json()["chunks"]
        body = {"vector_db_id": "farm", "name": "main", "grades": {chunk["chunk_id"]: 1}}
        body["question"] = f"what do the sheep of farm {number} eat?"
        http.post("/v1/judgments/questions", json=body).raise_for_status()


def views(count: int, pdf: str, chunk: str) -> dict[str, tuple[str, str]]:
    """Return the address of each view, and an element that it has once it shows its data.

    Args:
        count: Number of documents.
        pdf, chunk: Ids of a PDF and of its chunk.
    """
    db = ("dbs", "farm")
    listed = "#documents tr"
    heading = "main h1"
    return {
        "documents": (address(*db, "documents"), listed),
        "documents, largest first": (
            address(*db, "documents", sort="size", order="desc"),
            listed,
        ),
        "documents, last page": (
            address(*db, "documents", sort="updated", page=-(-count // PAGE_SIZE)),
            listed,
        ),
        "documents, named like 99": (address(*db, "documents", q="99"), listed),
        "a document": (address(*db, "documents", "d00002"), ".chunk"),
        "chunks of a document": (address(*db, "documents", "d00002", view="chunks"), ".chunk"),
        "a cited passage": (address(*db, "documents", pdf, chunk=chunk, view="text"), ".cited"),
        "a page of a PDF": (address(*db, "documents", pdf, chunk=chunk), ".page rect"),
        "ask": (ask_path("farm", "what do the sheep of farm 17 eat?"), "#sources .source"),
        "jobs": (address("jobs"), "#all-jobs tr"),
        "jobs of the vector DB": (address("jobs", db="farm"), "#all-jobs tr"),
        "settings": (address(*db, "settings"), "main .facts"),
        "evaluate": (address(*db, "evaluate"), "#questions tr"),
        "vector DBs": (address("dbs"), heading),
        "keys": (address("keys"), heading),
        "reports": (address("reports"), heading),
        "health": (address("health"), "#providers"),
    }


def cpu_ms() -> float:
    """Return the processor time so far of this process's children, in milliseconds."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            total += 1000 * (times.user + times.system)
    return total


def measure(browser: Browser, url: str, listed: dict[str, tuple[str, str]], rounds: int) -> int:
    """Print the times of each view, and return the number of views over the limit."""
    titles = ("goes", "worst", "opens", "worst", "cpu", "nodes", "sent")
    print(f"{'view':28}" + "".join(f"{each:>8}" for each in titles), flush=True)
    slow = 0
    for name, (path, part) in listed.items():
        done = DONE.format(part=json.dumps(part))
        goes, opens, used, nodes, sent = [], [], 0.0, 0, 0
        for _ in range(rounds):
            browser.open(url + path, 1440)
            opens.append(browser.evaluate(OPENED.format(done=done)))
            sent = browser.evaluate(SENT)
            before = cpu_ms()
            took, nodes = browser.evaluate(GO.format(path=json.dumps(path), done=done))
            used += cpu_ms() - before
            goes.append(took)
        times = [statistics.median(goes), max(goes), statistics.median(opens), max(opens)]
        times.append(used / rounds)
        slow += times[0] > LIMIT_MS
        print(
            f"{name:28}" + "".join(f"{each:8.0f}" for each in times) + f"{nodes:8}{sent:8}",
            flush=True,
        )
    return slow


def main() -> None:
    """Fill a server and measure; the exit code is 1 if a view takes more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--judgments", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    binary = find_browser()
    if binary is None:
        raise SystemExit("There is no Chromium: `make test` installs one.")
    limits = {"max_documents_per_insert": PER_REQUEST}
    with tempfile.TemporaryDirectory() as home:
        server = ServerProcess(Path(home), run_config(limits=limits))
        try:
            with httpx.Client(base_url=server.url, timeout=600) as http:
                fill(http, given.documents, given.jobs)
                judge(http, min(given.judgments, given.documents))
                pdf = upload(http, "fences.pdf", pdf_of(*PDF_PAGES))
            listed = views(given.documents + 1, pdf, chunk_with(server.url, pdf, "fence keeps"))
            with Browser(binary) as browser:
                slow = measure(browser, server.url, listed, given.rounds)
        finally:
            server.stop()
    raise SystemExit(1 if slow else 0)


if __name__ == "__main__":
    main()
