"""Corral in DSPy: a retriever.

dspy.configure(rm=CorralRM(CorralClient(), ["handbook"], k=5))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dspy
from corral_client import CorralClient, FoundChunk


class Passage(dict[str, Any]):
    """A passage as `dspy.Retrieve` reads it: its text is `long_text`."""

    def __getattr__(self, name: str) -> Any:
        """Return a value by its name, as an attribute."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Passages(dspy.Prediction):
    """What was found: the lists of `CorralRM`, and as a sequence one passage after the other."""

    def __iter__(self) -> Iterator[Passage]:
        """Yield the passages, best first."""
        found = zip(self.passages, self.chunk_ids, self.scores, strict=True)
        for text, chunk_id, score in found:
            yield Passage(long_text=text, chunk_id=chunk_id, score=score)


class CorralRM(dspy.Retrieve):
    """Retrieves passages from vector DBs of Corral.

    Called with a question, or several, it returns a prediction whose `passages` are texts, best
    first; `chunk_ids` and `scores` are parallel to them. As the `rm` of `dspy.configure` it serves
    `dspy.Retrieve`.

    Args:
        client: Where Corral is.
        vector_db_ids: Which vector DBs; the best of each are merged by score.
        k: Most passages.
        options: Other fields of Corral's query, such as mode, filters or rerank.
    """

    def __init__(
        self, client: CorralClient, vector_db_ids: Sequence[str], k: int = 3, **options: Any
    ) -> None:
        super().__init__(k=k)
        self._client, self._vector_db_ids = client, list(vector_db_ids)
        self._options = options

    def forward(self, query: str | Sequence[str], k: int | None = None, **options: Any) -> Passages:
        """Return the passages of a question, or of several."""
        questions = [query] if isinstance(query, str) else [each for each in query if each]
        wanted = self.k if k is None else k
        found: dict[tuple[str, str], FoundChunk] = {}
        for question in questions:
            for name in self._vector_db_ids:
                asked = {**self._options, **options}
                for each in self._client.query(name, question, k=wanted, **asked):
                    known = found.get((name, each.chunk_id))
                    if known is None or (each.score or 0) > (known.score or 0):
                        found[name, each.chunk_id] = each
        best = sorted(found.values(), key=lambda each: (-(each.score or 0), each.chunk_id))
        kept = best[:wanted]
        return Passages(
            passages=[each.content for each in kept],
            chunk_ids=[each.chunk_id for each in kept],
            scores=[each.score for each in kept],
        )
