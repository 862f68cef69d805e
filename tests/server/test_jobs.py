"""Jobs over HTTP: submit, list, watch, cancel, retry; and several processes of one server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from corral.providers.state.tables import JOBS

from ..state_database import rows_of
from .harness import InProcess, Json, message_of, run_config, wait_until, yaml_of


def document(name: str, text: str, **more: Any) -> Json:
    """Return a document as the wire has it."""
    return {"document_id": name, "content": {"type": "text", "text": text}, **more}


def finished(app: InProcess, batch_id: str) -> list[Json]:
    """Wait until a batch is final and return its jobs, the oldest first."""
    path = f"/v1/jobs?batch_id={batch_id}&order=asc&limit=1000"
    states = {"queued", "running"}
    wait_until(lambda: not states & {job["status"] for job in pause(app, path)["data"]})
    jobs: list[Json] = app.ok("GET", path)["data"]
    return jobs


def pause(app: InProcess, path: str) -> Json:
    """Let the app work for a moment, then ask it."""

    async def moment() -> None:
        await asyncio.sleep(0.05)

    app.run(moment)
    found: Json = app.ok("GET", path)
    return found


def test_documents_go_in_behind_the_request(app: InProcess) -> None:
    """POST answers with jobs at once; they end as completed, and the texts are found.

    If this fails: a client has to hold a request open for as long as a folder takes.
    """
    app.register()
    body = {"vector_db_id": "db", "documents": [document("a", "hay"), document("b", "corn")]}
    reply = app.ok("POST", "/v1/jobs", body)
    assert [job["document_id"] for job in reply["jobs"]] == ["a", "b"]
    jobs = finished(app, reply["batch_id"])
    assert [job["status"] for job in jobs] == ["completed", "completed"]
    assert jobs[0]["progress"]["embedded"] == 1
    assert set(app.contents("hay corn")) == {"hay", "corn"}
    again = app.ok("POST", "/v1/jobs", {**body, "skip_unchanged": True})
    assert (again["jobs"], again["unchanged"]) == ([], ["a", "b"])


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/tool-runtime/rag-tool/insert"])
def test_a_request_says_where_chunks_end(app: InProcess, path: str) -> None:
    """`split_on` in a job's body or an insert's wins over the registration; the same is unchanged.

    If this fails: look at `Sizes.of`, and at how a job's record holds what was chosen.
    """
    app.register(chunking={"split_on": "##"})
    body = {"vector_db_id": "db", "documents": [document("a", "hay ## corn -- rye")]}
    for chosen, texts in (
        ({}, {"hay", "corn -- rye"}),
        ({"split_on": "--"}, {"hay ## corn", "rye"}),
    ):
        reply = app.ok("POST", path, {**body, **chosen, "skip_unchanged": True})
        if "batch_id" in reply:
            assert [job["status"] for job in finished(app, reply["batch_id"])] == ["completed"]
        assert set(app.contents("hay corn rye")) == texts
        again = app.ok("POST", path, {**body, **chosen, "skip_unchanged": True})
        assert again["unchanged"] == ["a"]


def test_changes_are_streamed(app: InProcess) -> None:
    """Server-sent events: a `job` for each change, `done` at the end."""
    app.register()
    body = {"vector_db_id": "db", "documents": [document("a", "hay")]}
    batch_id = app.ok("POST", "/v1/jobs", body)["batch_id"]
    stream = app.send("GET", f"/v1/jobs/events?batch_id={batch_id}")
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", stream.text)
    assert [name for name, _ in events][-1] == "done"
    told = [json.loads(data) for name, data in events if name == "job"]
    assert told[-1]["status"] == "completed"


def test_bad_submissions_are_refused(app: InProcess) -> None:
    """Nothing to do, unknown names, a document twice: a 4xx that says so, and nothing is queued."""
    app.register()
    one = document("a", "hay")
    for body, status in (
        ({"vector_db_id": "db"}, 400),
        ({"vector_db_id": "nowhere", "documents": [one]}, 400),
        ({"vector_db_id": "db", "documents": [one, one]}, 400),
        ({"vector_db_id": "db", "file_ids": ["file-0"]}, 400),
        ({"vector_db_id": "db", "documents": [one], "chunk_size_in_tokens": 0}, 400),
        ({"vector_db_id": "db", "documents": [one], "more": 1}, 400),
    ):
        refused = app.send("POST", "/v1/jobs", body)
        assert refused.status_code == status, refused.text
        assert message_of(refused)
    assert app.ok("GET", "/v1/jobs")["data"] == []
    for path in ("/v1/jobs/job_0", "/v1/jobs/events", "/v1/jobs?after=job_0"):
        assert app.send("GET", path).status_code == 400
    assert app.ok("GET", f"/v1/jobs?changed_after={2**63 - 1}")["data"] == []
    refused = app.send("GET", f"/v1/jobs?changed_after={2**63}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "changed_after")
    for name in ("job_id", "batch_id"):
        refused = app.send("GET", f"/v1/jobs/events?{name}=nope")
        assert refused.status_code == 400, name
        assert "'nope'" in message_of(refused)
        assert refused.json()["error"]["code"] == "not_found"
    assert app.send("POST", "/v1/jobs/job_0/cancel").status_code == 400
    assert app.send("POST", "/v1/jobs/retry", {}).status_code == 400


def test_only_files_for_it_are_ingested(app: InProcess) -> None:
    """A file of another purpose, an unknown one and one twice are refused, and nothing is queued.

    If this fails: what was uploaded for fine-tuning is found by a search.
    """
    app.register()
    ids = {}
    for purpose in ("assistants", "user_data", "batch", "fine-tune", "vision", "evals"):
        sent: Json = {"files": {"file": ("a.txt", b"hay")}, "data": {"purpose": purpose}}
        ids[purpose] = app.send("POST", "/v1/files", **sent).json()["id"]
    good = ids.pop("assistants"), ids.pop("user_data")
    for wrong in (*ids.values(), "file-0", good[0]):
        body = {"vector_db_id": "db", "file_ids": [good[0], wrong]}
        refused = app.send("POST", "/v1/jobs", body)
        assert refused.status_code == 400
        assert message_of(refused)
        assert refused.json()["error"]["param"] == "file_ids[1]"
    assert app.ok("GET", "/v1/jobs")["data"] == []
    reply = app.ok("POST", "/v1/jobs", {"vector_db_id": "db", "file_ids": [*good]})
    assert {job["status"] for job in finished(app, reply["batch_id"])} == {"completed"}


def test_a_failed_job_says_why_and_can_be_retried(app: InProcess) -> None:
    """By its id, or all of a vector DB."""
    app.register()
    broken = {"document_id": "b", "content": {"uri": "data:application/pdf;base64,JVBERg=="}}
    body = {"vector_db_id": "db", "documents": [broken]}
    batch_id = app.ok("POST", "/v1/jobs", body)["batch_id"]
    (job,) = finished(app, batch_id)
    assert job["status"] == "failed"
    assert job["error_code"] == "invalid_file"
    assert job["error_message"]
    retried = app.ok("POST", f"/v1/jobs/{job['job_id']}/retry")
    assert retried["job_id"] == job["job_id"]
    assert finished(app, batch_id)[0]["status"] == "failed"
    assert app.ok("POST", "/v1/jobs/retry", {"vector_db_id": "db"}) == {"count": 1}
    finished(app, batch_id)


# --- several processes ---------------------------------------------------------------------------


@contextmanager
def workers(home: Path, count: int) -> Iterator[str]:
    """Run `corral serve --workers`, each with one worker for jobs, and yield its address."""
    (home / "run.yaml").write_text(yaml_of(run_config(ingestion={"workers": 1})))
    log = home / "log"
    words = ["--home", str(home), "serve", "--port", "0", "--workers", str(count)]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "corral.server.cli.cli", *words],
            stdout=file,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        wait_until(lambda: log.read_text().count("startup complete") == count, 60)
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text())
        assert found is not None, log.read_text()
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield the address and the data folder of a server of two processes, which live on."""
    home = tmp_path_factory.mktemp("pair")
    with workers(home, 2) as url:
        yield url, home


