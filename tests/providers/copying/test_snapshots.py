"""Snapshots: a vector DB as one file, the same on every backend, whole or refused."""

from __future__ import annotations

import io
import itertools
import json
import random
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.engine_index import EngineIndex
from corral.api.errors import CorralError, InvalidRequest, Unavailable
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.providers.copying.snapshot_file import Details
from corral.providers.copying.snapshot_writer import CHUNKS_AT_ONCE, snapshot_of
from corral.providers.copying.snapshots import Imported, export, restore
from corral.providers.stack.stack import Stack

from .copy_stack import ODD, PROVIDERS, RECORD, assert_equal, embeddings, opened, stored

SETTINGS: dict[str, Any] = {
    "search_mode": "keyword",
    "ranker": {"type": "weighted", "alpha": 0.3},
    "language": "norwegian",
    "field_weights": {"content": 1.0, "title": 3.0, "tags": 0.5},
    "chunking": {"chunk_size_in_tokens": 100, "overlap_in_tokens": 10},
    "default_acl": ["group:herd"],
    "vector_db_name": "Værmelding",
}


def chunks(number: int) -> list[Chunk]:
    """Return chunks, the first ones odd in id, text, metadata, record or acl."""
    odd = [
        Chunk(chunk_id="🙂\U0010ffff", content="天气 it's \\ % _ \r\n\u2028 x", metadata=ODD),
        Chunk(chunk_id="..", content="with a record", chunk_metadata=RECORD),
        Chunk(chunk_id="A", content="secret", acl=["user:ann", "group:vets"]),
        Chunk(chunk_id="B", content="for admins", acl=[]),
    ]
    plain = [
        Chunk(chunk_id=f"c{n:04}", content=f"hundene number{n}", metadata={"document_id": "d"})
        for n in range(number)
    ]
    return [*odd, *plain[len(odd) :]]


async def filled(stack: Stack, provider_id: str = "sqlite", number: int = 40) -> VectorDB:
    """Register the vector DB `source` and fill it."""
    asked = {"vector_db_id": "source", "embedding_model": "hashing", "provider_id": provider_id}
    vector_db = await stack.register(VectorDBRegistration.model_validate({**asked, **SETTINGS}))
    await (await stack.index("source")).add_chunks(chunks(number), embeddings(number))
    return vector_db


async def exported(stack: Stack, vector_db_id: str = "source") -> io.BytesIO:
    """Return a snapshot."""
    return io.BytesIO(b"".join([piece async for piece in export(stack, vector_db_id)]))


async def imported(stack: Stack, file: io.BytesIO, **options: Any) -> Imported:
    """Import a snapshot as `target` on memory, unless the options say otherwise."""
    return await restore(
        stack, file, **{"vector_db_id": "target", "provider_id": "memory", **options}
    )


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["sqlite faiss lancedb chroma", "qdrant milvus memory sqlite"])
async def test_a_snapshot_is_equal_on_every_stop_of_a_journey(tmp_path: Path, way: str) -> None:
    """Chunks, records, acls, embeddings, settings and fingerprint: all of it, on each backend.

    If this fails: compare what the snapshot holds of the field that differs.
    """
    here, *rest = way.split()
    async with opened(tmp_path / "from") as stack:
        vector_db = await filled(stack, here)
        original = await stored(stack, "source")
        file = await exported(stack)
    for number, provider_id in enumerate(rest):
        async with opened(tmp_path / f"to {number}") as stack:
            done = await imported(stack, file, vector_db_id=None, provider_id=provider_id)
            assert (done.chunks, done.notes) == (40, ())
            own = {"provider_id", "created_at", "installation"}
            assert done.vector_db.installation == await stack.installation()
            assert done.vector_db.model_dump(exclude=own) == vector_db.model_dump(exclude=own)
            assert_equal(await stored(stack, "source"), original)
            assert [c.acl for c in original if c.chunk_id in "AB"] == [
                ["group:vets", "user:ann"],
                [],
            ]
            file = await exported(stack)


