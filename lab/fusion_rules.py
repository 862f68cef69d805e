"""Whether hybrid search is at least as good as its better leg, and whether a rule can tell ahead.

    python -m lab.fusion_rules data/cacm data/medline
    python -m lab.fusion_rules --embedder bge-small-en-v1.5 data/cacm
    python -m lab.fusion_rules --static l2_supercat_256.safetensors tokenizer.json data/cacm

It prints nDCG@10 of both legs, the default, alpha 0.3 and an alpha from left-out sentences; the
vector leg's share of both legs' nDCG@10 on these sentences; the share of ten best chunks that are
the same in both legs; and by how many standard deviations the best cosine is above the mean of 100.
A static model is a safetensors file with a matrix of token embeddings, as in the package wordllama.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corral.api.chunks import Chunk
from corral.api.embedder import Embedder, ModelInfo
from corral.api.embedding_index import EmbeddingIndex
from corral.api.rankers import DEFAULT_RANKER, WeightedRanker
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.data.datasets import read_sets
from corral.bench.data.embedded import CACHE_MIB, FOLDER, Embedding
from corral.bench.data.judged import JudgedSet
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.scratch import store
from corral.providers.base.config import RunConfig
from corral.providers.ingestion.cache import EmbeddingCache
from corral.providers.stack.stack import Stack
from lab.second_stage import configuration

K, CANDIDATES, SENTENCES, MIN_SENTENCE = 10, 100, 64, 20
STRENGTH = 5.0
"""Alpha changes by this times the difference of the vector leg's share from a half."""
MIN_ALPHA, ALPHA, MAX_ALPHA = 0.05, 0.55, 0.9
_END = re.compile(r"(?<=[.!?\u0964])\s+|(?<=[\u3002\uff01\uff1f])|\n")
Matrix = NDArray[np.float32]


class StaticEmbedder(Embedder):
    """Means of token embeddings.

    Args:
        weights: A safetensors file with one matrix.
        tokens: The tokenizer's file.
    """

    def __init__(self, weights: Path, tokens: Path) -> None:
        raw = weights.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:start])
        [about] = [each for name, each in header.items() if name != "__metadata__"]
        kind = {"F16": np.float16, "F32": np.float32}[about["dtype"]]
        begin, end = about["data_offsets"]
        table = np.frombuffer(raw[start + begin : start + end], kind)
        self._table = table.reshape(about["shape"]).astype(np.float32)
        self._tokens = Tokenizer.from_file(str(tokens))
        self._tokens.no_padding()
        self._tokens.no_truncation()
        self.tokenizer = self
        self.info = ModelInfo(model=weights.stem, dimension=self._table.shape[1])

    def token_ends(self, text: str) -> Sequence[int]:
        """Return the ends of the tokens."""
        encoding = self._tokens.encode(text, add_special_tokens=False)
        return [end for _, end in encoding.offsets]

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Return the embeddings of texts."""
        encodings = self._tokens.encode_batch(list(texts), add_special_tokens=False)
        rows = np.zeros((len(texts), self.info.dimension), np.float32)
        for row, encoding in zip(rows, encodings, strict=True):
            if encoding.ids:
                row[:] = self._table[np.minimum(encoding.ids, len(self._table) - 1)].mean(0)
        return rows

    async def embed_query(self, text: str) -> Matrix:
        """Return the embedding of a question."""
        row: Matrix = (await self.embed_documents([text]))[0]
        return row


@dataclass(frozen=True)
class Question:
    """A question with its embedding, and the share of it that the model reads."""

    text: str
    embedding: Matrix
    reads: float = 1.0


class Scratch:
    """Indexes in memory for embeddings that are already there."""

    def __init__(self, dimension: int, home: Path) -> None:
        model = {"provider_id": "any", "provider_type": "inline::hashing"}
        engine = {"provider_id": "memory", "provider_type": "inline::memory"}
        providers = {
            "embedding": [{**model, "config": {"dimension": dimension}}],
            "vector_io": [engine],
        }
        self.stack = Stack(RunConfig.model_validate({"providers": providers}), home)

    async def index(
        self, name: str, language: str, texts: Mapping[str, str], rows: Matrix
    ) -> EmbeddingIndex:
        """Return an index of texts, by chunk id."""
        await self.stack.register(
            VectorDBRegistration(vector_db_id=name, embedding_model="hashing", language=language)
        )
        index = await self.stack.index(name)
        await store(index, [Chunk(chunk_id=key, content=text) for key, text in texts.items()], rows)
        return index


async def run(
    index: EmbeddingIndex,
    questions: Mapping[str, Question],
    mode: SearchMode,
    ranker: Callable[[Question], WeightedRanker] = lambda _: DEFAULT_RANKER,
    k: int = K,
) -> dict[str, list[tuple[str, float]]]:
    """Return by question id the k best chunk ids with their scores."""
    found = {}
    for name, each in questions.items():
        answer = await index.query(each.embedding, each.text, k=k, mode=mode, ranker=ranker(each))
        found[name] = [(hit.chunk.chunk_id, hit.score) for hit in answer.hits]
    return found


def ndcg(
    qrels: Mapping[str, Mapping[str, int]], ranked: Mapping[str, Sequence[tuple[str, float]]]
) -> float:
    """Return the mean nDCG@10 of a run."""
    ids = {name: [key for key, _ in hits] for name, hits in ranked.items()}
    return float(np.mean(list(measure(qrels, ids)[NDCG].values())))


def alpha_of(alpha: float) -> Callable[[Question], WeightedRanker]:
    """Return a ranker with this alpha, times the share that the model reads."""
    return lambda each: DEFAULT_RANKER.model_copy(
        update={"alpha": max(alpha * each.reads, MIN_ALPHA)}
    )


def left_out(texts: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return for some texts a sentence, and the text without it."""
    chance = random.Random(0)
    chosen: dict[str, tuple[str, str]] = {}
    for key in chance.sample(list(texts), len(texts)):
        parts = [part.strip() for part in _END.split(texts[key])]
        parts = [part for part in parts if len(part) >= MIN_SENTENCE]
        if len(parts) > 1 and len(chosen) < SENTENCES:
            sentence = chance.choice(parts)
            chosen[key] = sentence, " ".join(part for part in parts if part is not sentence)
    return chosen