def test_several_processes_do_each_job_once(pair: tuple[str, Path]) -> None:
    """`corral serve --workers 2`: both take from the table, and no job is done twice.

    If this fails: more processes embed everything more than once, or store over each other.
    """
    url, home = pair
    with httpx.Client(base_url=url, timeout=60) as http:
        registered = {"vector_db_id": "db", "embedding_model": "hashing"}
        http.post("/v1/vector-dbs", json=registered).raise_for_status()
        # Some are long: short ones are done together, all of them before the other process looks.
        words = ["grass " * (50 if n % 3 else 20_000) for n in range(60)]
        documents = [document(f"d{n}", f"hay {n}. {text}") for n, text in enumerate(words)]
        body = {"vector_db_id": "db", "documents": documents}
        reply = http.post("/v1/jobs", json=body).raise_for_status().json()
        owners: set[str] = set()
        query = select(JOBS.c.owner).where(JOBS.c.owner.is_not(None))

        def done() -> bool:
            owners.update(owner for (owner,) in rows_of(home, query))
            asked = f"/v1/jobs?batch_id={reply['batch_id']}&limit=1000"
            jobs = http.get(asked).raise_for_status().json()["data"]
            states = Counter(job["status"] for job in jobs)
            assert {job["attempts"] for job in jobs} <= {0, 1}
            return states == {"completed": 60}

        wait_until(done, 60)
        assert len(owners) == 2
        listed = http.get("/v1/vector-dbs/db/documents?limit=100").json()["data"]
        assert len(listed) == 60


