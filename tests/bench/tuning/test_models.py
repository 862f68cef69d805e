"""Re-ranking models in a tuning: blended as in a search, each text read once, the time named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from corral.api.chunks import Chunk
from corral.api.hits import Hit
from corral.api.reranker import ModelRerank, Reranker
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.bench.tuning.legs import Answers
from corral.bench.tuning.questions import Questions
from corral.bench.tuning.space import RERANKED, Trial
from corral.bench.tuning.tune import tune

COUNT = 12
"""Questions, each with a chunk of its own that is the second of its keyword leg."""

REGISTERED = ModelRerank(model="scripted", candidates=20, weight=0.01, prepare=True)


class Scripted(Reranker):
    """Gives 1 to the chunk that a question is about, else 0; counts what it reads."""

    def __init__(self) -> None:
        self.read = 0

    async def rerank(
        self, query: str, hits: Sequence[Hit], k: int, *, embedding: Any = None, tenant: str = ""
    ) -> list[Hit]:
        """Return the hits in the order of their scores."""
        self.read += len(hits)
        number = query.rsplit(maxsplit=1)[-1]
        scored = [replace(hit, score=float(hit.chunk.content == f"chunk0{number}")) for hit in hits]
        return sorted(scored, key=lambda hit: -hit.score)[:k]


def answers_of(model: Reranker, count: int = COUNT, rerank: ModelRerank | None = None) -> Answers:
    """Return answers in which both legs put the right chunk second, behind the next question's."""
    vector_db = VectorDB(
        identifier="db",
        provider_id="memory",
        provider_resource_id="db",
        embedding_model="m",
        embedding_dimension=2,
        rerank=rerank,
        created_at=1,
    )
    texts = {f"q{n}": f"about {n}" for n in range(count)}
    answers = Answers(vector_db, texts, rerankers={"scripted": model})
    for n, key in enumerate(texts):
        answers.chunks[f"c{n}"] = Chunk(
            chunk_id=f"c{n}", content=f"chunk0{n}", embedding=[1.0, 0.0]
        )
        before, after = f"c{(n - 1) % count}", f"c{(n + 1) % count}"
        leg = [(after, 0.9, 0.8), (f"c{n}", 0.8, 0.6), (before, 0.5, 0.1)]
        answers.legs[key] = {"vector": leg, "keyword": leg}
        answers.reads[key] = 1.0
        answers.embeddings[key] = np.array([1.0, 0.0], np.float32)
    return answers


def trial(weight: float) -> Trial:
    """Return the default hybrid, re-ranked by the scripted model."""
    rerank = ModelRerank(model="scripted", candidates=RERANKED, weight=weight)
    return Trial(SearchMode.HYBRID, rerank=rerank)


async def test_a_weight_blends_and_no_text_is_read_twice() -> None:
    """A small weight keeps the first order, a large one takes the model's; 3 texts are read.

    If this fails: look at `Answers._by_model`. A registered weight is not what is measured.
    """
    model = Scripted()
    answers = answers_of(model)
    assert (await answers.ranked("q4", trial(0.1)))[0] == "c5"
    assert (await answers.ranked("q4", trial(0.9)))[0] == "c4"
    assert (await answers.ranked("q4", trial(1.0)))[0] == "c4"
    assert model.read == 3


async def test_a_model_is_recommended_where_it_gains_and_its_time_is_named() -> None:
    """Only the model puts the right chunk first: it is chosen, and a note says what it costs."""
    answers = answers_of(Scripted(), count=40, rerank=REGISTERED)
    relevant = {f"q{n}": {f"c{n}": 1} for n in range(40)}
    section = await tune(answers, Questions(dict(answers.texts), relevant))
    assert "model(scripted" in section.chosen
    chosen = ModelRerank.model_validate(section.registration["rerank"])
    assert chosen.model == "scripted"
    assert chosen.weight > REGISTERED.weight
    assert chosen.prepare, "an option that is not tried stays as registered"
    assert any(f"to re-rank {RERANKED} texts" in note for note in section.notes)


async def test_without_a_gain_nothing_is_re_ranked() -> None:
    """A model that tells nothing apart loses to the simpler search, whatever was registered."""
    answers = answers_of(Scripted(), count=40)
    relevant = {f"q{n}": {f"c{(n + 1) % 40}": 1} for n in range(40)}
    section = await tune(answers, Questions(dict(answers.texts), relevant))
    assert "model(" not in section.chosen
