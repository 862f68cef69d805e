"""`recency` and `auto_filters` in a tuning: tried, chosen where they help, and their cost named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.filters import AutoFilters
from corral.api.recency import Recency
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.bench.tuning.legs import Answers, search_legs
from corral.bench.tuning.questions import Questions
from corral.bench.tuning.space import Trial, registered
from corral.bench.tuning.tune import tune
from corral.providers.rag.search import Retrieval

from ...providers.rag.fake_library import DIMENSION, ChattyLibrary

COUNT = 12
AUTO = AutoFilters(model="tiny", keys=("kind",))


def answers_of(**settings: Any) -> Answers:
    """Return answers with an old chunk just before the right new one, the third is far behind."""
    vector_db = VectorDB.model_validate(
        {
            "identifier": "db", "provider_id": "memory", "provider_resource_id": "db",
            "embedding_model": "m", "embedding_dimension": 2, "created_at": 1, **settings,
        }
    )  # fmt: skip
    answers = Answers(vector_db, {f"q{n}": f"about {n}" for n in range(COUNT)})
    for n, key in enumerate(answers.texts):
        for kind, day in (("old", "2015-01-01"), ("new", "2026-01-01"), ("far", "2026-01-01")):
            answers.chunks[f"{kind}{n}"] = Chunk(
                chunk_id=f"{kind}{n}", content=kind, embedding=[1.0, 0.0], metadata={"day": day}
            )
        leg = [(f"old{n}", 0.9, 0.9), (f"new{n}", 0.89, 0.89), (f"far{n}", 0.1, 0.1)]
        answers.legs[key] = {"vector": leg, "keyword": leg}
        answers.reads[key] = 1.0
        answers.embeddings[key] = np.array([1.0, 0.0], np.float32)
    return answers


def questions() -> Questions:
    """Return the questions; the new chunk is right."""
    return Questions(
        {f"q{n}": f"about {n}" for n in range(COUNT)},
        {f"q{n}": {f"new{n}": 1} for n in range(COUNT)},
    )


async def test_recency_is_tried_on_a_key_with_times_and_chosen() -> None:
    """The newer of two is right for all questions, so `recency` on `day` is the recommendation."""
    answers = answers_of()
    assert answers.dated() == ["day"]
    report = await tune(answers, questions())
    assert "recency(day," in report.chosen
    assert report.registration["recency"]["field"] == "day"


async def test_without_times_no_recency_is_tried() -> None:
    """Numbers and words are no times."""
    answers = answers_of()
    for chunk in answers.chunks.values():
        chunk.metadata |= {"day": "soon", "pages": 12}
    report = await tune(answers, questions())
    assert not any("recency" in trial.label for trial in report.trials)


async def test_registered_filters_are_compared_and_their_cost_is_named() -> None:
    """The filtered legs count for that trial only; the registered search is the reference."""
    answers = answers_of(auto_filters=AUTO)
    for n, key in enumerate(answers.texts):
        answers.filtered[key] = {name: [(f"new{n}", 0.89, 0.89)] for name in answers.legs[key]}
    answers.proposing = [0.25] * COUNT
    plain, filtered = Trial(SearchMode.VECTOR), Trial(SearchMode.VECTOR, auto_filters=AUTO)
    assert (await answers.ranked("q1", plain))[0] == "old1"
    assert (await answers.ranked("q1", filtered)) == ["new1"]
    report = await tune(answers, questions())
    assert report.registered.endswith("+ auto_filters(tiny)")
    assert any("250 ms to propose a filter" in note for note in report.notes)
    assert any(f"{COUNT} of {COUNT} questions got one" in note for note in report.notes)


@pytest.mark.parametrize("passes", [True, False])
async def test_legs_are_searched_with_and_without_the_filter(passes: bool) -> None:
    """The plain legs ignore registered options; a filter that no chunk passes counts as none."""
    value = "memo" if passes else "letter"
    proposed = [{"type": "eq", "key": "kind", "value": value}]
    library = ChattyLibrary(
        json.dumps(proposed),
        auto_filters=AUTO,
        recency=Recency(field="day", half_life=1, weight=1),
        cutoff="gap",
    )
    kinds = ["memo", "note", "memo"]
    chunks = [
        Chunk(chunk_id=f"c{n}", content="hay", metadata={"kind": kind})
        for n, kind in enumerate(kinds)
    ]
    await library.indexes["db"].add_chunks(chunks, [[1.0] * DIMENSION] * len(chunks))
    vector_db = await library.vector_db("db")
    answers = await search_legs(Retrieval(library), vector_db, {"q": "hay?"}, lambda *_: None)
    assert len(answers.legs["q"]["vector"]) == 3
    found = {name: [each[0] for each in leg] for name, leg in answers.filtered.get("q", {}).items()}
    assert found.get("vector", []) == (["c0", "c2"] if passes else [])
    assert len(library.prompts) == len(answers.proposing) == 1


def test_a_recency_without_weight_is_none() -> None:
    """A registered weight of 0 switches it off."""
    off = Recency(field="day", half_life=1, weight=0)
    assert registered(answers_of(recency=off).vector_db).recency is None
