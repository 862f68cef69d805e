"""Measures the quality of answers: asks every question in every mode.

    corral bench answers --data DIR --model extractive --backends sqlite --modes hybrid

A document of a judged set is stored as one chunk in a scratch vector DB, registered with the
search mode to measure. Answers come from `Answerer`, which the server's routes call, with one
search before the model's first call.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.api.provider import InferenceProvider, QuotingProvider
from corral.api.rag import RAGQueryConfig
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.answers.judge import judge
from corral.bench.answers.measures import Answer, collect, measure
from corral.bench.answers.questions import Question, QuestionSet, read_question_sets
from corral.bench.backends import Backend
from corral.bench.data.embedded import EmbeddedSet, Embedding, with_hashing
from corral.bench.quality.statistics import bootstrap, seed_of
from corral.bench.report.answer_sections import MEASURES
from corral.bench.report.report import Report, write_whole
from corral.bench.report.rows import AnswerRow
from corral.bench.run import Advance, Plan, Run, planned, said
from corral.bench.scratch import scratch_stack, store
from corral.bench.stopwatch import Stopwatch
from corral.providers.base.config import RunConfig
from corral.providers.rag.answer import Answerer, Ask
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersPlan(Plan):
    """A whole run.

    Attributes:
        sets: The questions.
        answers: The model that answers.
        judge: The language model that judges statements; None for no judge.
        vector_db_ids: Registered vector DBs to ask instead of `backends`.
        model: The embedding model of judged sets.
    """

    sets: tuple[QuestionSet, ...]
    answers: str
    judge: str | None = None
    vector_db_ids: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse a plan that cannot work."""
        if not self.vector_db_ids:
            self._check_stored()
        Plan.check(self)

    def _check_stored(self) -> None:
        for each in self.sets:
            if each.judged is None:
                raise InvalidRequest(
                    f"{each.name} has questions without documents.",
                    hint="Name the vector DB that answers them with --vector-db.",
                    field="vector_db_ids",
                )
        for backend in self.backends:
            if backend.entry is None:
                raise InvalidRequest(
                    f"{backend.name} is not a provider of Corral and cannot answer.",
                    field="backends",
                )

    @property
    def systems(self) -> list[tuple[Backend, list[SearchMode]]]:
        """Backends with their modes; a registered vector DB has the form of a backend."""
        if self.vector_db_ids:
            return [(Backend(name), list(self.modes)) for name in self.vector_db_ids]
        return [(each, [m for m in self.modes if m in each.modes]) for each in self.backends]

    @property
    def work(self) -> int:
        """Number of questions to ask."""
        cells = sum(len(modes) for _, modes in self.systems)
        return cells * sum(len(each.questions) for each in self.sets)


def make_answers_plan(
    *,
    data: list[str],
    backends: list[str],
    vector_db_ids: list[str],
    config: RunConfig,
    embedder: str | None,
    limit: int | None,
    languages: dict[str, str],
    seed: int,
    **options: Any,
) -> AnswersPlan:
    """Return a checked plan; `options` as for `planned`.

    Raises:
        InvalidRequest, ConfigError: The plan is invalid; the message says where.
        Conflict: `out` holds another run's report.
    """
    for name, value in (("backends", backends), ("embedder", embedder)):
        if value and vector_db_ids:
            message = f"--{name} does nothing with --vector-db: it has its own."
            raise InvalidRequest(message, field=name)
    sets = read_question_sets(data, languages)
    return planned(
        AnswersPlan,
        backends=backends or ["sqlite"],
        vector_db_ids=tuple(dict.fromkeys(vector_db_ids)),
        sets=tuple(each.limited(limit, seed) for each in sets),
        config=config,
        model=embedder or config.default_embedding_model,
        seed=seed,
        **options,
    )


async def run_answers(plan: AnswersPlan, advance: Advance = lambda cells, work: None) -> Report:
    """Carry out the plan and return the report, which is also written to `plan.out`.

    A failed vector DB or backend gets a row with the reason, and the others continue.

    Raises:
        InvalidRequest: A model is not configured, or the judge only quotes.
        NotFound: The vector DB does not exist.
    """
    stack = Stack(plan.config, plan.home)
    try:
        stack.inference(plan.answers)
        if plan.judge and isinstance(stack.inference(plan.judge), QuotingProvider):
            raise InvalidRequest(
                f"The model {plan.judge!r} only quotes and cannot judge.", field="judge"
            )
        stored = [await stack.index(name) for name in plan.vector_db_ids]
        run = _AnswersRun(plan, stack, advance, sum([await each.count() for each in stored]))
        for each in plan.sets:
            await run.measure_set(each)
        return run.finish(run.report.answers)
    finally:
        await stack.close()