def scraped(url: str) -> str:
    """Return the metrics of a server."""
    return httpx.get(f"{url}/metrics", timeout=60).raise_for_status().text


def test_a_process_that_is_busy_for_some_seconds_lives_on(pair: tuple[str, Path]) -> None:
    """A process that stands still for 7 s, as while a model loads on a busy machine, is not killed.

    If this fails: its requests end without a response.
    """
    log = (pair[1] / "log").read_text()
    busy = int(re.findall(r"Started server process \[(\d+)\]", log)[-1])
    os.kill(busy, signal.SIGSTOP)
    time.sleep(7)
    os.kill(busy, signal.SIGCONT)  # raises ProcessLookupError if it was killed


def test_several_processes_count_together(pair: tuple[str, Path]) -> None:
    """/metrics has the requests of all processes, whichever of them answers.

    If this fails: each scrape shows another process, and rates jump up and down.
    """
    url, _ = pair
    for _ in range(30):  # a connection each, so that both processes get some
        httpx.get(f"{url}/v1/version", timeout=60).raise_for_status()
    line = 'corral_requests_total{method="GET",route="/v1/version",status="200"} 30.0'
    wait_until(lambda: line in scraped(url), 60)  # an answer is counted once it is sent
    for _ in range(5):
        assert line in scraped(url)


def test_killed_processes_are_at_work_no_more(pair: tuple[str, Path]) -> None:
    """What a killed process had at work leaves /metrics; what it has counted stays.

    If this fails: a server whose processes were killed looks busier with each, forever.
    """
    url, home = pair
    address = httpx.URL(url)
    httpx.get(f"{url}/v1/providers", timeout=60).raise_for_status()
    counted = 'route="/v1/providers",status="200"} 1.0'
    wait_until(lambda: counted in scraped(url), 60)  # an answer is counted once it is sent

    def at_work() -> float:
        said = scraped(url)
        assert counted in said
        return float(re.findall(r'corral_at_work{span="request"} (\S+)', said)[0])

    with socket.create_connection((address.host, address.port)) as half:
        half.sendall(b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
        wait_until(lambda: at_work() == 2, 60)  # this one, and the one that asks
        log = home / "log"
        for pid in re.findall(r"Started server process \[(\d+)\]", log.read_text()):
            os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: log.read_text().count("startup complete") == 4, 60)
    assert at_work() == 1


def test_an_engine_of_one_process_is_not_served_by_several(tmp_path: Path) -> None:
    """--workers is refused where a configured engine works in one process only."""
    config = "providers: {vector_io: [{provider_id: m, provider_type: 'inline::memory'}]}"
    (tmp_path / "run.yaml").write_text(config)
    words = ["--home", str(tmp_path), "serve", "--port", "0", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "corral.server.cli.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "m (inline::memory) works in one process only." in done.stderr
