"""The rows of a report: one frozen record for each figure or group of figures.

A figure that was not measured is None.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Row(BaseModel):
    """Base of all records: frozen, unknown keys rejected, numbers finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Estimate(Row):
    """A mean with its bootstrap 95 % interval; low == high == mean if it is one figure."""

    mean: float
    low: float
    high: float


class Comparison(Row):
    """One system against the baseline on the same queries, by nDCG@10.

    Attributes:
        baseline: Label of the baseline, as in `QualityRow.label`.
        difference: This system minus the baseline, mean over queries.
        p: Two-sided paired randomization test.
        p_holm: p after Holm's correction for the comparisons on this data set.
        verdict: `better` or `worse` where p_holm < 0.05; `same` where the interval of the
            difference lies within +-0.01; otherwise the queries are too few to tell.
        statement: The verdict in words, with the number of queries.
    """

    baseline: str
    difference: Estimate
    p: float = Field(ge=0, le=1)
    p_holm: float = Field(ge=0, le=1)
    verdict: Literal["better", "worse", "same", "not resolvable"]
    statement: str


class ShownDocument(Row):
    """A document that a query found, or should have found; its text is in `DataSet.excerpts`.

    Attributes:
        relevance: The human judgment; None without one.
        rank: Its rank among this system's hits, from 1; None if it is not among them.
        baseline_rank: The same for the baseline.
    """

    document_id: str
    relevance: int | None = None
    rank: int | None = Field(default=None, ge=1)
    baseline_rank: int | None = Field(default=None, ge=1)


class QualityRow(Row):
    """The quality of one backend in one mode on one data set.

    Attributes:
        fusion: Label of the fusion in hybrid mode (`rrf`, `weighted(alpha=0.3)`, or `own` for a
            foreign system that fuses by itself); None in the other modes.
        ranker: The fusion's settings, so that a sweep can be drawn; None without fusion.
        k: Hits per query.
        metrics: By name as in ir-measures: nDCG@10, R@10, R@100, RR@10, AP@10, if k is large
            enough; and `AGREES`, if the mode has one right answer.
        ndcg_by_query: nDCG@10 by query id.
        run_file: The TREC run, relative to the report's folder.
        shown: By query id, for the greatest wins and losses against the baseline: at most three
            documents that explain them.
    """

    backend: str
    mode: str
    fusion: str | None = None
    ranker: dict[str, Any] | None = None
    data_set: str
    n_queries: int = Field(ge=1)
    k: int = Field(ge=1)
    seconds: float = Field(
        default=0.0, ge=0, description="Spent on the queries, embedding excluded."
    )
    metrics: dict[str, Estimate]
    ndcg_by_query: dict[str, float]
    run_file: str | None = None
    comparison: Comparison | None = None
    shown: dict[str, tuple[ShownDocument, ...]] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """`backend:mode` or `backend:mode:fusion`; unique on a data set."""
        return ":".join(part for part in (self.backend, self.mode, self.fusion) if part)

    @property
    def name(self) -> str:
        """The key of a row: unique in a report, and equal in reports of the same plan."""
        return f"{self.data_set} {self.label}"


class AnswerRow(Row):
    """The quality of one model's answers from one vector DB or backend, in one mode.

    Attributes:
        backend: A provider, or the id of a registered vector DB.
        judge: The model that judged the statements; None without a judge.
        metrics: By key of `answer_sections.MEASURES`, over the questions to which a measure
            applies; `counts` has their numbers.
        verdicts: Number of judged statements.
        unparseable: Verdicts that are neither yes nor no; no measure counts them.
        answers_file: JSON lines with the answers, relative to the report's folder.
    """

    backend: str
    mode: str
    data_set: str
    model: str
    judge: str | None = None
    n_questions: int = Field(ge=1)
    metrics: dict[str, Estimate]
    counts: dict[str, int]
    p50_ms: float
    p95_ms: float
    verdicts: int = 0
    unparseable: int = 0
    answers_file: str | None = None

    @property
    def name(self) -> str:
        """As in `QualityRow.name`."""
        return f"{self.data_set} {self.backend}:{self.mode}, answers of {self.model}"


class BuildRow(Row):
    """The time and space to store one data set in one backend.

    Attributes:
        insert_rate: Chunks per second, median of the rounds, embedding excluded.
        build_seconds: From the last insert until indexes are built; 0 if nothing is left to do.
        seconds_until_searchable: From the return of the last insert until a query finds it.
        memory_mib: Growth of the process's resident memory; None for a remote one.
        disk_mib: Size of the backend's folder; None for a remote one.
        ratio: insert_rate over the baseline's in the same run.
    """

    backend: str
    data_set: str
    size: int = Field(ge=1)
    dimension: int = Field(ge=1)
    insert_rate: float | None = None
    first_tenth_rate: float | None = None
    last_tenth_rate: float | None = None
    build_seconds: float | None = None
    seconds_until_searchable: float | None = None
    memory_mib: float | None = None
    disk_mib: float | None = None
    baseline: str | None = None
    ratio: float | None = None

    @property
    def name(self) -> str:
        """As in `QualityRow.name`."""
        return f"{self.data_set} {self.backend}, {self.size:,} chunks"

    @property
    def total_seconds(self) -> float | None:
        """Seconds from the first insert until the indexes are built; None if unknown."""
        if not self.insert_rate:
            return None
        return self.size / self.insert_rate + (self.build_seconds or 0.0)


