"""Records the answers of every provider, to check that a change leaves them equal.

    python -m lab.answers OUT [--providers sqlite,faiss] [--data DIR] [--most N] [--config run.yaml]
    python -m lab.answers NEW --against OUT

It asks through the server's routes, in this process, and writes one TREC run for each provider,
set and mode: OUT/sqlite/miniature-en/hybrid.run. Scores are written in full. The miniature sets are
always asked, with options too (`VARIANTS`) and once more after chunks were replaced and deleted. A
refusal is an answer: a line that begins with `#`.

It imports little of the package and no other module of `lab`, so it also works with an older tree:
run `python THIS_FILE OUT` in that tree's root and environment.

Remote providers are named by the ids of `--config`. To start every engine for the run: `python
tests/with_engines.py python -m lab.answers OUT --config {config} --providers {backends}`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import yaml

from corral.bench.data.datasets import read_sets
from corral.bench.data.embedded import contents_of
from corral.bench.data.judged import JudgedSet
from corral.bench.data.miniature import MINIATURE
from corral.server.app import create_app

INLINE = "sqlite,memory,faiss,chroma,qdrant,milvus"
MODES = ("vector", "keyword", "hybrid")
HASHING = {"provider_id": "hashing", "provider_type": "inline::hashing"}
K = 100
BATCH = 500
"""Chunks inserted per request."""
VARIANT_QUERIES = 12
"""Queries per variant of the options."""
VARIANTS: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "filter": (MODES, {"filters": {"type": "lt", "key": "number", "value": 40}}),
    "filters": (
        MODES,
        {
            "filters": {
                "type": "or",
                "filters": [
                    {"type": "in", "key": "kind", "value": ["even"]},
                    {"type": "gte", "key": "number", "value": 200},
                ],
            }
        },
    ),
    "threshold": (MODES, {"score_threshold": 0.55}),
    "fuzzy": (("keyword", "hybrid"), {"fuzzy": True}),
    "web": (MODES, {"query_syntax": "web"}),
    "rrf": (("hybrid",), {"ranker": {"type": "rrf"}}),
    "weighted": (("hybrid",), {"ranker": {"type": "weighted", "alpha": 0.4}}),
    "z-score": (("hybrid",), {"ranker": {"type": "weighted", "normalization": "z_score"}}),
    "max": (("hybrid",), {"ranker": {"type": "max"}}),
}
"""Mode and options of a question to a miniature set, by name."""
MORE_QUESTIONS = {
    "phrase": '"mounting screws" elevator',
    "phrase-and-not": '"mounting screws" -elevator',
    "typo": "refrigeratr lubricat bearng",
}


class Answers:
    """One set in one provider, asked through the routes.

    Args:
        http: Client of the server.
        judged: The set.
        folder: Folder of the run files.
        tag: Last column of the run files.
    """

    def __init__(self, http: httpx.AsyncClient, judged: JudgedSet, folder: Path, tag: str) -> None:
        self._http, self._judged, self._folder, self._tag = http, judged, folder, tag
        self._db = judged.name

    async def write(self, model: str, most: int | None) -> None:
        """Store the set, ask at most `most` queries, and delete it."""
        queries = dict(list(self._judged.queries.items())[:most])
        body = {"vector_db_id": self._db, "provider_id": self._tag, "embedding_model": model}
        await self._send("POST", "/v1/vector-dbs", {**body, "language": self._judged.language})
        texts = zip(self._judged.documents, contents_of(self._judged), strict=True)
        await self._insert([_chunk(n, key, text) for n, (key, text) in enumerate(texts)])
        for mode in MODES:
            await self._run(mode, queries, {"mode": mode})
        if self._judged.kind == MINIATURE:
            await self._write_variants(queries)
        await self._send("DELETE", f"/v1/vector-dbs/{self._db}")

    async def _write_variants(self, queries: Mapping[str, str]) -> None:
        every = max(len(queries) // VARIANT_QUERIES, 1)
        some = {**dict(list(queries.items())[::every]), **MORE_QUESTIONS}
        for name, (modes, options) in VARIANTS.items():
            for mode in modes:
                await self._run(f"{mode}.{name}", some, {"mode": mode, **options})
        keys = list(self._judged.documents)
        gone = {"vector_db_id": self._db, "chunk_ids": keys[::7]}
        await self._send("POST", "/v1/vector-io/delete", gone)
        await self._insert(
            [_chunk(n, key, f"Replaced: {self._judged.documents[key]}")
             for n, key in enumerate(keys) if n % 11 == 3]
        )  # fmt: skip
        for mode in MODES:
            await self._run(f"{mode}.changed", some, {"mode": mode})

    async def _insert(self, chunks: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(chunks), BATCH):
            body = {"vector_db_id": self._db, "chunks": chunks[start : start + BATCH]}
            await self._send("POST", "/v1/vector-io/insert", body)

    async def _run(self, name: str, queries: Mapping[str, str], params: dict[str, Any]) -> None:
        lines: list[str] = []
        for key, text in queries.items():
            asked = {"max_chunks": K, **params}
            body = {"vector_db_id": self._db, "query": text, "params": asked}
            response = await self._http.post("/v1/vector-io/query", json=body)
            lines += _lines(key, response, self._tag)
        path = self._folder / f"{name}.run"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    async def _send(self, method: str, path: str, body: Any = None) -> None:
        response = await self._http.request(method, path, json=body)
        if response.is_error:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")


def _chunk(number: int, key: str, text: str) -> dict[str, Any]:
    kind = "odd" if number % 2 else "even"
    metadata = {"document_id": key, "number": number, "kind": kind}
    return {"chunk_id": key, "content": text, "metadata": metadata}


def _lines(key: str, response: httpx.Response, tag: str) -> Iterator[str]:
    """Yield the lines of an answer in a TREC run, or of the refusal."""
    found = response.json()
    if response.is_error:
        yield f"# {key} {response.status_code} {found['error']['message']}"
        return
    hits = zip(found["chunks"], found["scores"], strict=True)
    for rank, (chunk, score) in enumerate(hits, start=1):
        yield f"{key} Q0 {chunk['chunk_id']} {rank} {score!r} {tag}"


@asynccontextmanager
async def serving(providers: dict[str, Any], model: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of an in-process server with these providers and this default model."""
    settings = {"providers": providers, "default_embedding_model": model}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        (Path(home) / "run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        app = create_app(home=Path(home))
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test", timeout=600) as http,
        ):
            yield http


