"""A seeded report with every kind of row, made up: no figure in it was measured."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np

from corral.bench.quality.metrics import AGREES, NAMES
from corral.bench.quality.statistics import bootstrap, compare
from corral.bench.report.answer_sections import MEASURES
from corral.bench.report.report import Report
from corral.bench.report.rows import (
    AnswerRow,
    BuildRow,
    DataSet,
    Estimate,
    Failure,
    Hardware,
    QualityRow,
    ShownDocument,
    SpeedRow,
    TuneSection,
    TuneTrial,
)

BACKENDS = ("memory", "sqlite", "faiss", "chroma", "qdrant", "pgvector", "milvus", "weaviate")
SETS = {"scifact-like": (120, 0.64), "hotpot-like": (80, 0.72), "zh-like": (60, 0.35)}
SETTINGS = (("vector", None, 0.0), ("keyword", None, 0.02), ("hybrid", "rrf", 0.06))
WORDS = ("aspirin", "reduces", "platelet", "river", "oldest", "bridge", "treaty", "protein", "why")


@cache
def example_report(seed: int = 7, backends: tuple[str, ...] = BACKENDS) -> Report:
    """Return the report; equal seeds give equal reports."""
    rng = np.random.default_rng(seed)
    started = datetime(2026, 3, 14, 9, 26, tzinfo=UTC)
    report = Report(
        command="corral bench quality --data scifact-like --backends " + ",".join(backends),
        seed=seed,
        started=started,
        finished=started + timedelta(minutes=93),
        corral_version="0.1.0",
        python="3.11.7",
        packages={"numpy": "2.4.6", "faiss-cpu": "1.15.1", "qdrant-client": "1.18.0"},
        hardware=Hardware(
            cpu="Example CPU", cores=2, memory_mib=8192, system="Linux 6", threads={"A": "1"}
        ),
        embedding_model="all-MiniLM-L6-v2",
        embedding_dimension=384,
        baseline="memory:vector",
        notes=("Made up for a test.",),
    )
    report = report.with_rows(*_data_sets(rng))
    for name, (n, level) in SETS.items():
        report = report.with_rows(*_quality(rng, name, n, level, backends))
    report = report.with_rows(*_speed(rng, backends), *_builds(rng, backends))
    report = report.with_rows(_tuned(rng), _answered())
    return report.with_rows(
        Failure(
            backend="remote-one",
            stage="start",
            message="Connection refused at 127.0.0.1:19530. Start the service first.",
        ),
        Failure(backend="reversed", stage="check", message="Scores rise.", data_set="scifact-like"),
    )


def _data_sets(rng: np.random.Generator) -> list[DataSet]:
    return [
        DataSet(
            name=name,
            kind="beir",
            language="chinese" if name.startswith("zh") else "english",
            documents=40 * n,
            queries=n,
            judgements=n + 13,
            sha256={"corpus.jsonl": f"{at:064x}", "queries.jsonl": f"{at + 40:064x}"},
            bytes=3_000_000 + at,
            query_texts={
                f"q{i:03d}": " ".join(rng.choice(WORDS, 7)).capitalize() + "?" for i in range(n)
            },
            excerpts={
                f"d{i}": "An excerpt of " + "words and " * (2 + 7 * i) + "…" for i in range(3)
            },
        )
        for at, (name, (n, _)) in enumerate(SETS.items())
    ]


def _quality(
    rng: np.random.Generator, name: str, n: int, level: float, backends: tuple[str, ...]
) -> list[QualityRow]:
    hard = rng.normal(0, 0.22, n)
    rows = []
    for backend in backends:
        for mode, fusion, gain in SETTINGS:
            values = np.clip(level + gain + hard + rng.normal(0, 0.08, n), 0, 1)
            rows.append(_quality_row(backend, mode, fusion, name, values))
        for alpha in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0) if backend == backends[0] else ():
            gain = 0.07 - 0.2 * (alpha - 0.45) ** 2
            values = np.clip(level + gain + hard + rng.normal(0, 0.05, n), 0, 1)
            row = _quality_row(backend, "hybrid", f"weighted(alpha={alpha:g})", name, values)
            ranker = {"type": "weighted", "alpha": alpha, "normalization": "z_score"}
            rows.append(row.model_copy(update={"ranker": ranker}))
    base, others = rows[0], rows[1:]
    found = compare(
        {row.label: row.ndcg_by_query for row in others}, base.label, base.ndcg_by_query
    )
    return [
        base,
        *(r.model_copy(update={"comparison": found[r.label], "shown": _shown(r)}) for r in others),
    ]


def _shown(row: QualityRow) -> dict[str, tuple[ShownDocument, ...]]:
    """Return the same three documents for every query: relevant, not relevant, not judged."""
    documents = (
        ShownDocument(document_id="d0", relevance=2, rank=1, baseline_rank=7),
        ShownDocument(document_id="d1", relevance=0, baseline_rank=1),
        ShownDocument(document_id="d2", rank=12),
    )
    return dict.fromkeys(row.ndcg_by_query, documents)


def _quality_row(
    backend: str, mode: str, fusion: str | None, name: str, values: np.ndarray
) -> QualityRow:
    shifts = dict(zip(NAMES, (0.0, 0.12, 0.25, 0.03, -0.04), strict=True))
    metrics = {n: bootstrap(np.clip(values + shift, 0, 1)) for n, shift in shifts.items()}
    if mode == "vector":
        share = 1 - 0.004 * BACKENDS.index(backend)
        metrics[AGREES] = Estimate(mean=share, low=share - 0.002, high=share)
    return QualityRow(
        backend=backend,
        mode=mode,
        fusion=fusion,
        ranker={"type": "rrf"} if fusion == "rrf" else None,
        data_set=name,
        n_queries=len(values),
        k=100,
        seconds=1.5,
        metrics=metrics,
        ndcg_by_query={f"q{i:03d}": float(v) for i, v in enumerate(values)},
    )


def _speed(rng: np.random.Generator, backends: tuple[str, ...]) -> list[SpeedRow]:
    rows = []
    for size in (20_000, 100_000):
        for at, backend in enumerate(backends):
            for mode, fusion, gain in SETTINGS:
                middle = (0.8 + 0.7 * at) * (1 + 8 * gain) * (size / 20_000) ** 0.6
                rows.append(_speed_row(rng, backend, mode, fusion, size, middle, at))
        for wide in (32, 64, 256):
            row = _speed_row(rng, "faiss", "vector", None, size, 0.2 * math.log2(wide), 2)
            update = {"variant": f"ef={wide}", "recall_vs_exact": 1 - 0.9 / wide}
            rows.append(row.model_copy(update=update))
    filtered = {"selectivity": 0.01, "concurrency": 4}
    return [*rows, rows[0].model_copy(update=filtered)]


def _speed_row(
    rng: np.random.Generator,
    backend: str,
    mode: str,
    fusion: str | None,
    size: int,
    middle: float,
    at: int,
) -> SpeedRow:
    samples = np.sort(middle * rng.lognormal(0, 0.35, 300))
    p50, p95, p99 = (float(v) for v in np.quantile(samples, [0.5, 0.95, 0.99]))
    return SpeedRow(
        backend=backend,
        data_set="clustered",
        mode=mode,
        fusion=fusion,
        size=size,
        n_queries=300,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        throughput_qps=1000 / p50,
        samples_ms=tuple(map(float, samples)) if at % 3 else (),
        recall_vs_exact=1.0 - 0.004 * at if mode == "vector" else None,
        baseline=f"{backend}",
        ratio=1.0 + at / 4,
    )


def _builds(rng: np.random.Generator, backends: tuple[str, ...]) -> list[BuildRow]:
    return [
        BuildRow(
            backend=backend,
            data_set="clustered",
            size=size,
            dimension=384,
            insert_rate=float(20_000 / (1 + at) * rng.uniform(0.8, 1.1)),
            build_seconds=at * size / 60_000,
            seconds_until_searchable=0.01 * at,
            memory_mib=size / 400 * (1 + at / 5),
            disk_mib=None if backend == "memory" else size / 500,
            baseline=backends[0],
            ratio=1 / (1 + at),
        )
        for at, backend in enumerate(backends)
        for size in (1_000, 10_000, 100_000)
    ]


def _tuned(rng: np.random.Generator) -> TuneSection:
    def trial(label: str, settings: dict[str, Any], level: float) -> TuneTrial:
        found = bootstrap(np.clip(rng.normal(level, 0.2, 150), 0, 1))
        held = bootstrap(np.clip(rng.normal(level - 0.01, 0.2, 150), 0, 1))
        return TuneTrial(label=label, settings=settings, train=found, held_out=held)

    trials = [
        trial(mode, {"search_mode": mode}, level)
        for mode, level in (("vector", 0.6), ("keyword", 0.62))
    ]
    for alpha in (0.2, 0.4, 0.6, 0.8):
        settings = {"search_mode": "hybrid", "ranker": {"type": "weighted", "alpha": alpha}}
        level = 0.7 - (alpha - 0.4) ** 2
        trials.append(trial(f"hybrid:weighted(alpha={alpha:g})", settings, level))
    return TuneSection(
        data_set="handbook",
        backend="sqlite",
        generated=True,
        n_train=150,
        n_held_out=150,
        trials=tuple(trials),
        chosen="hybrid:weighted(alpha=0.4)",
        registration={"search_mode": "hybrid", "ranker": {"type": "weighted", "alpha": 0.4}},
        statement="register hybrid: nDCG@10 0.690 held out, better than vector (p 0.002)",
        notes=("Known-item queries favor keyword search.",),
    )


def _answered() -> AnswerRow:
    shares = {key: Estimate(mean=0.8, low=0.7, high=0.9) for key in MEASURES}
    tokens = Estimate(mean=1240.5, low=1200, high=1280)
    return AnswerRow(
        backend="sqlite",
        mode="hybrid",
        data_set="scifact-like",
        model="tiny",
        judge="large",
        n_questions=120,
        metrics={**shares, "prompt_tokens": tokens},
        counts=dict.fromkeys(MEASURES, 120),
        p50_ms=12.5,
        p95_ms=31.0,
        verdicts=140,
        unparseable=3,
        answers_file="answers/scifact-like/sqlite.hybrid.jsonl",
    )