class SpeedRow(Row):
    """The speed of one backend in one mode; times in milliseconds.

    Attributes:
        selectivity: Share of chunks that pass the filter; None without a filter.
        concurrency: Concurrent queries; 1 is serial.
        throughput_qps: Answers per second.
        samples_ms: Latencies as measured, at most 1000 of them (evenly spaced if there were more).
        recall_vs_exact: In vector mode, for recall-against-throughput fronts.
        ratio: p50 over the baseline's p50 in the same run, interleaved.
        variant: Another label of the row, such as `http` or `hnsw_ef_search=256`.
    """

    backend: str
    data_set: str
    mode: str
    fusion: str | None = None
    size: int = Field(ge=1)
    selectivity: float | None = None
    concurrency: int = Field(default=1, ge=1)
    k: int = Field(default=10, ge=1)
    n_queries: int = Field(ge=1)
    p50_ms: float
    p95_ms: float
    p99_ms: float
    throughput_qps: float
    samples_ms: tuple[float, ...] = ()
    recall_vs_exact: float | None = None
    baseline: str | None = None
    ratio: float | None = None
    variant: str = ""

    @property
    def name(self) -> str:
        """As in `QualityRow.name`."""
        what = ":".join(part for part in (self.backend, self.mode, self.fusion) if part)
        chosen = "" if self.selectivity is None else f", filter {self.selectivity:g}"
        variant = f", {self.variant}" if self.variant else ""
        setting = f"{self.size:,} chunks, {self.concurrency} at once, k {self.k}{chosen}{variant}"
        return f"{self.data_set} {what}, {setting}"


class TuneTrial(Row):
    """One setting that `tune` tried, by nDCG@10; held_out only for those reported at the end.

    Attributes:
        complete_at_5: Share of all questions with every relevant chunk among their first five hits.
    """

    label: str
    settings: dict[str, Any]
    train: Estimate
    held_out: Estimate | None = None
    held_out_by_query: dict[str, float] | None = None
    comparison: Comparison | None = None
    complete_at_5: float | None = None


class TuneSection(Row):
    """The trials, findings and recommendation of `tune` for one vector DB or data set.

    Attributes:
        generated: True if the queries were made from the chunks (known-item queries).
        chosen: Label of the recommended trial.
        registered: Label of the search that was registered; empty in older reports.
        registration: The recommended search, as for `POST /v1/vector-dbs`.
        min_confidence: The recommended minimum confidence; None if the questions do not determine
            it.
    """

    data_set: str
    backend: str
    generated: bool
    n_train: int
    n_held_out: int
    trials: tuple[TuneTrial, ...]
    chosen: str
    registered: str = ""
    registration: dict[str, Any]
    statement: str
    min_confidence: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """All recommended settings, as for a registration."""
        if self.min_confidence is None:
            return self.registration
        return {**self.registration, "min_confidence": self.min_confidence}


class Failure(Row):
    """A failed measurement, with its reason.

    Attributes:
        stage: `start`, `ingest`, `search`, `answer`, `judge`, `check` (the suite's own checks) or
            `budget`.
    """

    backend: str
    stage: str
    message: str
    data_set: str | None = None
    mode: str | None = None


class DataSet(Row):
    """The data of the measurements.

    Attributes:
        kind: `beir`, `trec`, `ir_datasets`, `synthetic`, `vector_db` or `questions`.
        sha256: By file name; of the generated texts if there is no file.
        bytes: Size of these files together.
        query_texts: By query id, for wins and losses.
        excerpts: The beginnings of only the documents that quality rows show, by id.
        cut: Number of documents that --max-docs left out; it never leaves out a judged one.
    """

    name: str
    kind: str
    language: str
    documents: int
    queries: int
    judgements: int
    sha256: dict[str, str]
    bytes: int
    query_texts: dict[str, str] = Field(default_factory=dict)
    excerpts: dict[str, str] = Field(default_factory=dict)
    cut: int = 0


class Hardware(Row):
    """The machine: logical cores, and memory in MiB (None if unknown)."""

    cpu: str
    cores: int
    memory_mib: int | None
    system: str
    threads: dict[str, str] = Field(
        default_factory=dict, description="OMP_NUM_THREADS and the like, where they are set."
    )
