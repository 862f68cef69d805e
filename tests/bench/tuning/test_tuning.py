"""Tuning: what is tried, what is chosen, what is said about it, and what it changes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest, NotFound, Unavailable
from corral.api.rankers import DEFAULT_RANKER, RRFRanker
from corral.api.reranker import BM25Rerank, ModelRerank
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.report.rows import TuneSection
from corral.bench.tuning.questions import Questions, generate, halves, read_questions
from corral.bench.tuning.run import TunePlan, run_tune
from corral.bench.tuning.space import Trial, fusions, re_ranked, single_modes
from corral.bench.tuning.tune import simplest
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.stack.stack import Stack

HASHING = ProviderEntry(
    provider_id="hashing", provider_type="inline::hashing", config={"dimension": 64}
)
MEMORY_LIKE = ProviderEntry(provider_id="sqlite", provider_type="inline::sqlite")
CONFIG = RunConfig(
    providers=Providers(vector_io=[MEMORY_LIKE], embedding=[HASHING]),
    default_embedding_model="hashing",
)
WORDS = [f"word{number}" for number in range(60)]


def text_of(number: int) -> str:
    """Return a text of 24 words, different for each number."""
    return " ".join(WORDS[(number * 7 + place * (1 + number % 5)) % 60] for place in range(24))


async def filled(home: Path, count: int = 60) -> None:
    """Register a vector DB and store chunks in it."""

    stack = Stack(CONFIG, home)
    await stack.register(VectorDBRegistration(vector_db_id="db", embedding_model="hashing"))
    chunks = [
        Chunk(chunk_id=f"c{n}", content=text_of(n), metadata={"document_id": f"d{n // 2}"})
        for n in range(count)
    ]
    await store(stack, "db", chunks)
    await stack.close()


async def run(home: Path, **settings: Any) -> TuneSection:
    """Tune the vector DB."""
    return (await run_tune(TunePlan(CONFIG, home, db="db", **settings))).section


async def stored(home: Path) -> Any:
    """Return the registration as it is now."""

    stack = Stack(CONFIG, home)
    found = await stack.vector_db("db")
    await stack.close()
    return found


# --- questions ------------------------------------------------------------------------------------


def lines(path: Path, *rows: Any) -> Path:
    """Write JSON lines."""
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_questions_are_read_with_ids_or_grades(tmp_path: Path) -> None:
    """A list of ids is relevance 1; `_id` names a question, otherwise its line does."""
    rows: list[dict[str, Any]] = [{"query": f"q {n}", "relevant": ["a", "b"]} for n in range(9)]
    rows.append({"_id": "mine", "query": "graded", "relevant": {"c": 2}})
    found = read_questions(lines(tmp_path / "q.jsonl", *rows))
    assert found.relevant["1"] == {"a": 1, "b": 1}
    assert found.relevant["mine"] == {"c": 2}
    assert len(found.texts) == 10


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"relevant": ["a"]}, "query"),
        ({"query": " ", "relevant": ["a"]}, "query"),
        ({"query": "x"}, "relevant"),
        ({"query": "x", "relevant": []}, "relevant"),
        ({"query": "x", "relevant": {"a": 0}}, "relevant"),
        ({"query": "x", "relevant": "abc"}, "relevant"),
        ({"query": "x", "relevant": 7}, "relevant"),
        ({"query": "x", "relevant": {"a": True}}, "relevant"),
        ({"query": "x", "relevant": {"a": 1.5}}, "relevant"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, row: Any, said: str) -> None:
    """File and line stand in the message."""
    good = {"query": "x", "relevant": ["a"]}
    path = lines(tmp_path / "q.jsonl", *[good] * 3, row, *[good] * 9)
    with pytest.raises(InvalidRequest, match=rf"q\.jsonl:4.*{said}"):
        read_questions(path)


def test_too_few_questions_are_refused(tmp_path: Path) -> None:
    """Half of nine is nothing to choose by."""
    path = lines(tmp_path / "q.jsonl", *[{"query": "x", "relevant": ["a"]}] * 9)
    with pytest.raises(InvalidRequest, match=r"at least 10 questions .* \(got 9\)"):
        read_questions(path)


async def test_generated_questions_are_words_of_their_chunk(tmp_path: Path) -> None:
    """Equal seeds give equal questions; each names the chunk whose words it is made of."""
    await filled(tmp_path)

    async def work(seed: int) -> Questions:
        stack = Stack(CONFIG, tmp_path)
        found = await generate(await stack.index("db"), 20, seed)
        await stack.close()
        return found

    found = await work(1)
    assert found == await work(1)
    assert found.texts != (await work(2)).texts
    assert found.generated
    for key, text in found.texts.items():
        [chunk_id] = found.relevant[key]
        words = text_of(int(chunk_id[1:])).split()
        assert len(text.split()) >= 3
        assert set(text.split()) <= set(words)


def test_halves_share_nothing() -> None:
    """Every question is in one of them, whatever the order they come in."""
    keys = [f"q{n}" for n in range(21)]
    choose, judge = halves(keys, 3)
    assert sorted(choose + judge) == sorted(keys)
    assert (len(choose), len(judge)) == (10, 11)
    assert halves(keys[::-1], 3) == (choose, judge)


# --- choice ---------------------------------------------------------------------------------------


def test_what_is_simpler_wins_where_it_is_as_good() -> None:
    """A fusion that is better by chance, or by next to nothing, does not displace one leg."""
    vector, keyword = single_modes()
    default, other = Trial(SearchMode.HYBRID), Trial(SearchMode.HYBRID, RRFRanker())
    base = {f"q{n}": 0.5 for n in range(20)}
    lucky = {**base, "q0": 0.6, "q1": 0.45}
    clear = {key: value + 0.1 + 0.01 * (n % 3) for n, (key, value) in enumerate(base.items())}
    assert simplest({vector: base, keyword: base, default: lucky, other: lucky}) == vector
    assert simplest({vector: base, keyword: base, default: clear, other: clear}) == default
    hardly = {key: value + 0.004 for key, value in base.items()}
    assert simplest({vector: base, keyword: base, default: hardly, other: hardly}) == vector
    better = {key: value + 0.1 for key, value in clear.items()}
    assert simplest({vector: base, keyword: base, default: clear, other: better}) == other
    assert default.ranker == DEFAULT_RANKER


def test_every_trial_is_another_registration() -> None:
    """Labels are unique, and each trial's settings are a valid registration."""
    models = [ModelRerank(model=name) for name in ("late", "cross")]
    trials = [*single_modes(), *fusions(), *re_ranked(fusions()[0], models)]
    assert len({trial.label for trial in trials}) == len(trials)
    for trial in trials:
        asked = {"vector_db_id": "x", "embedding_model": "m", **trial.settings()}
        registration = VectorDBRegistration.model_validate(asked)
        assert registration.search_mode is trial.mode
    assert isinstance(re_ranked(fusions()[0])[-1].rerank, BM25Rerank)


