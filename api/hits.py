"""The results of a search: an engine's candidates, and the hits of an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from corral.api.chunks import Chunk
from corral.api.confidence import UNKNOWN, Evidence
from corral.api.fusion import Explanation


@dataclass(slots=True)  # not frozen: a query makes hundreds, and freezing triples the cost
class Candidate:
    """An engine's result for one chunk.

    Attributes:
        chunk_id: The chunk's id.
        raw_score: Finite, higher is better. Vector: the cosine if the embeddings are normalized
            or the metric is cosine; else the inner product or minus the L2 distance. Keyword:
            BM25, above 0.
        chunk: The chunk, if the engine has already read it; None: it is fetched later, if it is
            in the answer.
        matched_terms: The query's index terms in the chunk, if the engine reports them.
    """

    chunk_id: str
    raw_score: float
    chunk: Chunk | None = None
    matched_terms: tuple[str, ...] = ()


class KeywordLeg(list[Candidate]):
    """The candidates of a keyword search, with the maximum possible score.

    Args:
        candidates: Best first.
        greatest: The largest raw score that the query's terms allow: for BM25 (k1 + 1) times the
            sum of their idf, including terms that no chunk contains; 0 for a query without a term.
            An engine that returns a plain sequence has no maximum, and its keyword leg does not
            contribute to confidence.
    """

    def __init__(self, candidates: Iterable[Candidate], greatest: float) -> None:
        super().__init__(candidates)
        self.greatest = greatest


@dataclass(frozen=True, slots=True)
class SearcherState:
    """The way in which an engine in this process compares embeddings.

    Attributes:
        method: "exact" if every embedding is compared, else the name of the approximate index.
        indexed: Number of chunks in the index; all others are compared exactly. None if the
            principal does not see all chunks.
        recall: Share of the ten nearest chunks that the index returns, measured after its build
            against the exact search; None if it was not measured.
        note: The reason for the method, for operators.
    """

    method: str = "exact"
    indexed: int | None = None
    recall: float | None = None
    note: str | None = None

    @property
    def is_exact(self) -> bool:
        """True if every embedding is compared."""
        return self.method == "exact"

    def __str__(self) -> str:
        parts = [self.method]
        if self.indexed is not None:
            parts.append(f"{self.indexed:,} chunks in its index")
        if self.recall is not None:
            parts.append(f"recall@10 {self.recall:.4f}")
        return ", ".join(parts)


class VectorLeg(list[Candidate]):
    """The candidates of a vector search, with the state of the searcher that returned them."""

    def __init__(self, candidates: Iterable[Candidate], searcher: SearcherState) -> None:
        super().__init__(candidates)
        self.searcher = searcher


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """The BM25 statistics of the chunks that a query ranks, in one or several vector DBs.

    Attributes:
        count: Number of chunks.
        length: Number of their terms; a repeated term counts each time.
        holding: By index term of the query, the number of chunks that contain it.
        similar: By index term of a fuzzy query, the number of chunks that contain it or a similar
            term; empty otherwise.
    """

    count: int
    length: int
    holding: Mapping[str, int] = field(default_factory=dict)
    similar: Mapping[str, int] = field(default_factory=dict)

    @property
    def average(self) -> float:
        """The mean number of terms of a chunk; 0 if no chunk has a term."""
        return self.length / self.count if self.count else 0.0

    def frequency(self, term: str, own: int) -> int:
        """Return the number of chunks that contain a term, in [0, count].

        Args:
            own: The number in the searched vector DB at the time of the search. The larger number
                wins: chunks may have been written since these statistics were read.
        """
        return min(self.count, max(own, self.holding.get(term, 0)))

    def similar_frequency(self, term: str, own: int) -> int:
        """Return the number of chunks that contain a term or a similar one; see `frequency`."""
        return min(self.count, max(own, self.similar.get(term, 0)))

    @staticmethod
    def total(parts: Sequence[TermStatistics]) -> TermStatistics:
        """Return the sum of the statistics of several vector DBs."""
        holding, similar = Counter[str](), Counter[str]()
        for part in parts:
            holding.update(part.holding)
            similar.update(part.similar)
        count, length = sum(part.count for part in parts), sum(part.length for part in parts)
        return TermStatistics(count, length, holding, similar)


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg of one vector DB, before fusion.

    Attributes:
        candidates: Best first, ties by chunk_id.
        evidence: For the vector leg, the cosine of the best chunk; for the keyword leg, the best
            score as a share of the maximum. As in `Evidence`; None if unknown.
        searcher: The searcher of a vector leg; None if the engine does not report it.
    """

    candidates: Sequence[Candidate]
    evidence: float | None
    searcher: SearcherState | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: the chunk, its score in [0, 1] and why."""

    chunk: Chunk
    score: float
    explanation: Explanation

    def _repr_html_(self) -> str:
        """Return the hit as HTML for a notebook."""
        return _table([self])


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of one step of a search on the candidates.

    Attributes:
        name: auto_filters, retrieve, filter, query_syntax, queries, min_confidence, rerank,
            recency, score_threshold or cutoff; only list if there was no question. For
            auto_filters, `kept` and `removed` count proposed comparisons.
        kept: Number of candidates after the step.
        removed: Number of candidates that the step removed.
        detail: Description of the step for users; may be empty.
    """

    name: str
    kept: int
    removed: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class QueryChunksResponse:
    """The answer to a query; `chunks` and `scores` are parallel views of the hits.

    Attributes:
        hits: Best first.
        steps: The effect of each step; empty for a query that only the index processed.
        notes: Messages for the caller, such as that a re-ranker could not be reached.
        evidence: The evidence that the hits contain an answer, whatever the threshold.
        reason: The reason for no hits: `nothing_relevant` if the confidence was too low.
        searchers: The searchers of embeddings, one for each vector DB with an engine that reports
            it.
    """

    hits: list[Hit] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    evidence: Evidence = UNKNOWN
    reason: Literal["nothing_relevant"] | None = None
    searchers: Sequence[SearcherState] = ()

    @property
    def confidence(self) -> float | None:
        """Probability that the hits contain an answer, in [0, 1]; None if no leg can tell.

        Unlike a score, it can be compared between queries.
        """
        return self.evidence.confidence

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks, best first."""
        return [hit.chunk for hit in self.hits]

    @property
    def scores(self) -> list[float]:
        """Their scores in [0, 1], never increasing."""
        return [hit.score for hit in self.hits]

    def _repr_html_(self) -> str:
        """Return the hits as HTML for a notebook."""
        about = [*self.notes] if self.hits else [*self.notes, "Nothing found."]
        if self.confidence is not None:
            about.append(f"Confidence: {self.confidence:.2f}")
        return _table(self.hits) + "".join(f"<p>{escape(line)}</p>" for line in about)


SHOWN_CHARACTERS = 300
"""Maximum characters of a chunk in a table of hits."""


def _table(hits: Sequence[Hit]) -> str:
    """Return hits as an HTML table; all text of a document is escaped."""
    head = "<tr><th>#</th><th>score</th><th>document</th><th>text</th></tr>"
    rows = [_row(rank, hit) for rank, hit in enumerate(hits, start=1)]
    return f"<table>{head}{''.join(rows)}</table>" if rows else ""


def _row(rank: int, hit: Hit) -> str:
    text = " ".join(hit.chunk.content.split())
    shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    name = hit.chunk.document_id or hit.chunk.chunk_id
    cells = [str(rank), f"{hit.score:.3f}", str(name), shown]
    style = ' style="text-align: left"'
    return f"<tr>{''.join(f'<td{style}>{escape(cell)}</td>' for cell in cells)}</tr>"
