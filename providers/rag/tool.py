"""The RAG tool: insert documents, ask a question, get a context within a token budget."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from corral.api.chunks import Chunk, ChunkMetadata, TextItem, derive_chunk_id
from corral.api.errors import InvalidRequest
from corral.api.rag import (
    DEFAULT_CHUNK_TEMPLATE,
    URL,
    LLMQueryGenerator,
    RAGDocument,
    RAGQueryConfig,
    RAGQueryResult,
)
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.config import Limits, RagSettings
from corral.providers.rag.context import assemble
from corral.providers.rag.fetching import Fetcher
from corral.providers.rag.frame import item_template
from corral.providers.rag.parsing import (
    ParsedDocument,
    chosen_type,
    decode_data_uri,
    parse,
    served_type,
)
from corral.providers.rag.retrieval import Library, Retrieval
from corral.providers.rag.splitting import Piece, split
from corral.providers.rag.tokens import DEFAULT_TOKENIZER, tokenizer


@dataclass(frozen=True, slots=True)
class InsertReport:
    """What an insert stored: the number of chunks by document id."""

    chunks: dict[str, int] = field(default_factory=dict)


class RagTool:
    """Retrieval's entry for server, command line and benchmark.

    Args:
        library: Where the vector DBs are; a `Stack`.
        settings: Which URLs may be fetched.
        limits: How much one request may bring.
        fetcher: Fetches URLs; made from the settings where absent.

    Raises:
        ConfigError: An allowed host of the settings is no host name.
    """

    def __init__(
        self,
        library: Library,
        settings: RagSettings | None = None,
        *,
        limits: Limits | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.library = library
        self.retrieval = Retrieval(library)
        self._limits = limits or Limits()
        self._fetcher = fetcher or Fetcher(settings or RagSettings())

    async def insert(
        self,
        documents: Sequence[RAGDocument],
        vector_db_id: str,
        chunk_size_in_tokens: int | None = None,
        overlap: int | None = None,
    ) -> InsertReport:
        """Parse, split, embed and store documents, all or none.

        A document whose id is stored already is replaced as a whole, in the same step. Each chunk
        carries its document's metadata, `document_id`, `token_count` and `metadata_token_count`,
        and for Markdown and HTML the first heading of level 1 as `title`, unless the metadata has a
        title.

        Args:
            documents: Each id once.
            vector_db_id: Where to.
            chunk_size_in_tokens: Most cl100k tokens of a chunk, 1 to 8192; None takes the
                registration's.
            overlap: Most tokens repeated from the chunk before, at most half the size; None takes
                the registration's share of the size.

        Raises:
            NotFound: There is no such vector DB.
            InvalidRequest: A document is empty, unreadable, given twice, of an unsupported type or
                at an address that is not allowed; a size is out of range; there is too much.
            MissingDependency: The package that reads a document is not installed.
            ProviderError: The embedder or the backend failed; nothing was stored.
        """
        vector_db = self.library.vector_db(vector_db_id)
        chunking = _chunking(vector_db.chunking, chunk_size_in_tokens, overlap)
        self._check_documents(documents)
        chunks: list[Chunk] = []
        counts: dict[str, int] = {}
        for number, document in enumerate(documents):
            parsed = await self._parse(number, document)
            made = await asyncio.to_thread(_chunks, document, parsed, chunking, vector_db)
            counts[document.document_id] = len(made)
            chunks += made
            self._check_chunks(len(chunks))
        await self.retrieval.store(vector_db_id, chunks, replace_documents=list(counts))
        return InsertReport(counts)

    async def query(
        self,
        content: str | Sequence[str],
        vector_db_ids: Sequence[str],
        config: RAGQueryConfig | None = None,
    ) -> RAGQueryResult:
        """Return the context that answers a question from one or several vector DBs.

        Args:
            content: The question. Several texts are joined by the query generator's separator.
            vector_db_ids: Where to look; with several, hits are merged by rank.
            config: How to retrieve and assemble; the defaults where absent.

        Raises:
            NotFound: One of the vector DBs does not exist.
            InvalidRequest: A bad setting, a query generator of type llm, or too many vector DBs.
            ProviderError: An embedder or a backend failed.
        """
        config = config or RAGQueryConfig()
        counter = tokenizer(config.tokenizer)
        most = self._limits.max_vector_dbs_per_query
        if len(vector_db_ids) > most:
            raise _too_many("vector DBs", len(vector_db_ids), most, "max_vector_dbs_per_query")
        question = _question(content, config)
        found = await self.retrieval.search_many(
            vector_db_ids,
            question,
            k=config.max_chunks,
            mode=config.mode,
            score_threshold=config.score_threshold,
            ranker=config.ranker,
            filters=config.filters,
            include_embeddings=config.include_embeddings,
        )
        context = await asyncio.to_thread(assemble, question, found, config, counter)
        items = None if context.items is None else [TextItem(text=item) for item in context.items]
        return RAGQueryResult(content=items, metadata=context.metadata)

    async def _parse(self, number: int, document: RAGDocument) -> ParsedDocument:
        """Return a document's text; errors say which document they are about."""
        try:
            content, found = await self._content(document)
            return await asyncio.to_thread(parse, content, chosen_type(document.mime_type, found))
        except InvalidRequest as error:
            raise InvalidRequest(
                f"Document {document.document_id!r}: {error.message}",
                hint=error.hint,
                field=f"documents[{number}].{error.field or 'content'}",
            ) from error

    async def _content(self, document: RAGDocument) -> tuple[str | bytes, str | None]:
        if not isinstance(document.content, URL):
            return document.content, None
        uri = document.content.uri
        if uri[:5].lower() == "data:":
            return decode_data_uri(uri)
        fetched = await self._fetcher.fetch(uri)
        return fetched.data, served_type(fetched.url, fetched.content_type)

    def _check_documents(self, documents: Sequence[RAGDocument]) -> None:
        if not documents:
            raise InvalidRequest("There is no document.", field="documents")
        most = self._limits.max_documents_per_insert
        if len(documents) > most:
            raise _too_many("documents", len(documents), most, "max_documents_per_insert")
        seen: set[str] = set()
        for number, document in enumerate(documents):
            if document.document_id in seen:
                raise InvalidRequest(
                    f"Document {document.document_id!r} is in the request twice.",
                    hint="Send one version of it.",
                    field=f"documents[{number}].document_id",
                )
            seen.add(document.document_id)

    def _check_chunks(self, count: int) -> None:
        most = self._limits.max_chunks_per_insert
        if count > most:
            raise _too_many("chunks", count, most, "max_chunks_per_insert")