# --- a whole tuning -------------------------------------------------------------------------------


async def test_a_tuning_recommends_what_it_chose_and_says_what_for(tmp_path: Path) -> None:
    """Known items under a hashing embedder: keyword search, and the note on such questions.

    `apply` registers the recommended mode and nothing else: the chunks are as they were, and
    questions that copy their chunk do not decide whom a vector DB refuses an answer.
    """
    await filled(tmp_path)
    before = await stored(tmp_path)
    section = await run(tmp_path, generate=40)
    assert (section.n_train, section.n_held_out, section.generated) == (20, 20, True)
    assert section.chosen in {trial.label for trial in section.trials}
    assert section.registration["search_mode"] == section.chosen.split()[0]
    shown = [trial for trial in section.trials if trial.held_out is not None]
    assert all(trial.complete_at_5 is not None for trial in shown)
    [keyword] = [trial for trial in shown if trial.label == "keyword"]
    assert (keyword.complete_at_5 or 0) >= keyword.train.mean / 2, "one answer each, mostly found"
    assert sum(trial.comparison is not None for trial in shown) == len(shown) - 1
    assert "held out" in section.statement
    assert "by Holm" in section.statement
    assert any("known items" in note for note in section.notes)
    assert any(note.startswith("min_confidence ") for note in section.notes)
    assert any("have less confidence" in note for note in section.notes)
    assert section.min_confidence is None
    assert await stored(tmp_path) == before, "nothing changes unasked"
    assert before.search_mode is SearchMode.HYBRID

    applied = await run(tmp_path, generate=40, apply=True)
    assert applied.trials == section.trials, "equal seeds, equal tunings"
    after = await stored(tmp_path)
    assert (
        str(after.search_mode) == applied.registration["search_mode"] == section.chosen.split()[0]
    )
    assert after.min_confidence == 0
    keep = {"search_mode", "ranker", "rerank"}
    assert after.model_dump(exclude=keep) == before.model_dump(exclude=keep)


async def test_applying_registers_the_least_confidence(tmp_path: Path) -> None:
    """Judged questions: it is registered with the mode, and tuning again finds the same.

    If this fails: the vector DB answers what tuning said to refuse, or a registered
    `min_confidence` leaves the legs of the next tuning empty.
    """
    await filled(tmp_path)
    rows = [{"query": text_of(n), "relevant": [f"c{n}"]} for n in range(40)]
    asked = {"queries": lines(tmp_path / "q.jsonl", *rows), "apply": True}
    section = await run(tmp_path, **asked)
    [note] = [note for note in section.notes if note.startswith("min_confidence ")]
    assert "min_confidence" not in section.registration
    least = section.settings["min_confidence"]
    assert note.startswith(f"min_confidence {least:g} refuses ")
    assert 0 < least < 1
    assert (await stored(tmp_path)).min_confidence == least
    stack = Stack(CONFIG, tmp_path)
    await stack.change_search("db", {"min_confidence": 1.0})
    await stack.close()
    again = await run(tmp_path, **asked)
    assert again == section
    assert (await stored(tmp_path)).min_confidence == least


