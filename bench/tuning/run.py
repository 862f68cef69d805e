"""A whole tuning, of a registered vector DB or of a judged set that is stored for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import SearchMode, VectorDB, VectorDBRegistration
from corral.bench.backends import find_backends
from corral.bench.data.datasets import read_sets
from corral.bench.data.embedded import Embedding, with_hashing
from corral.bench.data.judged import JudgedSet
from corral.bench.report.rows import DataSet, TuneSection
from corral.bench.scratch import scratch_stack, store
from corral.bench.tuning.confidence import GENERATED, least, of_questions, proposal
from corral.bench.tuning.legs import Answers, search_legs
from corral.bench.tuning.questions import (
    Questions,
    all_ids,
    checked,
    generate,
    known,
    read_questions,
)
from corral.bench.tuning.tune import tune
from corral.providers.base.config import Providers, RunConfig
from corral.providers.rag.search import Retrieval
from corral.providers.stack.stack import Stack

BACKEND = "sqlite"
"""Id of the vector DB for a judged set if none is named."""
MOST_ASKED = 300
"""Number of questions for the confidence."""

Advance = Callable[[int, int], None]
Watch = Callable[[int], AbstractContextManager[Advance]]


def unwatched(questions: int) -> AbstractContextManager[Advance]:
    """Return a context that discards the progress."""
    return nullcontext(lambda number, size: None)


@dataclass(frozen=True, slots=True)
class TunePlan:
    """The options of `corral bench tune`, the configuration and the data folder.

    Attributes:
        article: Number of consecutive texts of `data` per document.
    """

    config: RunConfig
    home: Path
    db: str | None = None
    data: str | None = None
    queries: Path | None = None
    generate: int | None = None
    backend: str | None = None
    language: str | None = None
    model: str | None = None
    apply: bool = False
    seed: int = 0
    article: int = 1

    def __post_init__(self) -> None:
        """Check the options for contradictions.

        Raises:
            InvalidRequest: There is not exactly one thing to tune or one kind of questions, or an
                option would have no effect.
        """
        if (self.db is None) == (self.data is None):
            raise InvalidRequest(
                "Give either --db or --data.", hint="--db tunes a registered vector DB."
            )
        named = [self.queries is not None, self.generate is not None]
        if self.db is not None and sum(named) != 1:
            raise InvalidRequest(
                "Give either --queries or --generate.",
                hint="--generate 200 makes questions from the chunks.",
            )
        given = {"backend": self.backend, "language": self.language, "embedder": self.model}
        for name in (name for name, value in given.items() if value and self.db is not None):
            said = f"--{name} needs --data: a registered vector DB has its own."
            raise InvalidRequest(said, field=name)
        if self.data is not None and any(named):
            raise InvalidRequest("--data has its own questions; drop --queries and --generate.")
        if self.data is not None and self.apply:
            raise InvalidRequest("--apply needs --db: what --data stores is deleted after the run.")


class Opened(NamedTuple):
    """The subject of a plan: a stack, its vector DB, the questions, and the data of both."""

    stack: Stack
    vector_db: VectorDB
    questions: Questions
    data: DataSet


class Tuned(NamedTuple):
    """The result of a tuning, and the vector DB as it was before."""

    section: TuneSection
    vector_db: VectorDB
    data: DataSet


async def run_tune(plan: TunePlan, watch: Watch = unwatched) -> Tuned:
    """Tune, and change the registration if the plan says so.

    Args:
        plan: The options.
        watch: Called with the number of questions; returns a function that is called for each.

    Raises:
        NotFound: The vector DB does not exist.
        InvalidRequest: Questions are malformed or too few, or name only unknown ids.
        CorralError: The embedder or the backend failed.
    """
    async with opened(plan) as (stack, vector_db, questions, data):
        with watch(len(questions.texts)) as advance:
            answers = await legs_of(stack, vector_db, questions, advance)
        section = await tune(answers, questions, plan.seed)
        section = await with_confidence(section, stack, questions)
        if plan.apply:
            unset: dict[str, Any] = {"recency": None, "auto_filters": "none"}
            unset |= {"rerank": {"type": "none"}} if vector_db.rerank else {}
            await stack.change_search(vector_db.identifier, {**unset, **section.settings})
        return Tuned(section, vector_db, data)


async def legs_of(
    stack: Stack, vector_db: VectorDB, questions: Questions, advance: Advance
) -> Answers:
    """Return the legs of every question, with all re-ranking models of the configuration."""
    models = [name for _, name in stack.rerank_models()]
    return await search_legs(Retrieval(stack), vector_db, questions.texts, advance, models)


def complete_settings(section: TuneSection, vector_db: VectorDB) -> dict[str, Any]:
    """Return the recommended settings; without a re-ranker they remove the registered one."""
    unset = {"rerank": {"type": "none"}} if vector_db.rerank else {}
    return {**unset, **section.settings}


async def with_confidence(section: TuneSection, stack: Stack, questions: Questions) -> TuneSection:
    """Return a report with a minimum confidence for the recommended search.

    It is 0 if the search has no confidence. Generated questions only lead to a proposal, not to a
    recommendation.
    """
    mode = SearchMode(section.registration["search_mode"])
    keys = list(questions.texts)[:MOST_ASKED]
    try:
        told = await of_questions(stack, section.data_set, questions, keys, mode)
    except InvalidRequest:  # the keyword index does not rank by BM25
        return section.model_copy(update={"min_confidence": 0.0})
    notes = (*section.notes, proposal(*told))
    if questions.generated:
        return section.model_copy(update={"notes": (*notes, GENERATED)})
    return section.model_copy(update={"notes": notes, "min_confidence": least(told[0])})


@asynccontextmanager
async def opened(plan: TunePlan) -> AsyncIterator[Opened]:
    """Open the subject of a plan."""
    if plan.data is not None:
        async with _stored(plan, plan.data) as found:
            yield found
        return
    stack = Stack(plan.config, plan.home)
    try:
        given = None if plan.queries is None else read_questions(plan.queries)
        index = await stack.index(str(plan.db))
        if given is None:
            questions = await generate(index, plan.generate or 0, plan.seed)
        else:
            questions = await known(index, given)
        data = _data_set(index.vector_db, await all_ids(index), questions, plan.queries)
        yield Opened(stack, index.vector_db, questions, data)
    finally:
        await stack.close()


def _data_set(
    vector_db: VectorDB, ids: list[str], questions: Questions, path: Path | None
) -> DataSet:
    """Return the tuned data for the report: with digests, without texts."""
    made = json.dumps([questions.texts, questions.relevant]).encode()
    name, asked = ("questions", made) if path is None else (path.name, path.read_bytes())
    parts = {"chunk ids": json.dumps(ids).encode(), name: asked}
    return DataSet(
        name=vector_db.identifier,
        kind="vector_db",
        language=vector_db.language,
        documents=len(ids),
        queries=len(questions.texts),
        judgements=sum(map(len, questions.relevant.values())),
        sha256={name: hashlib.sha256(part).hexdigest() for name, part in parts.items()},
        bytes=sum(map(len, parts.values())),
    )


@asynccontextmanager
async def _stored(plan: TunePlan, data: str) -> AsyncIterator[Opened]:
    """Store a judged set in a scratch stack, with embeddings cached between runs."""
    languages = {"": plan.language} if plan.language else {}
    judged = read_sets([data], languages=languages)[0]
    grades = {key: {i: v for i, v in found.items() if v > 0} for key, found in judged.qrels.items()}
    answered = {key: text for key, text in judged.queries.items() if grades[key]}
    questions = checked(Questions(answered, grades), judged.name)
    backend, *others = find_backends([plan.backend or BACKEND], plan.config)
    if backend.entry is None or others:
        raise InvalidRequest(
            f"--backend takes one provider, got {plan.backend!r}.", field="backend"
        )
    embedding = with_hashing(plan.config.providers.embedding)
    rerank = plan.config.providers.rerank
    providers = Providers(vector_io=[backend.entry], embedding=embedding, rerank=rerank)
    config = plan.config.model_copy(update={"providers": providers})
    model = plan.model or config.default_embedding_model
    async with Embedding.opened(plan.config, plan.home, model) as opened_model:
        made = await opened_model.embed(judged)
    async with scratch_stack(config) as stack:
        await stack.register(
            VectorDBRegistration(
                vector_db_id=judged.name,
                provider_id=backend.entry.provider_id,
                embedding_model=model,
                language=judged.language,
            )
        )
        lines = zip(judged.documents, made.contents, _articles(judged, plan), strict=True)
        chunks = [
            Chunk(chunk_id=name, content=text, metadata={"document_id": article})
            for name, text, article in lines
        ]
        await store(await stack.index(judged.name), chunks, made.documents)
        yield Opened(stack, await stack.vector_db(judged.name), questions, judged.row())
        await stack.unregister(judged.name)


def _articles(judged: JudgedSet, plan: TunePlan) -> list[str]:
    """Return the document id of each text: its own, or that of its article's first text."""
    names = list(judged.documents)
    return [names[n - n % plan.article] for n in range(len(names))]