def _chunking(registered: ChunkingConfig, size: int | None, overlap: int | None) -> ChunkingConfig:
    """Return the sizes of an insert: the request's, else the registration's, overlap in scale."""
    size = registered.chunk_size_in_tokens if size is None else size
    if overlap is None:
        overlap = registered.overlap_in_tokens * size // registered.chunk_size_in_tokens
    try:
        return ChunkingConfig(chunk_size_in_tokens=size, overlap_in_tokens=overlap)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequest(
            f"Chunks of {size} tokens with an overlap of {overlap}: {first['msg']}.",
            hint="Use a size from 1 to 8192 and an overlap of at most half of it.",
            field=str(first["loc"][0]) if first["loc"] else "chunk_size_in_tokens",
        ) from None


def _chunks(
    document: RAGDocument, parsed: ParsedDocument, chunking: ChunkingConfig, vector_db: VectorDB
) -> list[Chunk]:
    """Split a document and return its chunks; equal input gives equal ids."""
    pieces = split(
        parsed.text,
        chunk_size=chunking.chunk_size_in_tokens,
        overlap=chunking.overlap_in_tokens,
        markdown=parsed.markdown,
    )
    metadata: dict[str, Any] = dict(document.metadata)
    if parsed.title and "title" not in metadata:
        metadata["title"] = parsed.title
    metadata["document_id"] = document.document_id
    printed = item_template(DEFAULT_CHUNK_TEMPLATE).render(metadata)
    counts = {"metadata_token_count": tokenizer().count(printed)}
    origin = ChunkMetadata(
        document_id=document.document_id,
        source=_source(document),
        created_timestamp=int(time.time()),
        updated_timestamp=int(time.time()),
        chunk_tokenizer=DEFAULT_TOKENIZER,
        chunk_embedding_model=vector_db.embedding_model,
        chunk_embedding_dimension=vector_db.embedding_dimension,
        metadata_token_count=counts["metadata_token_count"],
    )
    return [
        _chunk(position, piece, {**metadata, "token_count": piece.tokens, **counts}, origin)
        for position, piece in enumerate(pieces)
    ]


def _chunk(position: int, piece: Piece, metadata: dict[str, Any], origin: ChunkMetadata) -> Chunk:
    chunk_id = derive_chunk_id(metadata["document_id"], piece.text, position)
    own = {
        "chunk_id": chunk_id,
        "chunk_window": f"{piece.first_token}-{piece.first_token + piece.tokens}",
        "content_token_count": piece.tokens,
    }
    return Chunk(
        chunk_id=chunk_id,
        content=piece.text,
        metadata=metadata,
        chunk_metadata=origin.model_copy(update=own),
    )


def _source(document: RAGDocument) -> str | None:
    """Return where a document says it is from; a `data:` URI is content and not a place."""
    if isinstance(document.content, URL) and document.content.uri[:5].lower() != "data:":
        return document.content.uri
    source = document.metadata.get("source")
    return source if isinstance(source, str) else None


def _question(content: str | Sequence[str], config: RAGQueryConfig) -> str:
    generator = config.query_generator_config
    if isinstance(generator, LLMQueryGenerator):
        raise InvalidRequest(
            "A query generator of type 'llm' needs a language model, and none is configured.",
            hint='Use query_generator_config {"type": "default"}: the question as it stands.',
            field="query_config.query_generator_config",
        )
    return content if isinstance(content, str) else generator.separator.join(content)


def _too_many(what: str, count: int, most: int, setting: str) -> InvalidRequest:
    return InvalidRequest(
        f"The request has {count} {what}.",
        hint=f"At most {most} are allowed (server.limits.{setting}).",
        field="documents" if what != "vector DBs" else "vector_db_ids",
    )
