"""A tuning recommends another search only if its gain on the registered one is resolvable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDB, VectorDBRegistration
from corral.bench.report.rows import TuneSection
from corral.bench.tuning.run import TunePlan, run_tune
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.stack.stack import Stack

WORDS = [f"word{number}" for number in range(60)]


def text_of(number: int) -> str:
    """Return a text of 24 words, different for each number."""
    return " ".join(WORDS[(number * 7 + place * (1 + number % 5)) % 60] for place in range(24))


async def tuned(
    home: Path, dimension: int, *, by_name: bool = False, **settings: Any
) -> tuple[TuneSection, VectorDB, VectorDB]:
    """Tune a vector DB for its texts, or their names; return its registration before and after."""
    hashing = ProviderEntry(
        provider_id="hashing", provider_type="inline::hashing", config={"dimension": dimension}
    )
    config = RunConfig(providers=Providers(embedding=[hashing]), default_embedding_model="hashing")
    stack = Stack(config, home)
    before = await stack.register(VectorDBRegistration(vector_db_id="db", **settings))
    names = [f"name{n}" for n in range(60)]
    texts = [f"{name} {text_of(n)}" for n, name in enumerate(names)]
    chunks = [Chunk(chunk_id=f"c{n}", content=text, metadata={}) for n, text in enumerate(texts)]
    await store(stack, "db", chunks)
    await stack.close()
    asked = names if by_name else texts
    rows = [{"query": asked[n], "relevant": [f"c{n}"]} for n in range(0, 60, 2)]
    questions = home / "questions.jsonl"
    questions.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    plan = TunePlan(config, home, db="db", queries=questions, apply=True)
    section = (await run_tune(plan)).section
    stack = Stack(config, home)
    after = await stack.vector_db("db")
    await stack.close()
    return section, before, after


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ranker": {"type": "rrf", "rank_constant": 33.0}},
        {"rerank": {"type": "mmr", "lambda": 0.99}},
    ],
    ids=["default", "a fusion of its own", "re-ranked"],
)
async def test_no_resolvable_gain_recommends_to_stay(tmp_path: Path, settings: Any) -> None:
    """If nothing gains more than its interval, the registered search is recommended, and kept.

    If this fails: look at `tune` in `bench/tuning/tune.py`. An operator is told to leave a mode for
    another that may be worse.
    """
    section, before, after = await tuned(tmp_path, 256, **settings)
    assert section.chosen == section.registered
    assert section.statement.startswith(f"Stay with {section.registered}, as registered: ")
    assert section.registration["search_mode"] == before.search_mode
    assert after == before.model_copy(update={"min_confidence": after.min_confidence})


async def test_a_resolvable_gain_recommends_to_change(tmp_path: Path) -> None:
    """Four dimensions do not show a name among 24 words: leave vector search.

    If this fails: look at `tune` in `bench/tuning/tune.py`. It keeps what is clearly worse.
    """
    section, _, after = await tuned(tmp_path, 4, by_name=True, search_mode="vector")
    assert section.registered == "vector"
    assert section.chosen != "vector"
    assert section.statement.startswith(f"Change from vector to {section.chosen}: +0.")
    [current] = [trial for trial in section.trials if trial.label == "vector"]
    [chosen] = [trial for trial in section.trials if trial.label == section.chosen]
    assert current.held_out is not None
    assert chosen.held_out is not None
    assert chosen.held_out.mean > current.held_out.mean
    assert after.search_mode == section.registration["search_mode"] != "vector"
