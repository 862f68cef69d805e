"""What a search finds: a hook's candidates, and the hits of an answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from corral.api.chunks import Chunk
from corral.api.fusion import Explanation


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a provider's hook returns for one chunk.

    Attributes:
        chunk_id: The chunk.
        raw_score: Finite, higher is better. Vector: the cosine, where the embeddings are
            normalized or the metric is cosine; else the inner product or minus the L2 distance.
            Keyword: BM25, above 0.
        chunk: The chunk itself where the engine has it at hand; otherwise it is fetched later,
            for the chunks that are in the answer.
        matched_terms: The query's index terms in the chunk, where the engine can say.
    """

    chunk_id: str
    raw_score: float
    chunk: Chunk | None = None
    matched_terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: the chunk, its score in [0, 1] and why."""

    chunk: Chunk
    score: float
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a search did to the candidates.

    Attributes:
        name: retrieve, filter, query_syntax, queries, rerank, score_threshold or cutoff.
        kept: How many candidates are left.
        removed: How many the step took away.
        detail: By what.
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
        steps: What each step did; filled where more than the index alone was at work.
        notes: What the caller has to know, such as that a re-ranker was not reached.
    """

    hits: list[Hit] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks, best first."""
        return [hit.chunk for hit in self.hits]

    @property
    def scores(self) -> list[float]:
        """Their scores in [0, 1], never increasing."""
        return [hit.score for hit in self.hits]
