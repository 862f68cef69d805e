"""Settings of a FAISS index. Imports no engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corral.api.provider import ProviderConfig


class IndexConfig(ProviderConfig):
    """Settings of a FAISS index."""

    index: Literal["flat", "hnsw", "ivf"] = Field(
        default="flat",
        description="flat compares every embedding, exactly; hnsw walks a graph; ivf looks into "
        "the nearest of many lists, in a quarter of the memory. The last two are approximate, and "
        "faster from 100,000 chunks.",
    )
    approximate_from: int = Field(
        default=10_000,
        ge=1,
        description="Fewest chunks for which hnsw and ivf are built; fewer are searched exactly.",
    )
    hnsw_m: int = Field(default=32, ge=4, le=256, description="Links of a chunk in the graph.")
    hnsw_ef_construction: int = Field(
        default=128, ge=8, le=4096, description="Candidates looked at for the links of a new chunk."
    )
    hnsw_ef_search: int = Field(
        default=128,
        ge=8,
        le=10_000,
        description="Candidates of a query; more find more and take longer.",
    )
    ivf_nlist: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Lists; 4 times the root of the chunks when absent.",
    )
    ivf_nprobe: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Lists of a query; 3 times the root of their number, 16 at least, when absent.",
    )
    build_threads: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Threads that build an index. With more than one, two builds of the same data "
        "may differ in what they miss.",
    )