class _AnswersRun(Run):
    """A run in progress."""

    def __init__(self, plan: AnswersPlan, stack: Stack, advance: Advance, chunks: int) -> None:
        super().__init__(plan, advance)
        self.plan = plan
        self._stack = stack
        self._chunks = chunks

    async def measure_set(self, questions: QuestionSet) -> None:
        """Ask the questions of a set everywhere, in every mode."""
        stored = {"documents": self._chunks} if self.plan.vector_db_ids else {}
        self.add(questions.data.model_copy(update=stored))
        embedded = None
        if not self.plan.vector_db_ids and questions.judged is not None:
            embedded = await self._embedded(questions)
        for backend, modes in self.plan.systems:
            for mode in modes:
                try:
                    self.step("start")
                    await self._measure(questions, embedded, backend, mode)
                except Exception as error:  # noqa: BLE001 - the report lists it
                    self.fail(backend, self.stage, said(error), questions.name, mode.value)
                self.save()

    async def _embedded(self, questions: QuestionSet) -> EmbeddedSet:
        assert questions.judged is not None
        documents = replace(questions.judged, queries={})
        async with Embedding.opened(
            self.plan.config, self.plan.home, str(self.plan.model)
        ) as model:
            dimension = model.info.dimension
            about = {"embedding_model": self.plan.model, "embedding_dimension": dimension}
            self.report = self.report.model_copy(update=about)
            return await model.embed(documents)

    async def _measure(
        self,
        questions: QuestionSet,
        embedded: EmbeddedSet | None,
        backend: Backend,
        mode: SearchMode,
    ) -> None:
        """Ask all questions of a set in one mode, and add the row."""
        if embedded is None:
            await self._ask(questions, self._stack, backend.name, backend.name, mode)
            return
        async with self._stored(embedded, backend, mode) as (stack, vector_db_id):
            await self._ask(questions, stack, vector_db_id, backend.name, mode)

    @asynccontextmanager
    async def _stored(
        self, embedded: EmbeddedSet, backend: Backend, mode: SearchMode
    ) -> AsyncIterator[tuple[Stack, str]]:
        """Store the documents in a scratch vector DB of that search mode."""
        judged, entry, config = embedded.judged, backend.entry, self.plan.config
        assert entry is not None  # `AnswersPlan.check` refuses other systems
        embedding = with_hashing(config.providers.embedding)
        update = {"vector_io": [entry], "embedding": embedding}
        providers = config.providers.model_copy(update=update)
        async with scratch_stack(config.model_copy(update={"providers": providers})) as stack:
            # Random, so that runs on a shared service do not collide.
            registration = VectorDBRegistration(
                vector_db_id=f"bench-{uuid4().hex[:12]}",
                provider_id=entry.provider_id,
                embedding_model=str(self.plan.model),
                language=judged.language,
                search_mode=mode,
            )
            vector_db_id = (await stack.register(registration)).identifier
            try:
                self.stage = "ingest"
                chunks = [
                    Chunk(chunk_id=name, content=text, metadata={"document_id": name})
                    for name, text in zip(judged.documents, embedded.contents, strict=True)
                ]
                index = await stack.index(vector_db_id)
                await store(index, chunks, embedded.documents)
                await index.settle()
                yield stack, vector_db_id
            finally:
                await stack.unregister(vector_db_id)

    async def _ask(
        self, questions: QuestionSet, stack: Stack, vector_db_id: str, name: str, mode: SearchMode
    ) -> None:
        answerer, watch = Answerer(RagTool(stack), stack), Stopwatch()
        ask = partial(
            Ask,
            model=self.plan.answers,
            vector_db_ids=[vector_db_id],
            config=RAGQueryConfig(mode=mode),
            search="first",
        )
        answers: dict[str, Answer] = {}
        for key, question in questions.questions.items():
            self.step("answer")
            messages = [{"role": "user", "content": question.text}]
            answer = await watch.call(collect, answerer.answer(ask(messages=messages)))
            if self.plan.judge is not None:
                self.stage = "judge"
                provider = self._stack.inference(self.plan.judge)
                answer.verdicts = await _verdicts(provider, self.plan.judge, answer)
            answers[key] = answer
            self.advance(0, 1)
        path = Path("answers", questions.name, f"{name.replace('/', '-')}.{mode.value}.jsonl")
        self._add_row(questions, answers, watch, name, mode, path)

    def _add_row(
        self,
        questions: QuestionSet,
        answers: dict[str, Answer],
        watch: Stopwatch,
        name: str,
        mode: SearchMode,
        path: Path,
    ) -> None:
        """Measure the answers, and write them as JSON lines."""
        lines, values = [], defaultdict(list)
        for key, answer in answers.items():
            measures = measure(questions.questions[key], answer)
            lines.append(_line(key, questions.questions[key], answer, measures))
            for measured, value in measures.items():
                values[measured].append(value)
        write_whole(self.plan.out / path, "".join(lines))
        seed = seed_of(self.plan.seed, questions.name, "bootstrap")
        verdicts = [each for answer in answers.values() for each in answer.verdicts]
        row = AnswerRow(
            backend=name,
            mode=mode.value,
            data_set=questions.name,
            model=self.plan.answers,
            judge=self.plan.judge,
            n_questions=len(answers),
            metrics={key: bootstrap(values[key], seed) for key in MEASURES if key in values},
            counts={key: len(values[key]) for key in MEASURES if key in values},
            p50_ms=watch.ms(),
            p95_ms=watch.ms(0.95),
            verdicts=len(verdicts),
            unparseable=verdicts.count(None),
            answers_file=path.as_posix(),
        )
        self.add(row)
        self.advance(1, 0)


async def _verdicts(provider: InferenceProvider, model: str, answer: Answer) -> list[bool | None]:
    """Return the judge's verdict on each statement with a citation."""
    return [
        await judge(provider, model, each.text.strip(), [source.text for source in each.sources])
        for each in answer.statements
        if each.sources and any(map(str.isalnum, each.text))
    ]


def _line(key: str, question: Question, answer: Answer, measures: dict[str, float]) -> str:
    cited = [source.chunk.document_id or source.chunk.chunk_id for source in answer.cited]
    line = {
        "_id": key,
        "question": question.text,
        "answer": answer.text,
        "cited": cited,
        "verdicts": answer.verdicts,
        "measures": {name: float(value) for name, value in measures.items()},
    }
    return json.dumps(line, ensure_ascii=False) + "\n"