async def test_a_vector_stores_side_travels(tmp_path: Path) -> None:
    """Description, metadata and expiry of the store come along, and so does a chunk's time.

    If this fails: a store that is restored never expires, or lost what its owner wrote on it.
    """
    async with opened(tmp_path) as stack:
        vector_db = await filled(stack)
        store = await stack.stores.store(vector_db)
        details: dict[str, Any] = {
            "description": "d",
            "metadata": {"k": "v"},
            "expires_after_days": 7,
        }
        await stack.stores.put(replace(store, **details))
        timed = ChunkMetadata(expires_at=4_000_000_000)
        chunk = Chunk(chunk_id="timed", content="x", chunk_metadata=timed)
        await (await stack.index("source")).add_chunks([chunk], embeddings(1))
        done = await imported(stack, await exported(stack))
        there = await stack.stores.store(done.vector_db)
        assert {name: getattr(there, name) for name in details} == details
        due = await stack.stores.due_chunks(4_000_000_001)
        assert due == {(*done.vector_db.key, done.vector_db.created_at): ["timed"]}


async def test_anyone_can_read_it(tmp_path: Path) -> None:
    """A zip tool, a JSON parser and numpy are enough; nothing in it is compressed or pickled."""
    async with opened(tmp_path) as stack:
        await filled(stack)
        file = await exported(stack)
        original = await stored(stack, "source")
    with zipfile.ZipFile(file) as opened_zip:
        lines = opened_zip.read("chunks/000000.jsonl").decode().split("\n")[:-1]
        rows = np.load(io.BytesIO(opened_zip.read("embeddings/000000.npy")), allow_pickle=False)
        manifest = json.loads(opened_zip.read("manifest.json"))
    assert [json.loads(line)["chunk_id"] for line in lines] == [c.chunk_id for c in original]
    np.testing.assert_array_equal(rows, np.array([c.embedding for c in original], np.float32))
    assert (manifest["format"], manifest["version"], manifest["chunks"]) == (
        "corral-snapshot",
        1,
        40,
    )


async def test_memory_holds_one_batch(tmp_path: Path) -> None:
    """Batches end at a number of chunks and at a size; pieces are yielded batch by batch, and
    stored so.

    If this fails: a large vector DB does not fit into memory on its way out or in.
    """
    number = CHUNKS_AT_ONCE + 100
    async with opened(tmp_path) as stack:
        await filled(stack, number=number)
        index = await stack.index("source")
        pieces = [p async for p in snapshot_of(index, Details(), batch_bytes=4 * 64 * 200)]
        assert len(pieces) >= 6
        told: list[tuple[int, int]] = []
        await imported(stack, io.BytesIO(b"".join(pieces)), progress=lambda *n: told.append(n))
        assert told[-1] == (number, number)
        assert max(b - a for (a, _), (b, _) in itertools.pairwise(told)) <= 200
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))


async def test_an_empty_vector_db_travels(tmp_path: Path) -> None:
    """No chunk, no batch, and a registration."""
    async with opened(tmp_path) as stack:
        await filled(stack, number=4)
        await (await stack.index("source")).delete_chunks([c.chunk_id for c in chunks(4)])
        done = await imported(stack, await exported(stack))
        assert (done.chunks, done.vector_db.language) == (0, "norwegian")


async def test_a_change_meanwhile_is_noted(tmp_path: Path) -> None:
    """A chunk that is added behind the export is not in it, and the file and the import say so."""
    number = CHUNKS_AT_ONCE + 1
    async with opened(tmp_path) as stack:
        await filled(stack, number=number)
        pieces: list[bytes] = []
        async for piece in export(stack, "source"):
            if not pieces:
                late = Chunk(chunk_id="!", content="late")
                await (await stack.index("source")).add_chunks([late], embeddings(1))
            pieces.append(piece)
        done = await imported(stack, io.BytesIO(b"".join(pieces)))
        assert done.chunks == number
        assert "written" in done.notes[0]


