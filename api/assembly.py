"""The options of context assembly, which turns search hits into a text within a token budget."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from corral.api.vector_dbs import ContextOverrides
from corral.api.wire import Identifier

Order: TypeAlias = Literal["score", "document", "edges"]
"""The order of the chunks in a context.

* `score`: best first.
* `document`: grouped by document, the document with the best chunk first, in document order.
* `edges`: the best first, the second best last, and so on to the middle, where language models
  overlook the most. Liu et al.: "Lost in the Middle: How Language Models Use Long Contexts",
  TACL 2024, section 2.3.
"""


VectorDBWeight: TypeAlias = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class AssemblyOptions(ContextOverrides):
    """Options for building a context from the retrieved chunks."""

    order: Order = Field(
        default="score",
        description="score: best first. document: by document, in document order. edges: the best "
        "at both ends.",
    )
    deduplicate: bool = Field(
        default=True,
        description="Remove chunks with the same text, ignoring white space.",
    )
    citations: bool = Field(
        default=False,
        description="Start each chunk with a marker such as `[1]` and its source, and describe "
        "the markers in the metadata.",
    )
    vector_db_weights: dict[Identifier, VectorDBWeight] = Field(
        default_factory=dict,
        max_length=1000,
        description="Weight of each vector DB, in (0, 1000], default 1: scores are multiplied by "
        "it, divided by the largest.",
    )
