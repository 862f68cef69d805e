"""Kills a process that ingests, with -9 and at random moments, and checks what is left.

    python tests/with_engines.py python tests/kills.py --config {config} --provider pgvector \
        --kills 20

200 documents go in as jobs, version after version; a process that does them is killed and started
again. At the end each document must have exactly the chunks of its last version, and no job may be
unfinished. With --by-hand, calls that replace, store and delete many chunks are killed: the next
process must find each of them done whole or not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDBRegistration
from corral.providers.base.config import RunConfig, load_config
from corral.providers.ingestion.jobs.jobs import UNFINISHED, JobRequest, JobStatus
from corral.providers.ingestion.storing import embeddings_of, store
from corral.providers.stack.stack import Stack

SIZES = ChunkingConfig(chunk_size_in_tokens=32, overlap_in_tokens=4)
CHUNKS_BY_HAND = 300
LONGEST_LIFE = 1.5
"""Seconds from the first write of a process to its end at most, unless --longest says otherwise."""


def text_of(number: int, version: int) -> str:
    """Return a document of its version, of a length of its own."""
    lines = [f"Line {n} of document {number}, version {version}." for n in range(number % 40 + 1)]
    return "\n\n".join(lines)


def requests(documents: int, version: int) -> list[JobRequest]:
    """Return the requests of a version of all documents."""
    return [
        JobRequest(
            "db",
            document=RAGDocument(document_id=f"d{n}", content=text_of(n, version)),
            chunking=SIZES,
        )
        for n in range(documents)
    ]


async def registered(config: RunConfig, home: Path, provider: str) -> Stack:
    """Return a stack with the vector DB `db`."""
    stack = Stack(config, home)
    model = config.default_embedding_model
    await stack.register(
        VectorDBRegistration(vector_db_id="db", provider_id=provider, embedding_model=model)
    )
    return stack


# --- the process that is killed ------------------------------------------------------------------


async def ingest(stack: Stack, documents: int, version: int) -> None:
    """Submit a version of all documents, and work until all jobs are final."""
    await stack.ingestion.submit(requests(documents, version))
    print("working", flush=True)
    while await unfinished(stack):  # noqa: ASYNC110 - in a table
        await asyncio.sleep(0.05)


async def unfinished(stack: Stack) -> int:
    """Return how many jobs are not final."""
    counts = await stack.ingestion.counts(vector_db_id="db")
    return sum(counts[each] for each in UNFINISHED)


async def write_by_hand(stack: Stack, version: int) -> None:
    """Replace a document of many chunks, store loose ones, and delete them, for ever."""
    print("working", flush=True)
    while True:
        version += 1
        chunks = [chunk(f"doc-{n}", f"v{version}", "whole") for n in range(CHUNKS_BY_HAND)]
        await store(stack, "db", chunks, replace_documents=["whole"])
        loose = [chunk(f"loose-{n}", f"v{version}") for n in range(CHUNKS_BY_HAND)]
        await store(stack, "db", loose)
        if version % 3 == 0:
            index = await stack.index("db")
            await index.delete_chunks([each.chunk_id for each in loose])


def chunk(name: str, version: str, document: str | None = None) -> Chunk:
    """Return a chunk; of a document it has an id of its own in each version."""
    metadata = {"document_id": document} if document else {}
    chunk_id = f"{name}-{version}" if document else name
    return Chunk(chunk_id=chunk_id, content=f"{version} of {name}", metadata=metadata)


async def child(config: RunConfig, home: Path, provider: str, documents: int, version: int) -> None:
    """Work until killed, or until there is nothing left to do."""
    stack = await registered(config, home, provider)
    try:
        if documents:
            await ingest(stack, documents, version)
        else:
            await write_by_hand(stack, version)
        print("done", flush=True)
    finally:
        await stack.close()


# --- the process that kills ----------------------------------------------------------------------


def killed(command: Sequence[str], moment: float) -> bool:
    """Run the other process and kill it; return True if it had ended by itself."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert first.strip() == "working", "the other process failed"
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            return False
        assert process.returncode == 0, "the other process failed"
        return True
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run(
    config_file: Path,
    home: Path,
    provider: str,
    kills: int,
    documents: int,
    seed: int,
    longest: float = LONGEST_LIFE,
    *,
    replace: bool = False,
) -> dict[str, object]:
    """Kill so many times, let it end, check everything, and return what was seen.

    Args:
        config_file: A run.yaml.
        home: An empty data folder.
        provider: The vector_io provider.
        kills: How many kills.
        documents: How many documents; 0 writes chunks by hand.
        seed: Of the moments.
        longest: Seconds that a process lives at most.
        replace: Whether each process submits a new version, while jobs of the last are unfinished.
    """
    config, chance = load_config(config_file), random.Random(seed)
    version, done, started = 1, 0, time.monotonic()

    def command() -> list[str]:
        words = ["--config", str(config_file), "--home", str(home), "--provider", provider]
        rest = ["--documents", str(documents), "--version", str(version), "--child"]
        return [sys.executable, __file__, *words, *rest]

    while done < kills:
        if killed(command(), chance.uniform(0.01, longest)):
            version += 1
        else:
            done += 1
            version += int(replace) if documents else 100
    found = asyncio.run(checked(config, home, provider, documents, version))
    seconds = round(time.monotonic() - started, 1)
    return {"provider": provider, "kills": done, "versions": version, "seconds": seconds, **found}