async def record(arguments: argparse.Namespace) -> None:
    """Write the run files of all providers and sets."""
    text = arguments.config.read_text("utf-8") if arguments.config else "{}"
    given = yaml.safe_load(text).get("providers", {})
    known = {entry["provider_id"]: entry for entry in given.get("vector_io", [])}
    sets = read_sets([MINIATURE, *arguments.data])
    for name in arguments.providers.split(","):
        inline = {"provider_id": name, "provider_type": f"inline::{name}"}
        providers = {**given, "vector_io": [known.get(name, inline)]}
        if arguments.embedder == HASHING["provider_id"]:
            providers["embedding"] = [HASHING]
        async with serving(providers, arguments.embedder) as http:
            for judged in sets:
                folder = arguments.out / name / judged.name
                answers = Answers(http, judged, folder, name)
                await answers.write(arguments.embedder, arguments.most)
        print(f"{name}: {arguments.out / name}", flush=True)


def differences(new: Path, old: Path) -> Iterator[str]:
    """Yield a few lines for each file that differs, for the providers and sets in `new`."""
    sets = {path.parent.relative_to(new) for path in new.rglob("*.run")}
    names = {
        path.relative_to(root)
        for root in (new, old)
        for one in sets
        for path in (root / one).glob("*.run")
    }
    for name in sorted(names):
        missing = [root for root in (new, old) if not (root / name).exists()]
        if missing:
            yield f"{name}: missing in {missing[0]}"
        elif (new / name).read_bytes() != (old / name).read_bytes():
            lines = [(root / name).read_text("utf-8").splitlines() for root in (old, new)]
            pairs = list(enumerate(zip_longest(*lines), start=1))
            unlike = [(number, pair) for number, pair in pairs if pair[0] != pair[1]]
            yield f"{name}: {len(unlike)} of {len(pairs)} lines differ"
            yield from (f"  {n}\n  - {before}\n  + {now}" for n, (before, now) in unlike[:3])


def compare(new: Path, old: Path) -> int:
    """Print the differences, or one line of totals; return the exit code."""
    found = list(differences(new, old))
    print("\n".join(found) or f"{len(list(new.rglob('*.run')))} runs are byte-equal.")
    return int(bool(found))


def main(given: Sequence[str] | None = None) -> int:
    """Record unless OUT and `--against` both exist; compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.answers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("out", type=Path)
    parser.add_argument("--providers", default=INLINE)
    parser.add_argument("--data", action="append", default=[], help="a judged set's folder")
    parser.add_argument("--most", type=int, help="queries of each set (default: all)")
    parser.add_argument("--against", type=Path, help="compare with this folder")
    parser.add_argument("--embedder", default="hashing", help="a model that is served")
    parser.add_argument("--config", type=Path, help="run.yaml with remote providers")
    parser.add_argument("--compare-only", action="store_true", help="record nothing")
    arguments = parser.parse_args(given)
    if not arguments.compare_only:
        asyncio.run(record(arguments))
    return compare(arguments.out, arguments.against) if arguments.against else 0


if __name__ == "__main__":
    sys.exit(main())