async def test_document_ids_are_judged_too(tmp_path: Path) -> None:
    """A question may name the document instead of its chunks."""
    await filled(tmp_path)
    rows = [{"query": text_of(n), "relevant": [f"d{n // 2}"]} for n in range(0, 40, 2)]
    section = await run(tmp_path, queries=lines(tmp_path / "q.jsonl", *rows))
    assert max(trial.train.mean for trial in section.trials) > 0.9


async def test_questions_about_other_data_are_refused(tmp_path: Path) -> None:
    """Ids that no question ever finds: the file belongs to another vector DB."""
    await filled(tmp_path)
    rows = [{"query": text_of(n), "relevant": ["elsewhere"]} for n in range(12)]
    with pytest.raises(InvalidRequest, match="'elsewhere'"):
        await run(tmp_path, queries=lines(tmp_path / "q.jsonl", *rows))


async def test_unknown_ids_are_counted(tmp_path: Path) -> None:
    """Ids that the vector DB does not hold count for nothing, and a note says how many they are.

    If this fails: deleted or misspelled ids lower every figure, and nobody learns why.
    """
    await filled(tmp_path)
    rows: list[dict[str, Any]] = [{"query": text_of(n), "relevant": [f"c{n}"]} for n in range(20)]
    whole = await run(tmp_path, queries=lines(tmp_path / "q.jsonl", *rows))
    rows[3]["relevant"] = ["c3", "gone"]
    rows.append({"query": "nothing", "relevant": {"gone": 1, "away": 2}})
    part = await run(tmp_path, queries=lines(tmp_path / "q.jsonl", *rows))
    [note] = [note for note in part.notes if "name no chunk" in note]
    assert note == (
        "2 of 22 ids under 'relevant' name no chunk or document of db, the first 'gone' (question "
        "'4'). Questions that name no other: 1. They do not count."
    )
    assert (part.trials, part.registration) == (whole.trials, whole.registration)


async def test_too_few_known_questions_are_refused(tmp_path: Path) -> None:
    """Before anything is asked, and with the number of unknown ids."""
    await filled(tmp_path)
    rows = [{"query": text_of(n), "relevant": [f"c{n}" if n < 9 else "gone"]} for n in range(30)]
    with pytest.raises(InvalidRequest, match=r"^1 of 10 ids .* \(got 9\)"):
        await run(tmp_path, queries=lines(tmp_path / "q.jsonl", *rows))


async def test_a_tuning_says_on_what_data(tmp_path: Path) -> None:
    """Its data have the hashes of chunks and questions, which change with them, and no text."""
    await filled(tmp_path)
    rows = [{"query": text_of(n), "relevant": [f"c{n}"]} for n in range(20)]
    path = lines(tmp_path / "q.jsonl", *rows)
    plans = [
        TunePlan(CONFIG, tmp_path, db="db", queries=path),
        TunePlan(CONFIG, tmp_path, db="db", generate=20),
    ]
    given, made = [(await run_tune(plan)).data for plan in plans]
    assert (given.name, given.kind, given.documents, given.queries) == ("db", "vector_db", 60, 20)
    assert given.sha256.keys() == {"chunk ids", "q.jsonl"}
    assert given.sha256["q.jsonl"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert made.sha256["chunk ids"] == given.sha256["chunk ids"]
    assert not given.query_texts


HOLD = """
import asyncio, sys
from pathlib import Path
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.stack.stack import Stack

async def hold():
    stack = Stack(RunConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
    await stack.register(VectorDBRegistration(vector_db_id="db", embedding_model="hashing"))
    print("ready", flush=True)
    sys.stdin.readline()
    await stack.close()

asyncio.run(hold())
"""


def test_an_engine_that_a_server_holds_open(tmp_path: Path) -> None:
    """Where another process has the vector DB open, the error says to stop it, or what to use.

    If this fails: who runs the command of the page beside the server does not know how to go on.
    """
    providers = Providers(
        vector_io=[ProviderEntry(provider_id="milvus", provider_type="inline::milvus")],
        embedding=[HASHING],
    )
    config = RunConfig(providers=providers, default_embedding_model="hashing")
    words = [sys.executable, "-c", HOLD, config.model_dump_json(), str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        try:
            with pytest.raises(Unavailable) as caught:
                asyncio.run(run_tune(TunePlan(config, tmp_path, db="db", generate=20)))
        finally:
            holder.communicate(b"\n")
    assert "Stop " in str(caught.value)
    assert "remote::milvus" in str(caught.value)


async def test_an_unknown_vector_db_is_named(tmp_path: Path) -> None:
    """Before any question is asked."""
    with pytest.raises(NotFound, match="'db'"):
        await run(tmp_path, generate=40)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"db": "db"},
        {"db": "db", "data": "miniature", "generate": 10},
        {"db": "db", "generate": 10, "queries": Path("q")},
        {"data": "miniature", "generate": 10},
        {"data": "miniature", "apply": True},
    ],
)
def test_contradicting_plans_are_refused(tmp_path: Path, settings: Any) -> None:
    """One thing to tune, one kind of questions; nothing to apply where nothing stays."""
    with pytest.raises(InvalidRequest):
        TunePlan(CONFIG, tmp_path, **settings)
