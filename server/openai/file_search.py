"""The tool file_search of a request: the vector stores and the search options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from corral.api.errors import CorralError, Expired, NotFound, ProviderTimeout, Unavailable
from corral.api.filters import WireFilter
from corral.api.options import RankingOptions, checked
from corral.api.rag import RAGQueryConfig
from corral.api.rankers import Ranker
from corral.api.reranker import Rerank
from corral.api.vector_dbs import ContextOverrides, SearchMode, SearchOverrides
from corral.providers.stack.stack import Stack
from corral.providers.stack.vector_stores import VectorStores
from corral.server.errors import WireError
from corral.server.openai.requests import FileId

MAX_RESULTS = 50
DEFAULT_RESULTS = 10


class FileSearchTool(SearchOverrides, ContextOverrides):
    """Where and how to search. An absent option is as registered with each vector store."""

    type: Literal["file_search"]
    vector_store_ids: Annotated[list[FileId], Field(min_length=1)]
    filters: WireFilter | None = None
    max_num_results: int = Field(
        default=DEFAULT_RESULTS, ge=1, le=MAX_RESULTS, description="Of all vector stores together."
    )
    ranking_options: RankingOptions | None = None
    search_mode: SearchMode | None = None
    ranker: Ranker | None = None
    rerank: Rerank | None = None
    max_tokens_in_context: int = Field(default=4096, ge=1, le=1_000_000)

    def config(self) -> RAGQueryConfig:
        """Return the options of each search."""
        shared = RAGQueryConfig.model_fields.keys() & FileSearchTool.model_fields.keys()
        options = {name: getattr(self, name) for name in shared}
        fields = {**options, "mode": self.search_mode, "max_chunks": self.max_num_results}
        return checked(RAGQueryConfig, fields)

    def echo(self) -> dict[str, Any]:
        """Return the tool as a response shows it, with its defaults filled in."""
        ranking = self.ranking_options or RankingOptions()
        shown = self.model_dump(mode="json", exclude_none=True)
        return {
            **shown,
            "filters": shown.get("filters"),
            "ranking_options": {
                **ranking.model_dump(mode="json", exclude_none=True),
                "ranker": ranking.ranker or "auto",
                "score_threshold": ranking.score_threshold or 0.0,
            },
        }


async def check_stores(names: Sequence[str], stack: Stack, field: str) -> None:
    """Refuse unknown and expired vector stores before a search.

    Args:
        field: The request's field with the vector stores.

    Raises:
        WireError: 404 for an unknown one.
        Expired: A store has expired.
    """
    stores = VectorStores(stack)
    for name in names:
        try:
            await stores.usable(name)
        except NotFound as error:
            raise WireError(
                404, "vector_store_not_found", error.message, hint=error.hint, field=field
            ) from None
        except Expired as error:
            error.field = field
            raise


def in_field(error: CorralError, field: str) -> CorralError:
    """Return an error with a field path that includes the tool."""
    error.field = f"{field}.{error.field}" if error.field else field
    return error


def search_failure(error: CorralError, field: str) -> CorralError:
    """Return the refusal for a search that failed.

    Args:
        field: The request's field with the vector stores.
    """
    status, code = 0, ""
    if isinstance(error, ProviderTimeout):
        status, code = 504, "vector_store_timeout"
    elif isinstance(error, Unavailable):
        status, code = 503, "vector_store_unavailable"
    elif isinstance(error, NotFound):
        status, code = 404, "vector_store_not_found"
    if not status:
        return error
    return WireError(
        status, code, error.message, hint=error.hint, field=field, retryable=error.retryable
    )
