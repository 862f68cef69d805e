"""The clients of `lab.replicas`: they write, and check all that was acknowledged."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

ATTEMPT_SECONDS = 5.0
"""How long a client waits for an answer: a replica may be frozen for longer."""
FRESH_SECONDS = 1.0
"""Time after which every replica knows a new registration."""
STUCK_SECONDS = 180.0
"""Time without any progress after which jobs are stuck: longer than the longest pause before a
retry, 128 s, and than the lease of a dead worker."""
SETTLE_SECONDS = 900.0
"""Maximum time until all jobs have ended."""
PROBE_SECONDS = 0.5
"""How often a load balancer asks each replica whether it is ready."""
PAUSE_SECONDS = 2.0
"""How long a replica that did not answer gets no requests, as behind a load balancer."""
BATCH = 12
"""Number of documents that a client submits at once, so that the workers are always busy."""
CHECKS = 8
"""Number of documents that are checked at the same time."""

QUESTION = "where do the sheep graze?"

Json = dict[str, Any]
_MARK = re.compile(r"\bw\d+-\w+-v\d+\b")


def text_of(name: str, version: int) -> str:
    """Return a text of paragraphs, each with a mark that no other text has."""
    count = 2 + (len(name) * 7 + version * 3 + hash_of(name)) % 9
    line = "sheep graze upon the far hill, and the gate beside the old barn stays shut."
    return "\n\n".join(f"w{number}-{name}-v{version} {line}" for number in range(count))


def hash_of(name: str) -> int:
    """Return a number that differs between names, the same in each process."""
    return sum(name.encode())


def marks(text: str) -> Counter[str]:
    """Return the marks of a text."""
    return Counter(_MARK.findall(text))


@dataclass
class Document:
    """What a client knows of a document or a file.

    Attributes:
        version: The last acknowledged version; 0: absent.
        pending: The version of a write without an answer; None: there is none. Such a write may
            happen at any time, so its document is left alone.
        job: The unfinished job that stores it; "": none. Until it ends, the document is left alone.
        sent: All versions, if several clients replace it at once: any of them may be stored.
    """

    version: int = 0
    pending: int | None = None
    job: str = ""
    sent: set[int] = field(default_factory=set)

    def allowed(self) -> set[int]:
        """Return the versions that may be stored at the end."""
        if self.sent:
            return self.sent if self.version else {0, *self.sent}
        return {self.version} if self.pending is None else {self.version, self.pending}


@dataclass
class Outcome:
    """What happened in a round."""

    calls: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)


class Load:
    """Clients that send each request to the next replica.

    Args:
        urls: Returns the addresses of the replicas, running or not.
        vector_db_id: Id of the vector DB that they register.
        seed: Of all random choices.
        probing: True to send requests only to replicas that are ready, as a load balancer does. A
            connection that is lost is then a defect.
    """

    def __init__(
        self, urls: Callable[[], list[str]], vector_db_id: str, seed: int, *, probing: bool = False
    ) -> None:
        self.outcome = Outcome()
        self._probing, self._ready = probing, urls()
        self._urls = urls
        self._vector_db_id = vector_db_id
        self._random = random.Random(seed)
        self._documents: dict[str, Document] = {}
        self._files: dict[str, str] = {}
        self._stores: dict[str, dict[str, Document]] = {}
        self._jobs: list[str] = []
        self._turn = 0
        self._paused: dict[str, float] = {}
        self._names = 0
        self._stopping = asyncio.Event()

    async def register(self) -> None:
        """Register the vector DB; the replicas run, and nothing happens to them yet."""
        body = {
            "vector_db_id": self._vector_db_id,
            "embedding_model": "hashing",
            "chunking": {"chunk_size_in_tokens": 48, "overlap_in_tokens": 0},
        }
        async with httpx.AsyncClient(timeout=60) as http:
            answer = await http.post(f"{self._urls()[0]}/v1/vector-dbs", json=body)
            answer.raise_for_status()
        await asyncio.sleep(FRESH_SECONDS)

    async def run(self, clients: int) -> None:
        """Send requests until `stop`."""
        async with asyncio.TaskGroup() as group:
            if self._probing:
                group.create_task(self._probe())
            for number in range(clients):
                group.create_task(self._client(number))

    def stop(self) -> None:
        """Let each client finish its request."""
        self._stopping.set()

    # --- requests --------------------------------------------------------------------------------

    async def _client(self, number: int) -> None:
        """Send requests, one after the other, about documents that no other client writes."""
        async with httpx.AsyncClient(timeout=ATTEMPT_SECONDS) as http:
            mine: list[str] = []
            steps = [
                partial(self._insert, http, mine, number),
                partial(self._submit, http, mine, number),
                partial(self._follow, http, mine),
                partial(self._follow, http, mine),
                partial(self._follow, http, mine),
                partial(self._replace, http, mine),
                partial(self._replace, http, mine),
                partial(self._delete, http, mine),
                partial(self._get, http, mine),
                partial(self._get, http, mine),
                partial(self._query, http),
                partial(self._stream, http),
                partial(self._contend, http),
                partial(self._attach, http, await self._new_store(http)),
            ]
            while not self._stopping.is_set():
                await self._random.choice(steps)()

    async def _send(
        self, http: httpx.AsyncClient, method: str, path: str, **more: Any
    ) -> httpx.Response | None:
        """Send a request to the next replica; return a 2xx or None, after noting what was wrong."""
        kind, url = f"{method} {path.split('/')[2].partition('?')[0]}", self._next()
        try:
            answer = await http.request(method, url + path, **more)
        except httpx.TransportError as error:
            self.outcome.calls["lost"] += 1
            if self._probing:
                self._defect(f"{method} {path}: {type(error).__name__}")
            self._paused[url] = time.monotonic() + PAUSE_SECONDS
            await asyncio.sleep(0.05)
            return None
        if answer.is_success:
            self.outcome.calls[kind] += 1
            return answer
        self.outcome.calls[str(answer.status_code)] += 1
        if answer.status_code == 503 and "retry-after" in answer.headers:
            await asyncio.sleep(0.2)
        else:
            self._defect(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return None

    def _next(self) -> str:
        """Return the address of the next replica that answers, as far as is known."""
        now, urls = time.monotonic(), self._ready if self._probing else self._urls()
        self._turn += 1
        up = [url for url in urls if self._paused.get(url, 0.0) <= now] or urls
        return up[self._turn % len(up)]

    async def _probe(self) -> None:
        """Note which replicas are ready, until `stop`."""
        async with httpx.AsyncClient(timeout=ATTEMPT_SECONDS) as http:
            while not self._stopping.is_set():
                ready = []
                for url in self._urls():
                    with suppress(httpx.TransportError):
                        if (await http.get(f"{url}/v1/ready")).is_success:
                            ready.append(url)
                self._ready = ready or self._ready
                await asyncio.sleep(PROBE_SECONDS)

    def _defect(self, text: str) -> None:
        self.outcome.defects.append(text)

    def _name(self, client: int) -> str:
        self._names += 1
        return f"c{client}n{self._names}"

    async def _put(self, http: httpx.AsyncClient, name: str, version: int) -> None:
        document = self._documents.setdefault(name, Document())
        document.pending = version
        body = self._body((name, version))
        if await self._send(http, "POST", "/v1/tool-runtime/rag-tool/insert", json=body):
            document.version, document.pending = version, None

    async def _insert(self, http: httpx.AsyncClient, mine: list[str], client: int) -> None:
        name = self._name(client)
        mine.append(name)
        await self._put(http, name, 1)

    async def _replace(self, http: httpx.AsyncClient, mine: list[str]) -> None:
        for name in self._one(mine):
            await self._put(http, name, self._documents[name].version + 1)

    async def _contend(self, http: httpx.AsyncClient) -> None:
        """Replace a document that other clients replace at the same time."""
        document = self._documents.setdefault("shared", Document())
        version = len(document.sent) + 1
        document.sent.add(version)
        body = self._body(("shared", version))
        if await self._send(http, "POST", "/v1/tool-runtime/rag-tool/insert", json=body):
            document.version = version

    async def _delete(self, http: httpx.AsyncClient, mine: list[str]) -> None:
        for name in self._one(mine):
            document = self._documents[name]
            document.pending = 0
            if await self._send(http, "DELETE", self._path(name)):
                document.version, document.pending = 0, None
                mine.remove(name)

    async def _get(self, http: httpx.AsyncClient, mine: list[str]) -> None:
        """Read a document: any replica has what another one has acknowledged."""
        for name in self._one(mine):
            if answer := await self._send(http, "GET", self._path(name)):
                self._compare(name, self._documents[name], answer.json()["chunks"])

    def _one(self, mine: list[str]) -> list[str]:
        """Return a document that is stored, and whose writes are all answered; or none."""
        documents = [(name, self._documents[name]) for name in mine]
        settled = [name for name, each in documents if each.pending is None and not each.job]
        return [self._random.choice(settled)] if settled else []

    async def _submit(self, http: httpx.AsyncClient, mine: list[str], client: int) -> None:
        """Store documents by jobs, unless this client has jobs."""
        if any(self._documents[name].job for name in mine):
            return
        names = [self._name(client) for _ in range(BATCH)]
        mine += names
        for name in names:
            self._documents[name] = Document(pending=1)
        body = self._body(*((name, 1) for name in names))
        if answer := await self._send(http, "POST", "/v1/jobs", json=body):
            for job in answer.json()["jobs"]:
                document = self._documents[job["document_id"]]
                document.version, document.pending = 1, None
                document.job = job["job_id"]
                self._jobs.append(document.job)

    async def _follow(self, http: httpx.AsyncClient, mine: list[str]) -> None:
        """Look which jobs have ended, and replace two of their documents.

        A worker that wakes up late, and stores such a document again, is then noticed.
        """
        working = [name for name in mine if self._documents[name].job]
        query = f"vector_db_id={self._vector_db_id}&status=queued&status=running&limit=100"
        answer = await self._send(http, "GET", f"/v1/jobs?{query}") if working else None
        if answer is None or answer.json()["has_more"]:
            return
        unfinished = {job["job_id"] for job in answer.json()["data"]}
        ended = [name for name in working if self._documents[name].job not in unfinished]
        for name in ended:
            self._documents[name].job = ""
        for name in ended[:2]:
            await self._put(http, name, self._documents[name].version + 1)

    async def _query(self, http: httpx.AsyncClient) -> None:
        body = {"content": QUESTION, "vector_db_ids": [self._vector_db_id]}
        await self._send(http, "POST", "/v1/tool-runtime/rag-tool/query", json=body)

    async def _stream(self, http: httpx.AsyncClient) -> None:
        """Read a streamed answer to its end, which may be an error if the state is gone."""
        body = {"model": f"corral/{self._vector_db_id}", "input": QUESTION, "stream": True}
        answer = await self._send(http, "POST", "/v1/responses", json=body)
        ends = (
            ["response.completed"] if self._probing else ["response.completed", "response.failed"]
        )
        if answer is not None and not any(end in answer.text for end in ends):
            self._defect(f"a stream ends with {answer.text[-300:]}")

    async def _new_store(self, http: httpx.AsyncClient) -> str:
        """Create a vector store, however often that takes; return its id."""
        while (answer := await self._send(http, "POST", "/v1/vector_stores", json={})) is None:
            pass
        store: str = answer.json()["id"]
        self._stores[store] = {}
        await asyncio.sleep(FRESH_SECONDS)
        return store

    async def _attach(self, http: httpx.AsyncClient, store: str) -> None:
        """Upload a file, and attach it to a vector store, which is a job."""
        name = self._name(0)
        sent = {"file": (f"{name}.txt", text_of(name, 1).encode())}
        purpose = {"purpose": "assistants"}
        answer = await self._send(http, "POST", "/v1/files", files=sent, data=purpose)
        if answer is None:
            return
        file_id = answer.json()["id"]
        self._files[file_id] = name
        document = self._stores[store].setdefault(file_id, Document(pending=1))
        path = f"/v1/vector_stores/{store}/files"
        if await self._send(http, "POST", path, json={"file_id": file_id}):
            document.version, document.pending = 1, None

    def _body(self, *documents: tuple[str, int]) -> Json:
        stored = [{"document_id": name, "content": text_of(name, v)} for name, v in documents]
        return {"vector_db_id": self._vector_db_id, "documents": stored}

    def _path(self, name: str) -> str:
        return f"/v1/vector-dbs/{self._vector_db_id}/documents/{name}"

    # --- checks ----------------------------------------------------------------------------------

    async def check(self) -> None:
        """Compare what is stored with what was acknowledged, after all faults are over."""
        async with httpx.AsyncClient(base_url=self._urls()[-1], timeout=60) as http:
            await self._wait_for_jobs(http)
            few = asyncio.Semaphore(CHECKS)

            async def check(name: str, document: Document) -> int:
                async with few:
                    return await self._check_document(http, name, document)

            stored = sum(await asyncio.gather(*(check(*each) for each in self._documents.items())))
            path = f"/v1/vector-dbs/{self._vector_db_id}/documents"
            listed = sum([each["chunk_count"] async for each in self._listed(http, path)])
            if listed != stored:
                self._defect(f"{listed} chunks are listed, {stored} are in documents")
            for file_id, name in self._files.items():
                content = await http.get(f"/v1/files/{file_id}/content")
                if content.text != text_of(name, 1):
                    self._defect(f"file {file_id}: {content.status_code}, other bytes")
            for store, files in self._stores.items():
                await self._check_store(http, store, files)
            for path in self._registered():
                (await http.delete(path)).raise_for_status()

    def _registered(self) -> list[str]:
        """Return the paths of the round's vector DB and vector stores."""
        stores = [f"/v1/vector_stores/{store}" for store in self._stores]
        return [f"/v1/vector-dbs/{self._vector_db_id}", *stores]

    async def _read(self, http: httpx.AsyncClient, path: str) -> Any:
        answer = await http.get(path)
        if answer.is_success:
            return answer.json()
        if answer.json()["error"]["code"] != "not_found":
            self._defect(f"GET {path}: {answer.status_code} {answer.text[:300]}")
        return None

    async def _wait_for_jobs(self, http: httpx.AsyncClient) -> None:
        """Wait until no job is unfinished; on a busy machine, for as long as they make progress."""
        started = changed = time.monotonic()
        before: list[Json] = []
        while True:
            jobs = [
                job
                for vector_db_id in (self._vector_db_id, *self._stores)
                async for job in self._listed(http, "/v1/jobs", vector_db_id=vector_db_id)
            ]
            unfinished = [job for job in jobs if job["status"] in ("queued", "running")]
            if not unfinished:
                break
            now = time.monotonic()
            if unfinished != before:
                before, changed = unfinished, now
            if now > changed + STUCK_SECONDS or now > started + SETTLE_SECONDS:
                states = Counter(job["status"] for job in unfinished)
                self._defect(
                    f"{dict(states)} jobs after {now - started:.0f} s, without any change for "
                    f"{now - changed:.0f} s, such as {unfinished[0]}"
                )
                return
            await asyncio.sleep(0.5)
        ids = {job["job_id"] for job in jobs}
        self.outcome.defects += [f"job {job} is lost" for job in self._jobs if job not in ids]
        self.outcome.defects += [f"{job}" for job in jobs if job["status"] != "completed"]

    async def _listed(self, http: httpx.AsyncClient, path: str, **parameters: str) -> Any:
        """Yield the entries of a list with pages."""
        after = ""
        while True:
            paging = {"limit": "100", **parameters} | after_of(after)
            page = (await http.get(path, params=paging)).json()
            for entry in page["data"]:
                yield entry
            if not page["has_more"]:
                return
            after = page["last_id"]

    async def _check_document(self, http: httpx.AsyncClient, name: str, document: Document) -> int:
        """Check that a document is there, whole and once; return the number of its chunks."""
        stored = await self._read(http, self._path(name))
        chunks = [] if stored is None else stored["chunks"]
        self._compare(name, document, chunks)
        return len(chunks)

    def _compare(self, name: str, document: Document, chunks: list[Json]) -> None:
        """Compare the chunks of a document with its versions."""
        present = marks("\n".join(chunk["content"] for chunk in chunks))
        versions = document.allowed()
        if present not in [marks(text_of(name, v)) if v else Counter() for v in versions]:
            self._defect(f"document {name} has {dict(present)}, not all of one of {versions}")

    async def _check_store(
        self, http: httpx.AsyncClient, store: str, files: dict[str, Document]
    ) -> None:
        """Check that a vector store has each attached file, whole and once."""
        path = f"/v1/vector_stores/{store}"
        entry = await self._read(http, path)
        if entry is None:
            self._defect(f"vector store {store} is lost")
            return
        listed = Counter([file["id"] async for file in self._listed(http, f"{path}/files")])
        for file_id, document in files.items():
            wanted = [marks(text_of(self._files[file_id], v)) for v in document.allowed() if v]
            if listed[file_id] not in document.allowed():
                self._defect(f"file {file_id} is {listed[file_id]} times in {store}")
            elif listed[file_id]:
                pages = await self._read(http, f"{path}/files/{file_id}/content")
                present = marks("\n".join(part["text"] for part in pages["data"]))
                if present not in wanted:
                    self._defect(f"file {file_id} has {dict(present)} in {store}")


def after_of(last_id: str) -> dict[str, str]:
    """Return the parameters of the page after an entry."""
    return {"after": last_id} if last_id else {}