async def share_of_vectors(
    scratch: Scratch, language: str, texts: Mapping[str, str], rows: Matrix, embedder: Embedder
) -> float:
    """Return the vector leg's share of both legs' nDCG@10 on left-out sentences."""
    chosen = left_out(texts)
    rest = await embedder.embed_documents([text for _, text in chosen.values()])
    changed, places = rows.copy(), {key: place for place, key in enumerate(texts)}
    changed[[places[key] for key in chosen]] = rest / np.linalg.norm(rest, axis=1, keepdims=True)
    shortened = {**texts, **{key: text for key, (_, text) in chosen.items()}}
    index = await scratch.index("left-out", language, shortened, changed)
    questions = {
        key: Question(sentence, await embedder.embed_query(sentence))
        for key, (sentence, _) in chosen.items()
    }
    qrels = {key: {key: 1} for key in chosen}
    vector, keyword = [
        ndcg(qrels, await run(index, questions, mode))
        for mode in (SearchMode.VECTOR, SearchMode.KEYWORD)
    ]
    return vector / ((vector + keyword) or 1.0)


async def compare(judged: JudgedSet, embedder: Embedder, home: Path) -> str:
    """Return the row of a set."""
    cache = EmbeddingCache(home / FOLDER, CACHE_MIB)
    try:
        embedded = await Embedding(embedder, cache).embed(judged)
    finally:
        await cache.close()
    texts = dict(zip(judged.documents, embedded.contents, strict=True))
    pairs = zip(judged.queries.items(), embedded.queries, strict=True)
    questions = {name: Question(text, row, embedder.reads(text)) for (name, text), row in pairs}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(embedder.info.dimension, Path(folder))
        try:
            about = judged.language, texts, embedded.documents
            index = await scratch.index("all", *about)
            share = await share_of_vectors(scratch, *about, embedder)
            vector = await run(index, questions, SearchMode.VECTOR, k=CANDIDATES)
            keyword = await run(index, questions, SearchMode.KEYWORD)
            scores = [ndcg(judged.qrels, each) for each in (vector, keyword)]
            by_share = min(max(ALPHA + STRENGTH * (share - 0.5), MIN_ALPHA), MAX_ALPHA)
            for alpha in (ALPHA, 0.3, by_share):
                hybrid = await run(index, questions, SearchMode.HYBRID, alpha_of(alpha))
                scores.append(ndcg(judged.qrels, hybrid))
        finally:
            await scratch.stack.close()
    same = [_overlap(vector[name], keyword[name]) for name in questions if keyword[name]]
    above = [_margin([score for _, score in hits]) for hits in vector.values()]
    cells = " | ".join(f"{each:.4f}" for each in scores)
    rules = f"{share:.3f} | {np.mean(same):.0%} | {np.mean(above):.1f}"
    return f"| {judged.name} | {cells} | {rules} |"


def _overlap(vector: Sequence[tuple[str, float]], keyword: Sequence[tuple[str, float]]) -> float:
    return len({key for key, _ in vector[:K]} & {key for key, _ in keyword[:K]}) / K


def _margin(scores: Sequence[float]) -> float:
    return (max(scores) - float(np.mean(scores))) / (float(np.std(scores)) or 1.0)


async def measured(
    folders: Sequence[Path], model: str, static: tuple[Path, Path] | None, home: Path
) -> None:
    """Print the row of each set."""
    stack = Stack(configuration(), home)
    try:
        embedder = StaticEmbedder(*static) if static else await stack.embedder(model)
        for folder in folders:
            [judged] = read_sets([str(folder)])
            click.echo(await compare(judged, embedder, home))
    finally:
        await stack.close()


_FILE = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("folders", nargs=-1, type=_FILE)
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--static", type=(_FILE, _FILE), help="Token embeddings and tokenizer.")
@click.option("--home", type=click.Path(path_type=Path), default=Path("corral-bench", "lab"))
def main(folders: Sequence[Path], model: str, static: tuple[Path, Path] | None, home: Path) -> None:
    """Print a row for each set."""
    click.echo(
        "| set | vector | keyword | default | alpha 0.3 | left-out sentences | share | same of ten "
        "| margin |\n|---|---|---|---|---|---|---|---|---|"
    )
    asyncio.run(measured(folders, model, static, home))


if __name__ == "__main__":
    main()
