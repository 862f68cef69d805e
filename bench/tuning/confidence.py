"""The confidence of questions, with and without the chunks that answer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from corral.api.errors import InvalidRequest
from corral.api.options import RetrievalOptions
from corral.api.vector_dbs import SearchMode
from corral.bench.tuning.questions import Questions
from corral.providers.rag.search import Retrieval
from corral.providers.stack.stack import Stack

GENERATED = (
    "Questions in other words than the chunks' have less confidence, so this number is too high "
    "for them: judged questions tell a min_confidence to register."
)
REFUSED = 0.05
"""Share of the answered questions that a proposed `min_confidence` may refuse."""


async def of_questions(
    stack: Stack, vector_db_id: str, questions: Questions, keys: Sequence[str], mode: SearchMode
) -> tuple[list[float], list[float]]:
    """Return the confidence of questions, as is and with the relevant documents hidden.

    A document is also hidden if one of its chunks is relevant.

    Raises:
        InvalidRequest: The search has no confidence.
    """
    retrieval, index = Retrieval(stack), await stack.index(vector_db_id)
    answered, removed = [], []
    for key in keys:
        text, relevant = questions.texts[key], list(questions.relevant[key])
        documents = {name: name for name in relevant}
        for chunk in await index.get_chunks(relevant):
            documents[chunk.chunk_id] = chunk.document_id or chunk.chunk_id
        hidden = {"type": "nin", "key": "document_id", "value": sorted(set(documents.values()))}
        answered.append(await asked(retrieval, vector_db_id, text, mode))
        removed.append(await asked(retrieval, vector_db_id, text, mode, hidden))
    return answered, removed


async def asked(
    retrieval: Retrieval,
    vector_db_id: str,
    text: str,
    mode: SearchMode,
    filters: Mapping[str, object] | None = None,
) -> float:
    """Return the confidence of one question, regardless of the registration's minimum.

    Raises:
        InvalidRequest: The search has no confidence.
    """
    options = RetrievalOptions.model_validate(
        {"mode": mode, "filters": filters, "rerank": {"type": "none"}, "min_confidence": 0.0}
    )
    found = await retrieval.search(vector_db_id, text, k=1, options=options)
    if found.confidence is None:
        raise InvalidRequest(f"{mode} search of {vector_db_id} has no confidence.", field="mode")
    return found.confidence


def least(answered: Sequence[float]) -> float:
    """Return the `min_confidence` that refuses few of the answered questions, to two decimals."""
    return max(0.0, float(np.floor(np.quantile(answered, REFUSED) * 100) / 100))


def proposal(answered: Sequence[float], removed: Sequence[float]) -> str:
    """Return the `min_confidence` that refuses few of the answered questions, and its effect."""
    bound = least(answered)
    if not bound:
        return "No min_confidence above 0 accepts 95% of these questions."
    refused, caught = (float(np.mean(np.array(some) < bound)) for some in (answered, removed))
    return (
        f"min_confidence {bound:g} refuses {refused:.0%} of these questions, and {caught:.0%} of "
        "them once the documents that answer them are hidden."
    )