async def checked(
    config: RunConfig, home: Path, provider: str, documents: int, version: int
) -> dict[str, object]:
    """Let all jobs end, then compare what is stored with what should be."""
    stack = await registered(config, home, provider)
    try:
        if not documents:
            return await whole_or_not(stack)
        await ingest(stack, documents, version)
        counts = await stack.ingestion.counts(vector_db_id="db")
        assert counts == {JobStatus.COMPLETED: documents}, counts
        wanted = await expected(config, documents, version)
        found = await stored(stack)
        assert found.keys() == wanted.keys(), "chunks are lost or left over"
        assert found == wanted, "chunks differ"
        return {"documents": documents, "chunks": len(found)}
    finally:
        await stack.close()


async def expected(config: RunConfig, documents: int, version: int) -> dict[str, str]:
    """Return the chunks that a process makes that nobody kills."""
    providers = config.providers.model_copy(update={"vector_io": RunConfig().providers.vector_io})
    undisturbed = config.model_copy(update={"providers": providers})
    with tempfile.TemporaryDirectory() as folder:
        stack = await registered(undisturbed, Path(folder), "sqlite")
        try:
            await ingest(stack, documents, version)
            return await stored(stack)
        finally:
            await stack.close()


async def stored(stack: Stack) -> dict[str, str]:
    """Return the texts of all chunks by id, each found once, with the embedding of its text."""
    index = await stack.index("db")
    ids = await index.chunk_ids(limit=100_000)
    assert await index.count() == len(ids)
    found: dict[str, str] = {}
    for start in range(0, len(ids), 500):
        some = await index.get_chunks(ids[start : start + 500], include_embeddings=True)
        texts = [each.model_copy(update={"embedding": None}) for each in some]
        wanted = directions(await embeddings_of(stack, index.vector_db, texts))
        held = directions([each.embedding for each in some])
        assert np.allclose(held, wanted, atol=1e-5), "embeddings differ"
        found |= {each.chunk_id: f"{each.document_id} {each.content}" for each in some}
    assert len(found) == len(ids)
    return found


def directions(embeddings: Any) -> NDArray[np.float64]:
    """Return embeddings with a length of 1."""
    rows = np.asarray(embeddings, dtype=np.float64)
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


async def whole_or_not(stack: Stack) -> dict[str, object]:
    """Check that each call was carried out whole or not at all."""
    texts = (await stored(stack)).values()
    whole = Counter(text.split()[1] for text in texts if text.startswith("whole "))
    loose = Counter(text.split()[1] for text in texts if text.startswith("None "))
    assert list(whole.values()) in ([], [CHUNKS_BY_HAND]), whole
    assert list(loose.values()) in ([], [CHUNKS_BY_HAND]), loose
    return {"chunks": len(texts)}


def main(words: Sequence[str] | None = None) -> None:
    """Run with these words, or those of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--provider", default="sqlite")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--by-hand", action="store_true")
    parser.add_argument("--replace", action="store_true")
    parser.add_argument("--longest", type=float, default=LONGEST_LIFE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--child", action="store_true")
    asked = parser.parse_args(words)
    documents = 0 if asked.by_hand else asked.documents
    if asked.child:
        config = load_config(asked.config)
        asyncio.run(child(config, asked.home, asked.provider, documents, asked.version))
        return
    with tempfile.TemporaryDirectory() as folder:
        home = asked.home or Path(folder)
        chosen = asked.provider, asked.kills, documents, asked.seed, asked.longest
        told = run(asked.config, home, *chosen, replace=asked.replace)
        print(json.dumps(told))


if __name__ == "__main__":
    main()
