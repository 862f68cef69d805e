"""Attacks on a server of three tenants; each returns what it got hold of."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from corral.api.errors import NotFound
from corral.api.principal import Principal, Role
from corral.providers.files.store import FileStore

from .harness import InProcess, id_path, run_config
from .secured import Holder, holder, keys_of, nobody

ABSENT = "absent"
SAME = {"x-request-id": "same"}


class World:
    """A server with three tenants, of which each has a vector DB `docs` and one of its own name."""

    def __init__(self, app: InProcess, home: Path) -> None:
        self.app, self.home = app, home
        self.operator = holder(app, "op", Role.ADMIN)
        self.acme = holder(app, "ann", Role.ADMIN, tenant="acme")
        self.writer = holder(app, "will", Role.WRITER, tenant="acme")
        self.reader = holder(app, "rea", Role.READER, tenant="acme")
        self.globex = holder(app, "gil", Role.ADMIN, tenant="globex")
        for name, owner in {"globex": self.globex, "headquarters": self.operator}.items():
            for vector_db_id in ("docs", name):
                owner.register(vector_db_id, search_mode="keyword")
                owner.insert(f"the plan of {name}", db=vector_db_id)
        self.acme.register("docs", search_mode="keyword")

    def log(self) -> str:
        """Return the audit log."""
        files = sorted((self.home / "audit").glob("*.jsonl"))
        return "".join(file.read_text("ascii") for file in files)


@contextmanager
def world(home: Path) -> Iterator[World]:
    """Run a server with three tenants."""
    with InProcess(home, run_config()) as app:
        yield World(app, home)


# --- attacks: each returns what it got hold of, "" if nothing -------------------------------------

Attack = Callable[[World], str]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    """Register an attack."""
    ATTACKS[function.__name__] = function
    return function


def requests_about(vector_db_id: str) -> Iterator[tuple[str, str, Any]]:
    """Yield a request of each kind that names a vector DB, none of which changes what is there."""
    path = id_path(vector_db_id)
    query = {"vector_db_id": vector_db_id, "query": "plan"}
    asked = {"content": "plan", "vector_db_ids": [vector_db_id]}
    copied = {"target_id": "loot"}
    yield "GET", path, None
    yield "GET", f"{path}?counts=true", None
    yield "GET", f"{path}/documents", None
    yield "GET", f"{path}/documents/d", None
    yield "DELETE", f"{path}/documents/d", None
    yield "POST", "/v1/vector-io/query", query
    yield "POST", "/v1/tool-runtime/rag-tool/query", asked
    yield (
        "POST",
        "/v1/tool-runtime/invoke",
        {
            "tool_name": "knowledge_search",
            "kwargs": {"query": "plan", "vector_db_ids": [vector_db_id]},
        },
    )
    yield "POST", f"{path}/copy", copied
    yield "POST", f"{path}/copy/verify", copied
    yield "GET", f"/v1/jobs?vector_db_id={vector_db_id}", None
    for start in ("/v1", "/v1/openai/v1"):
        store = f"{start}/vector_stores/{vector_db_id}"
        yield "GET", store, None
        yield "POST", store, {"name": "ours"}
        yield "POST", f"{store}/search", {"query": "plan"}
        yield "GET", f"{store}/files", None
        yield "GET", f"{store}/files/file-{'0' * 24}", None
        yield "GET", f"{store}/files/file-{'0' * 24}/content", None
        yield "DELETE", f"{store}/files/file-{'0' * 24}", None
        yield "POST", f"{store}/files", {"file_id": f"file-{'0' * 24}"}
        yield "POST", f"{store}/file_batches", {"file_ids": [f"file-{'0' * 24}"]}
        yield "GET", f"{start}/vector_stores?after={vector_db_id}", None
    tool = {"vector_db_ids": [vector_db_id], "query": "plan"}
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "search", "arguments": json.dumps(tool)},
    }
    yield "POST", "/v1/tools/openai/call", call
    yield "POST", "/v1/dify/retrieval", {"knowledge_id": vector_db_id, "query": "plan"}
    yield "GET", f"/collections/{vector_db_id}", None
    yield "POST", f"/qdrant/collections/{vector_db_id}/points/query", {"query": [0.1] * 256}
    yield "POST", "/v1/vector-io/get", {"vector_db_id": vector_db_id, "chunk_ids": ["x"]}
    yield "POST", "/v1/vector-io/list", {"vector_db_id": vector_db_id}
    yield "PATCH", f"{path}/documents/d", {"acl": ["tenant:*"]}
    yield "POST", f"{path}/rebuild", {}
    document = {"document_id": "d", "content": "x"}
    if vector_db_id == ABSENT or vector_db_id not in ("docs",):
        yield "POST", "/v1/jobs", {"vector_db_id": vector_db_id, "documents": [document]}
        chunk = {"vector_db_id": vector_db_id, "chunks": [{"content": "x"}]}
        yield "POST", "/v1/vector-io/insert", chunk


@attack
def foreign_id_guessed(world: World) -> str:
    """Name another tenant's vector DB in every request there is: as if it did not exist."""
    for name in ("globex", "headquarters"):
        for there, absent in zip(requests_about(name), requests_about(ABSENT), strict=True):
            got, missing = (world.acme.send(*sent, headers=SAME) for sent in (there, absent))
            told = got.text.replace(name, ABSENT)
            if (got.status_code, told) != (missing.status_code, missing.text):
                return f"{there[:2]}: {got.status_code} {got.text[:200]}"
    return ""