async def test_another_model_here_is_said(tmp_path: Path) -> None:
    """Embeddings of another model are imported as what they are; the note names the way on."""
    async with opened(tmp_path) as stack:
        await filled(stack)
        file = await exported(stack)
        there = edited(file, manifest=lambda m: m.update(fingerprint='{"model": "other"}'))
        done = await imported(stack, there)
        assert "corral reembed" in done.notes[0]
        assert done.vector_db.fingerprint == '{"model": "other"}'


# --- refused --------------------------------------------------------------------------------------


def edited(
    file: io.BytesIO,
    *,
    manifest: Callable[[dict[str, Any]], object] | None = None,
    content: dict[str, bytes | None] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> io.BytesIO:
    """Return a snapshot whose members were changed by someone who knows zip files."""
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w", compression) as new:
        members = {name: old.read(name) for name in old.namelist()} | (content or {})
        if manifest is not None:
            told = json.loads(old.read("manifest.json"))
            manifest(told)
            members["manifest.json"] = json.dumps(told).encode()
        for name, raw in members.items():
            if raw is not None:
                new.writestr(name, raw)
    return made


def with_digests(file: io.BytesIO, name: str, raw: bytes) -> io.BytesIO:
    """Return a snapshot with another member, whose size and digest the manifest knows."""
    import hashlib

    def correct(told: dict[str, Any]) -> None:
        [member] = [each for each in told["members"] if each["name"] == name]
        member.update(bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())

    return edited(file, manifest=correct, content={name: raw})


CHUNKS, ROWS = "chunks/000000.jsonl", "embeddings/000000.npy"


def packed(rows: Any, *, allow_pickle: bool = False) -> bytes:
    """Return an array as a file."""
    made = io.BytesIO()
    np.save(made, rows, allow_pickle=allow_pickle)
    return made.getvalue()


DAMAGES: dict[str, tuple[Callable[[io.BytesIO], io.BytesIO], str]] = {
    "empty": (lambda f: io.BytesIO(), "not a snapshot, or it is truncated"),
    "text": (lambda f: io.BytesIO(b"hello" * 100), "not a snapshot, or it is truncated"),
    "cut off": (lambda f: io.BytesIO(f.getvalue()[:-200]), "not a snapshot, or it is truncated"),
    "half": (lambda f: io.BytesIO(f.getvalue()[: len(f.getvalue()) // 2]), "truncated"),
    "newer": (lambda f: edited(f, manifest=lambda m: m.update(version=2)), "has version 2"),
    "other": (lambda f: edited(f, manifest=lambda m: m.update(format="x")), "not a snapshot's"),
    "no manifest": (lambda f: edited(f, content={"manifest.json": None}), "no manifest.json"),
    "no json": (lambda f: edited(f, content={"manifest.json": b"{"}), "not a snapshot's"),
    "deep json": (
        lambda f: edited(f, content={"manifest.json": b"[" * 100_000}),
        "not a snapshot's",
    ),
    "unknown key": (lambda f: edited(f, manifest=lambda m: m.update(x=1)), "malformed .x:"),
    "missing member": (lambda f: edited(f, content={ROWS: None}), "other members"),
    "more members": (lambda f: edited(f, content={"../evil": b"x"}), "other members"),
    "another text": (
        lambda f: edited(f, content={CHUNKS: b'{"content": "x"}\n'}),
        "does not have the size",
    ),
    "same size": (
        lambda f: edited(f, content={ROWS: b"\0" * len(zipfile.ZipFile(f).read(ROWS))}),
        "does not have the SHA-256",
    ),
    "compressed": (lambda f: edited(f, compression=zipfile.ZIP_DEFLATED), "is compressed"),
    "no chunk": (lambda f: with_digests(f, CHUNKS, b"{}\n" * 40), "malformed chunk"),
    "fewer chunks": (
        lambda f: with_digests(f, CHUNKS, b'{"chunk_id": "a", "content": "x"}\n'),
        r"not a float32 array of shape \(1, 64\)",
    ),
    "twice": (
        lambda f: with_digests(f, CHUNKS, b'{"chunk_id": "a", "content": "x"}\n' * 40),
        "not in ascending order",
    ),
    "pickle": (
        lambda f: with_digests(f, ROWS, packed(np.array([{}] * 40), allow_pickle=True)),
        "is not an array",
    ),
    "doubles": (lambda f: with_digests(f, ROWS, packed(np.ones((40, 64)))), "not a float32 array"),
    "not finite": (
        lambda f: with_digests(f, ROWS, packed(np.full((40, 64), np.nan, np.float32))),
        "finite",
    ),
    "number": (lambda f: edited(f, manifest=lambda m: m.update(chunks=41)), "says 41"),
    "settings": (
        lambda f: edited(f, manifest=lambda m: m["settings"].update(language="klingon")),
        "language",
    ),
    "dimension": (
        lambda f: edited(f, manifest=lambda m: m["settings"].update(embedding_dimension=3)),
        "embedding_dimension",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage: str) -> None:
    """Cut off, changed, newer, compressed, or made by hand: the message says what is wrong.

    Nothing is registered and nothing is left in the engine.

    If this fails: half a vector DB, or somebody else's, passes for a backup.
    """
    damaged, said = DAMAGES[damage]
    async with opened(tmp_path) as stack:
        await filled(stack)
        file = damaged(await exported(stack))
        with pytest.raises(InvalidRequest, match=said):
            await imported(stack, file, provider_id="sqlite")
        assert [each.identifier for each in await stack.vector_dbs()] == ["source"]
        assert len(list(tmp_path.rglob("sqlite/**/*.db"))) == 1


async def test_no_flipped_byte_goes_unnoticed(tmp_path: Path) -> None:
    """Of 150 single bytes changed anywhere, each is refused, or is one that nobody reads."""
    rng = random.Random(5)
    async with opened(tmp_path) as stack:
        await filled(stack)
        original = await stored(stack, "source")
        raw = (await exported(stack)).getvalue()
        for number in range(150):
            broken = bytearray(raw)
            broken[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            try:
                await imported(stack, io.BytesIO(bytes(broken)), vector_db_id=f"t{number}")
            except CorralError:
                continue
            assert_equal(await stored(stack, f"t{number}"), original)


async def test_an_import_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that goes away in the middle leaves no vector DB and no data; nobody sees one
    before it is complete."""
    number = 2 * CHUNKS_AT_ONCE + 1
    async with opened(tmp_path) as stack:
        await filled(stack, number=number)
        file = await exported(stack)
        add, calls = EngineIndex.add_chunks, []

        async def fails(index: EngineIndex, *arguments: Any, **options: Any) -> None:
            assert [each.identifier for each in await stack.vector_dbs()] == ["source"]
            assert await stack.orphans("sqlite") == []
            calls.append(1)
            if len(calls) == 3:
                raise Unavailable("the backend is away")
            await add(index, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(EngineIndex, "add_chunks", fails)
            with pytest.raises(Unavailable):
                await imported(stack, file, provider_id="sqlite")
        assert await stack.orphans("sqlite") == []
        assert len(list(tmp_path.rglob("sqlite/**/*.db"))) == 1
        assert (await imported(stack, file, provider_id="sqlite")).chunks == number


def test_the_providers_of_the_journeys_are_all() -> None:
    """Every backend that runs without a service takes part."""
    assert set(PROVIDERS) == {"sqlite", "memory", "faiss", "lancedb", "qdrant", "chroma", "milvus"}
