"""The requests and answers of re-ranking services: two shapes, four dialects.

* Cohere v2, Jina and vLLM take `{model, query, documents, top_n}` and answer
  `{results: [{index, relevance_score}]}`.
* TEI takes `{query, texts}` and answers `[{index, score}]`.

Services may order the results as they like; `index` names the text of a score. The services are
asked to truncate long texts, which Cohere and Jina do anyway: an error for one long text would fail
the whole query.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from corral.providers.rerank.http.config import HTTPRerankConfig


def request_body(
    config: HTTPRerankConfig, model: str, query: str, texts: Sequence[str]
) -> dict[str, Any]:
    """Return the body of a request for the scores of all texts."""
    if config.dialect == "tei":
        raw = config.score == "sigmoid"  # Otherwise TEI applies the sigmoid itself.
        return {"query": query, "texts": list(texts), "raw_scores": raw, "truncate": True}
    body = {"model": model, "query": query, "documents": list(texts), "top_n": len(texts)}
    if config.dialect == "jina":
        body["return_documents"] = False
    elif config.dialect == "vllm":
        body["truncate_prompt_tokens"] = -1
    return body


def decode_scores(config: HTTPRerankConfig, body: bytes, count: int) -> list[float]:
    """Return the scores in an answer, unmapped, in the order of the texts.

    Args:
        config: The settings, for the dialect.
        body: The body of the answer.
        count: Number of texts that were sent.

    Raises:
        ValueError: The body has another format, does not have one score per text, or has a score
            that is not a finite number. The message names the defect without quoting the body.
    """
    name = "score" if config.dialect == "tei" else "relevance_score"
    try:
        answer = json.loads(body)
        items = answer if config.dialect == "tei" else answer["results"]
        if not isinstance(items, list):
            raise TypeError
        pairs = [(item["index"], item[name]) for item in items]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"something other than a {config.dialect} reply to /rerank") from None
    if not all(type(index) is int for index, _ in pairs) or sorted(
        index for index, _ in pairs
    ) != list(range(count)):
        raise ValueError(f"{len(pairs)} scores for {count} texts, or wrongly numbered ones")
    return [_finite(score) for _, score in sorted(pairs, key=lambda pair: pair[0])]


def mapped(config: HTTPRerankConfig, score: float) -> float:
    """Map a service's score to [0, 1].

    Raises:
        ValueError: The score is not in the configured range.
    """
    if config.score == "sigmoid":
        # For each sign, use the form of the sigmoid with an exponential that cannot overflow.
        grown = math.exp(-abs(score))
        return 1.0 / (1.0 + grown) if score >= 0 else grown / (1.0 + grown)
    lowest = -1.0 if config.score == "cosine" else 0.0
    if not lowest <= score <= 1.0:
        raise ValueError(f"a score outside [{lowest:g}, 1]")
    return (1.0 + score) / 2.0 if config.score == "cosine" else score


def _finite(score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ValueError("a score that is not a number")
    try:
        number = float(score)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("a score that is not finite")
    return number