@attack
def foreign_deleted(world: World) -> str:
    """Delete another tenant's vector DB."""
    for path in ("/v1/vector_stores/globex", "/v1/openai/v1/vector_stores/globex"):
        world.acme.send("DELETE", path)
    world.acme.send("DELETE", id_path("globex"))
    return "" if world.globex.status("GET", id_path("globex")) == 200 else "it is gone"


@attack
def same_name(world: World) -> str:
    """Use a name that others use, too, and look whose chunks are under it."""
    query = {"vector_db_id": "docs", "query": "plan"}
    told = [
        who.send("POST", "/v1/vector-io/query", query).text
        for who in (world.globex, world.operator, world.acme)
    ]
    world.acme.send("DELETE", id_path("docs"))
    told.append(world.globex.send("POST", "/v1/vector-io/query", query).text)
    wanted = ("of globex", "of headquarters", '"chunks":[]', "of globex")
    return "" if all(map(str.__contains__, told, wanted)) else str(told)


@attack
def names_told(world: World) -> str:
    """Look for others' names in lists and in the hints of errors."""
    listed = world.acme.send("GET", "/v1/vector-dbs").text
    hinted = world.acme.send("GET", id_path(ABSENT)).text
    return "".join(name for name in ("globex", "headquarters") if name in listed + hinted)


@attack
def foreign_file(world: World) -> str:
    """Read another tenant's uploaded file by its id: over HTTP, and as every route sees files."""

    async def content() -> AsyncIterator[bytes]:
        yield b"the plan of globex"

    def files_of(tenant: str, user: str, role: Role = Role.READER) -> FileStore:
        who = Principal(tenant, user, role=role)
        files: FileStore = world.app.app.state.stack.for_principal(who).files
        return files

    async def upload() -> str:
        files = files_of("globex", "gil")
        return (await files.add(content(), filename="plan.txt", purpose="assistants")).file_id

    async def found(file_id: str) -> str:
        thieves = (files_of("acme", "gil", Role.ADMIN), files_of("globex", "bob", Role.WRITER))
        for files in thieves:
            with suppress(NotFound):
                return str(await files.get(file_id))
        return "".join([str((await files.page())[0]).replace("[]", "") for files in thieves])

    file_id, absent = world.app.run(upload), "file-" + "0" * 24
    body = {"vector_db_id": "docs", "file_ids": [file_id]}
    got = world.acme.send("POST", "/v1/jobs", body, headers=SAME)
    missing = world.acme.send("POST", "/v1/jobs", {**body, "file_ids": [absent]}, headers=SAME)
    if got.text.replace(file_id, absent) != missing.text:
        return got.text[:200]
    return str(world.app.run(partial(found, file_id)))


@attack
def foreign_job(world: World) -> str:
    """Look at another tenant's job by its id, list it, cancel it, try it again."""
    body = {"vector_db_id": "globex", "documents": [{"document_id": "d", "content": "x"}]}
    job_id = world.globex.ok("POST", "/v1/jobs", body)["jobs"][0]["job_id"]
    if job_id in world.acme.send("GET", "/v1/jobs").text:
        return "listed"
    for method, path in (
        ("GET", "/v1/jobs/{}"),
        ("POST", "/v1/jobs/{}/cancel"),
        ("POST", "/v1/jobs/{}/retry"),
        ("GET", "/v1/jobs/{}/events"),
    ):
        named = (path.format(job_id), path.format(ABSENT))
        got, missing = (world.acme.send(method, name, headers=SAME) for name in named)
        if (got.status_code, got.text.replace(job_id, ABSENT)) != (
            missing.status_code,
            missing.text,
        ):
            return f"{method} {path}: {got.text[:200]}"
    return ""


