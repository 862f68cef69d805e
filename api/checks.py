"""Checks for the arguments of an index: each returns the argument in canonical form or raises."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter, ValidationError

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.api.findings import first_finding
from corral.api.rankers import MaxRanker, Ranker, RRFRanker, WeightedRanker
from corral.api.scoring import check_embeddings
from corral.api.vector_dbs import VectorDB
from corral.api.wire import is_unicode, strip_nul

MAX_K = 1000
"""Maximum hits of one query. Every engine can return these; an agent's context holds far fewer."""

MAX_IDS = 100_000
"""Maximum ids in one page of `chunk_ids`: about 10 MB."""

MAX_OFFSET = 10_000_000
"""Maximum documents before a page of `document_page`."""

MAX_QUERY_CHARACTERS = 200_000
"""Maximum length of a query text: about 20,000 words."""

AnyRanker = RRFRanker | WeightedRanker | MaxRanker
_RANKER: TypeAdapter[AnyRanker] = TypeAdapter(Ranker)


def check_k(k: object, *, field: str = "k", most: int = MAX_K) -> int:
    """Return k if it is an integer from 1 to `most`.

    Raises:
        InvalidRequest: It is not.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= most:
        raise InvalidRequest(
            f"{field} must be an integer from 1 to {most} (got {k!r}).", field=field
        )
    return int(k)


def check_offset(offset: object) -> int:
    """Return an offset if it is an integer from 0 to `MAX_OFFSET`.

    Raises:
        InvalidRequest: It is not.
    """
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= MAX_OFFSET:
        raise InvalidRequest(
            f"offset must be an integer from 0 to {MAX_OFFSET} (got {offset!r}).", field="offset"
        )
    return offset


def check_document_ids(document_ids: Collection[str]) -> frozenset[str]:
    """Return the ids of documents to replace.

    Raises:
        InvalidRequest: `document_ids` is a single string, or holds an impossible id.
    """
    if isinstance(document_ids, str):  # iterating it would yield characters, not ids
        raise InvalidRequest(
            "replace_documents must be a list of ids (got one string).",
            hint="Send a list of document ids.",
            field="replace_documents",
        )
    if any("\0" in one or not is_unicode(one) for one in document_ids):
        raise InvalidRequest(
            "replace_documents holds an id with a NUL character or a lone surrogate.",
            hint="No document has such an id.",
            field="replace_documents",
        )
    return frozenset(document_ids)


def check_after(after: object) -> str:
    """Return the start of a page, cut before a NUL: no id contains NUL, so the page is the same.

    Raises:
        InvalidRequest: It is not a string, or not valid Unicode.
    """
    if not isinstance(after, str) or not is_unicode(after):
        raise InvalidRequest(
            "after must be valid text.",
            hint='Use the last id of the previous page, or "" to start.',
            field="after",
        )
    start: str = after.partition("\0")[0]
    return start


def check_threshold(threshold: object) -> float:
    """Return a score threshold in [0, 1]; None is 0.

    Raises:
        InvalidRequest: It is not a number in [0, 1].
    """
    if threshold is None:
        return 0.0
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    number = float(cast(float, threshold)) if is_number else math.nan
    if not 0.0 <= number <= 1.0:
        raise InvalidRequest(
            f"score_threshold must be a number in [0, 1] (got {threshold!r}).",
            field="score_threshold",
        )
    return number


def check_query_text(text: object) -> str:
    """Return the query text without NUL.

    Raises:
        InvalidRequest: It is not a string, or longer than 200,000 characters.
    """
    if not isinstance(text, str):
        raise InvalidRequest(
            f"query_string must be a string (got {type(text).__name__}).", field="query_string"
        )
    if len(text) > MAX_QUERY_CHARACTERS:
        raise InvalidRequest(
            f"query_string must have <= {MAX_QUERY_CHARACTERS} characters (got {len(text)}).",
            field="query_string",
        )
    clean: str = strip_nul(text)
    return clean


def check_ranker(ranker: AnyRanker | dict[str, Any] | None) -> AnyRanker | None:
    """Parse a request's ranker; None if the request has none.

    Raises:
        InvalidRequest: The type or a key is unknown, or a value is out of range.
    """
    if ranker is None or isinstance(ranker, RRFRanker | WeightedRanker | MaxRanker):
        return ranker
    try:
        return _RANKER.validate_python(ranker)
    except ValidationError as error:
        path, words = first_finding(error, "ranker")
        raise InvalidRequest(
            f"Malformed ranker at {path}: {words}.",
            hint="Valid types: rrf, weighted, max.",
            field=path,
        ) from None


def check_matrix(
    vector_db: VectorDB, chunks: Sequence[Chunk], embeddings: ArrayLike | None
) -> NDArray[np.float32]:
    """Return the checked embeddings of chunks, in the form the index stores.

    Args:
        vector_db: The vector DB that will store them.
        chunks: If `embeddings` is None, each chunk carries its own embedding.
        embeddings: Shape (len(chunks), dimension), or None.

    Returns:
        Shape (len(chunks), dimension), float32; unit vectors if the vector DB normalizes.

    Raises:
        InvalidEmbedding: See `check_embeddings`.
        InvalidRequest: A chunk has no embedding, or the numbers differ.
    """
    dimension = vector_db.embedding_dimension
    if not chunks:
        return np.empty((0, dimension), dtype=np.float32)
    if embeddings is None:
        for number, chunk in enumerate(chunks):
            if chunk.embedding is None:
                raise InvalidRequest(
                    f"Chunk {number} has no embedding.",
                    hint="Send one, or let the server embed the text.",
                    field=f"chunks[{number}].embedding",
                )
        embeddings = [chunk.embedding or [] for chunk in chunks]
    matrix = check_embeddings(
        embeddings,
        dimension=dimension,
        metric=vector_db.metric,
        normalize=vector_db.normalize,
        field="chunks.embedding",
    )
    if len(matrix) != len(chunks):
        raise InvalidRequest(
            f"{len(chunks)} chunks came with {len(matrix)} embeddings.", field="embeddings"
        )
    return matrix


def check_query_embedding(vector_db: VectorDB, embedding: ArrayLike | None) -> NDArray[np.float32]:
    """Return the checked embedding of a query in the index's form, shape (dimension,).

    Raises:
        InvalidEmbedding: See `check_embeddings`.
        InvalidRequest: The query has no embedding, or more than one.
    """
    if embedding is None:
        raise InvalidRequest(
            "A vector or hybrid query needs an embedding.",
            hint="Send one, or use mode keyword.",
            field="embedding",
        )
    rows = check_embeddings(
        embedding,
        dimension=vector_db.embedding_dimension,
        metric=vector_db.metric,
        normalize=vector_db.normalize,
    )
    if len(rows) != 1:
        raise InvalidRequest(f"A query takes one embedding (got {len(rows)}).", field="embedding")
    vector: NDArray[np.float32] = rows[0]
    return vector
