"""The options of context assembly: how a text within a token budget is made of what was found."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from corral.api.vector_dbs import ChunksPerDocument, Expand
from corral.api.wire import Identifier, Strict

Order: TypeAlias = Literal["score", "document", "edges"]
"""How the chunks of a context follow each other.

* `score`: best first.
* `document`: document by document, that of the best chunk first, and within a document as they
  stand there.
* `edges`: the best first, the second best last, and so on to the middle, which is where language
  models overlook most. Liu et al.: "Lost in the Middle: How Language Models Use Long Contexts",
  TACL 2024, section 2.3.
"""


VectorDBWeight: TypeAlias = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class AssemblyOptions(Strict):
    """How a context is made of the chunks that were found."""

    order: Order = Field(
        default="score",
        description="score: best first. document: document by document, each in its own order. "
        "edges: the best at both ends.",
    )
    expand: Expand | None = Field(
        default=None,
        description="How many adjacent chunks of its document join a chunk, before it and behind "
        "it, 0 to 5; without repeating the overlap. null: as the vector DB was registered (0).",
    )
    deduplicate: bool = Field(
        default=True,
        description="Leave out chunks that repeat a text, ignoring white space.",
    )
    max_chunks_per_document: ChunksPerDocument | None = Field(
        default=None,
        description="Most chunks found of one document, 1 to 1000; adjacent chunks of `expand` do "
        "not count. null: as the vector DB was registered (no bound).",
    )
    citations: bool = Field(
        default=False,
        description="Whether chunks begin with a marker such as `[1]` and their source, and the "
        "answer's metadata says what each marker stands for.",
    )
    vector_db_weights: dict[Identifier, VectorDBWeight] = Field(
        default_factory=dict,
        max_length=1000,
        description="How much each of several vector DBs counts when their results are merged, in "
        "(0, 1000]; 1 for those that are not named.",
    )