@attack
def no_key(world: World) -> str:
    """Send no key, a header that proxies send, the id of a key, a key with another secret."""
    assert world.operator.secret is not None
    head, key_id, secret = world.operator.secret.split("_")
    claims = {"x-forwarded-user": "op", "x-remote-user": "op", "x-forwarded-for": "127.0.0.1"}
    for who, headers in (
        (nobody(world.app), {}),
        (nobody(world.app), claims),
        (Holder(world.app, f"{head}_{key_id}_"), {}),
        (Holder(world.app, f"{head}_{key_id}_{'0' * len(secret)}"), {}),
    ):
        for path in ("/v1/vector-dbs", "/v1/health/../vector-dbs", "/v1/health-not", "/nowhere"):
            status = who.send("GET", path, headers=headers).status_code
            if status not in (401, 404) or (path == "/nowhere" and status == 404):
                return f"{path} {headers}: {status}"
    return ""


@attack
def old_key(world: World) -> str:
    """Go on with a key that was revoked right after a request, or that has expired."""
    gone = holder(world.app, "gone", Role.ADMIN)
    gone.ok("GET", "/v1/vector-dbs")
    world.app.run(lambda: keys_of(world.app).revoke(gone.key_id))
    over = holder(world.app, "over", expires_in_seconds=-1.0)
    return str([who.status("GET", "/v1/vector-dbs") for who in (gone, over)]).replace(
        "[401, 401]", ""
    )


@attack
def last_key_revoked(world: World) -> str:
    """Revoke every key, start the server again, and ask without one."""
    for key in world.app.run(keys_of(world.app).all):
        world.app.run(partial(keys_of(world.app).revoke, key.key_id))
    with InProcess(world.home, run_config()) as again:
        status = nobody(again).status("GET", "/v1/vector-dbs")
    return "" if status == 401 else str(status)


@attack
def above_the_role(world: World) -> str:
    """Do what a higher role may: a reader writes, a writer deletes, a tenant's admin operates."""
    chunk = {"vector_db_id": "docs", "chunks": [{"content": "x"}]}
    orphan = {"orphans": [{"provider_id": "sqlite", "name": "x"}]}
    for who, method, path, body in (
        (world.reader, "POST", "/v1/vector-io/insert", chunk),
        (world.reader, "POST", "/v1/vector-dbs", {}),
        (world.reader, "POST", "/v1/jobs", {}),
        (world.writer, "DELETE", id_path("docs"), None),
        (world.writer, "DELETE", "/v1/vector_stores/docs", None),
        (world.writer, "DELETE", "/v1/openai/v1/vector_stores/docs", None),
        (world.reader, "POST", "/v1/files", None),
        (world.acme, "GET", "/v1/orphans", None),
        (world.acme, "POST", "/v1/orphans/remove", orphan),
    ):
        if (status := who.status(method, path, body)) != 403:
            return f"{method} {path}: {status}"
    if any(one["config"] for one in world.acme.ok("GET", "/v1/providers")["data"]):
        return "settings of providers"
    return ""


@attack
def body_parsed_first(world: World) -> str:
    """Make the server parse what somebody sends who may not send it."""
    for who, wanted in ((nobody(world.app), 401), (world.reader, 403)):
        reply = who.send("POST", "/v1/vector-io/insert", headers={"content-type": "text/plain"})
        if reply.status_code != wanted:
            return str(reply.status_code)
    return ""


@attack
def from_elsewhere(world: World) -> str:
    """Reach a server that nobody has configured from another machine."""
    with InProcess(world.home / "open", run_config()) as app:
        status = app.send("GET", "http://192.0.2.7:8321/v1/vector-dbs").status_code
    return "" if status == 403 else str(status)


@attack
def unseen(world: World) -> str:
    """Search, and be refused, without a line in the audit log."""
    before = world.log().count("\n")
    world.globex.contents("plan", "docs")
    world.reader.send("DELETE", id_path("docs"))
    nobody(world.app).send("GET", "/v1/vector-dbs")
    lines = [json.loads(line) for line in world.log().splitlines()[before:]]
    told = [(line["user"], line["status"], bool(line["returned"])) for line in lines]
    wanted = [("gil", 200, True), ("rea", 403, False), (None, 401, False)]
    return "" if told == wanted else str(told)
