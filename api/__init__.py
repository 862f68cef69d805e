"""The contract of Corral: types, abstract classes, score and filter semantics, errors.

Nothing here does I/O or knows an engine; every other package may import this one and it imports
none of them. The public modules for provider authors:

* `corral.api`: the names below, from whichever module they are in.
* `corral.api.testing`: the conformance suite that a provider must pass.
* `corral.providers.text` and `corral.providers.vector_io.kit`: the words of a text, BM25, exact
  scores, a write-ahead log, for engines that lack them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.api.chunks import Chunk, ChunkMetadata
    from corral.api.embedder import Embedder, ModelInfo
    from corral.api.embedding_index import EmbeddingIndex
    from corral.api.engine import Engine
    from corral.api.engine_index import EngineIndex
    from corral.api.errors import (
        ConfigError,
        Conflict,
        ContractViolation,
        CorralError,
        Expired,
        Forbidden,
        InvalidEmbedding,
        InvalidFilter,
        InvalidRequest,
        MissingDependency,
        NotFound,
        ProviderError,
        ProviderTimeout,
        TooLarge,
        Unauthenticated,
        Unavailable,
        UnknownProvider,
        UnsupportedMode,
    )
    from corral.api.filters import Comparison, Compound, Filter, matches, parse_filter
    from corral.api.fusion import fuse
    from corral.api.hits import Candidate, Hit, QueryChunksResponse
    from corral.api.library import Library
    from corral.api.options import RetrievalOptions
    from corral.api.principal import UNRESTRICTED, Principal, Role
    from corral.api.provider import (
        Capabilities,
        EmbeddingProvider,
        InferenceProvider,
        ProviderConfig,
        ProviderSpec,
        RerankProvider,
        VectorIOProvider,
    )
    from corral.api.rag import RAGDocument, RAGQueryConfig, RAGQueryResult
    from corral.api.rankers import MaxRanker, Ranker, RRFRanker, WeightedRanker
    from corral.api.reranker import BM25Rerank, MMRRerank, ModelRerank, NoRerank, Reranker
    from corral.api.scoring import Metric, keyword_score, vector_score
    from corral.api.vector_dbs import SearchMode, VectorDB, VectorDBRegistration

__all__ = [
    "UNRESTRICTED",
    "BM25Rerank",
    "Candidate",
    "Capabilities",
    "Chunk",
    "ChunkMetadata",
    "Comparison",
    "Compound",
    "ConfigError",
    "Conflict",
    "ContractViolation",
    "CorralError",
    "Embedder",
    "EmbeddingIndex",
    "EmbeddingProvider",
    "Engine",
    "EngineIndex",
    "Expired",
    "Filter",
    "Forbidden",
    "Hit",
    "InferenceProvider",
    "InvalidEmbedding",
    "InvalidFilter",
    "InvalidRequest",
    "Library",
    "MMRRerank",
    "MaxRanker",
    "Metric",
    "MissingDependency",
    "ModelInfo",
    "ModelRerank",
    "NoRerank",
    "NotFound",
    "Principal",
    "ProviderConfig",
    "ProviderError",
    "ProviderSpec",
    "ProviderTimeout",
    "QueryChunksResponse",
    "RAGDocument",
    "RAGQueryConfig",
    "RAGQueryResult",
    "RRFRanker",
    "Ranker",
    "RerankProvider",
    "Reranker",
    "RetrievalOptions",
    "Role",
    "SearchMode",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "UnknownProvider",
    "UnsupportedMode",
    "VectorDB",
    "VectorDBRegistration",
    "VectorIOProvider",
    "WeightedRanker",
    "fuse",
    "keyword_score",
    "matches",
    "parse_filter",
    "vector_score",
]

HOMES = (
    "chunks", "embedder", "embedding_index", "engine", "engine_index", "errors", "filters",
    "fusion", "hits", "library", "options", "principal", "provider", "rag", "rankers",
    "reranker", "scoring", "vector_dbs",
)  # fmt: skip
"""The modules that these names are in."""


def __getattr__(name: str) -> Any:
    """Return a name of the contract, importing its module now.

    The command line reads the errors of the contract, and its help must not wait for numpy.
    """
    if name in __all__:
        for home in HOMES:
            module = importlib.import_module(f"corral.api.{home}")
            if name in vars(module):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
