"""An answer to a request that attaches files waits until they are read, for a while."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.providers.base.config import RunConfig

from ...providers.json_service import Service, running_service
from ..harness import JSON, Json, live_server, run_config
from .doubles import PATIENT, Clock, ClockedApp

ROADS = ("/v1/vector_stores", "/v1/openai/v1/vector_stores")


def with_model(url: str, **ingestion: Any) -> RunConfig:
    """Return a configuration whose only embedding model is the service's."""
    config = {"base_url": url, "models": [{"model": "slow", "dimension": 3}]}
    slow = {"provider_id": "slow", "provider_type": "remote::openai", "config": config}
    return run_config(
        providers={"embedding": [slow]}, default_embedding_model="slow", ingestion=ingestion
    )


@contextmanager
def held_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Service, threading.Event]]:
    """Run an embedding model that answers texts once the event is set."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    released = threading.Event()

    def answer(request: Json) -> Json:
        released.wait(60)
        data = [{"index": n, "embedding": [1.0, 0.0, 0.0]} for n, _ in enumerate(request["input"])]
        return {"data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}

    with running_service(answer) as service:
        try:
            yield service, released
        finally:
            released.set()


def attach_everywhere(app: ClockedApp, road: str, *names: str) -> tuple[Json, Json, Json]:
    """Attach new files in each of the three ways; return the file, the batch and the store."""
    one, two, three = (app.upload(name.encode(), f"{name}.txt")["id"] for name in names)
    store = app.ok("POST", road, {"name": "docs", "file_ids": [one]})
    file = app.ok("POST", f"{road}/{store['id']}/files", {"file_id": two})
    batch = app.ok("POST", f"{road}/{store['id']}/file_batches", {"file_ids": [three]})
    return file, batch, store


def counted(store: Json, status: str) -> int:
    """Return how many files of a store have a status."""
    count: int = store["file_counts"][status]
    return count


async def until(app: ClockedApp, path: str, condition: Callable[[Json], bool]) -> None:
    """Return once what a path shows meets a condition."""
    while True:
        if condition((await app.http.get(path)).json()):
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("road", ROADS)
def test_a_small_file_is_completed_in_the_answer(tmp_path: Path, clock: Clock, road: str) -> None:
    """A file, a batch and a new store's files are read when the answer comes, on both roads.

    If this fails: clients that do not poll, such as those of Llama Stack's own tests, search a
    store that has nothing yet.
    """
    with ClockedApp(tmp_path, clock, run_config(ingestion=PATIENT)) as app:
        file, batch, store = attach_everywhere(app, road, "fox", "hound", "crow")
        assert (file["status"], batch["status"]) == ("completed", "completed")
        assert batch["file_counts"]["completed"] == 1
        assert (store["status"], store["file_counts"]["completed"]) == ("completed", 1)
        assert sorted(app.texts(store["id"], "fox hound crow")) == ["crow", "fox", "hound"]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("seconds", [0, 0.05])
def test_what_takes_longer_is_in_progress(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, road: str, seconds: float
) -> None:
    """After `ingestion.wait_seconds` the answer is `in_progress`, and the files are read later.

    If this fails: a large file holds its client for as long as it takes, or is not read at all.
    """
    with held_model(monkeypatch) as (service, released):
        config = with_model(service.url, wait_seconds=seconds)
        with ClockedApp(tmp_path, clock, config) as app:
            file, batch, store = attach_everywhere(app, road, "fox", "hound", "crow")
            assert (file["status"], batch["status"]) == ("in_progress", "in_progress")
            assert store["file_counts"]["in_progress"] == 1
            released.set()
            assert app.read(f"{road}/{store['id']}", file["id"])["status"] == "completed"


def test_waiting_holds_up_nobody(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More requests than there are workers wait at once, others are answered, and all end well.

    If this fails: some clients that attach files keep all others from the server.
    """
    with held_model(monkeypatch) as (service, released):
        config = with_model(service.url, workers=2, **PATIENT)
        with ClockedApp(tmp_path, clock, config) as app:
            store = f"/v1/vector_stores/{app.create_store()['id']}"
            files = [app.upload(b"fox %d" % n)["id"] for n in range(8)]

            async def attach_all() -> list[httpx.Response]:
                posts = [app.http.post(f"{store}/files", json={"file_id": each}) for each in files]
                waiting = [asyncio.create_task(post) for post in posts]
                await until(app, store, lambda shown: counted(shown, "in_progress") == len(files))
                assert not [task for task in waiting if task.done()]
                released.set()
                return await asyncio.gather(*waiting)

            answers = app.run(attach_all)
            assert [each.json()["status"] for each in answers] == ["completed"] * len(files)


def test_a_client_that_leaves_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a client that hung up while it waited is read all the same.

    If this fails: an impatient client loses its files.
    """
    with held_model(monkeypatch) as (service, released):
        config = with_model(service.url, **PATIENT)
        with live_server(config, tmp_path) as url, httpx.Client(base_url=url, timeout=60) as http:
            upload = {"file": ("fox.txt", b"the fox")}
            file = http.post("/v1/files", files=upload, data={"purpose": "assistants"}).json()["id"]
            store = http.post("/v1/vector_stores", json={}).json()["id"]
            path = f"/v1/vector_stores/{store}/files"
            with pytest.raises(httpx.ReadTimeout):
                http.post(path, json={"file_id": file}, headers=JSON, timeout=0.5)
            assert http.get(f"{path}/{file}").json()["status"] == "in_progress"
            released.set()
            again = http.post(path, json={"file_id": file})
            assert again.json()["status"] == "completed"


def test_a_file_that_is_detached_meanwhile_is_answered(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a file that another detaches is answered with the file, not with an error."""
    with held_model(monkeypatch) as (service, _):
        config = with_model(service.url, **PATIENT)
        with ClockedApp(tmp_path, clock, config) as app:
            store = f"/v1/vector_stores/{app.create_store()['id']}"
            file = app.upload(b"the fox")["id"]

            async def attach_and_detach() -> httpx.Response:
                post = app.http.post(f"{store}/files", json={"file_id": file})
                waiting = asyncio.create_task(post)
                await until(app, store, lambda shown: counted(shown, "total") == 1)
                (await app.http.delete(f"{store}/files/{file}")).raise_for_status()
                return await waiting

            answer = app.run(attach_and_detach)
            assert (answer.status_code, answer.json()["id"]) == (200, file)
