"""Toy indexes that store, list or drop wrongly, break the contract, or tell what is hidden."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from caught_by import caught_by
from numpy.typing import NDArray
from toy_engine import Entries, Entry, ToyEngine

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount
from corral.api.engine_index import EngineIndex
from corral.api.errors import ProviderError
from corral.api.filters import Compound, Filter, matches
from corral.api.hits import Candidate, QueryChunksResponse, TermStatistics
from corral.api.vector_dbs import VectorDB

Row = NDArray[np.float32]


# --- writing --------------------------------------------------------------------------------------


@caught_by("test_repeating_an_insert_changes_nothing", "test_counting_follows_every_write")
class DuplicatingUpsert(ToyEngine):
    async def add(self, chunks: Sequence[Chunk], *rest: Any) -> None:
        with self._locked():
            existing = {chunk.chunk_id for chunk in chunks}
            self._save({f"{i} old" if i in existing else i: e for i, e in self._load().items()})
        await super().add(chunks, *rest)


@caught_by("test_an_upsert_replaces_the_whole_chunk")
class FirstOneWins(ToyEngine):
    async def add(self, chunks: Sequence[Chunk], embeddings: Row, documents: Any) -> None:
        new = [n for n, chunk in enumerate(chunks) if chunk.chunk_id not in self._load()]
        await super().add([chunks[n] for n in new], embeddings[new], documents)


@caught_by(
    "test_a_new_version_replaces_all_chunks_of_the_old_one",
    "test_any_order_of_writes_equals_the_reference",
)
class StaleDocuments(ToyEngine):
    def _without(self, entries: Entries, documents: frozenset[str]) -> Entries:
        return dict(entries)


@caught_by(
    "test_deleting_and_adding_keeps_ids_and_texts_together",
    "test_any_order_of_writes_equals_the_reference",
)
class StaleIdMap(ToyEngine):
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        rows = [entry.row for entry in self._load().values()]
        await super().delete(chunk_ids)
        left = zip(self._load().items(), rows, strict=False)
        self._save({i: Entry(e.chunk, row, e.frequency, e.length) for (i, e), row in left})


@caught_by("test_dropping_under_queries[1]")
class SharedConnection(ToyEngine):
    connected: ClassVar[bool] = True

    async def search_vector(self, embedding: Row, k: int, filters: Filter | None) -> Any:
        found = await super().search_vector(embedding, k, filters)
        await asyncio.sleep(0)
        if not self.connected:
            raise ProviderError("The connection is closed.")
        return found

    async def drop(self) -> None:
        type(self).connected = False
        await asyncio.sleep(0.01)
        await super().drop()
        type(self).connected = True


@caught_by("test_concurrent_adds_are_all_kept")
class LostUpdate(ToyEngine):
    async def add(self, chunks: Sequence[Chunk], embeddings: Row, documents: Any) -> None:
        entries = self._without(self._load(), documents)
        await asyncio.sleep(0)
        self._save(
            entries
            | {c.chunk_id: self._entry(c, r) for c, r in zip(chunks, embeddings, strict=True)}
        )


@caught_by(
    "test_readers_see_one_whole_version",
    "test_of_many_writers_of_one_document_one_version_is_left_whole",
)
class TwoSteps(ToyEngine):
    async def add(self, chunks: Sequence[Chunk], embeddings: Row, documents: Any) -> None:
        await super().add([], embeddings[:0], documents)
        await asyncio.sleep(0)
        await super().add(chunks, embeddings, frozenset())


@caught_by("test_stored_chunks_are_out_of_the_callers_reach")
class SharedChunks(ToyEngine):
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return [self._load()[i].chunk for i in chunk_ids if i in self._load()]


@caught_by("test_embeddings_are_stored_and_returned_on_request[True]")
class EmbeddingsInEveryReply(ToyEngine):
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await super().get(chunk_ids, True)


# --- going through the ids ------------------------------------------------------------------------


@caught_by("test_ids_are_in_the_order_of_code_points", "test_pages_join_to_the_whole")
class IdsAsInserted(ToyEngine):
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return [i for i in self._load() if i > after][:limit]


@caught_by("test_ids_are_in_the_order_of_code_points", "test_one_can_begin_anywhere")
class IdsByUtf16(ToyEngine):
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        above = [i for i in self._load() if i.encode("utf-16-be") > after.encode("utf-16-be")]
        return sorted(above, key=lambda i: i.encode("utf-16-be"))[:limit]


@caught_by("test_writes_between_two_pages")
class PagesByPosition(ToyEngine):
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        ids = sorted(self._load())
        start = ids.index(after) + 1 if after in ids else len(ids) if after else 0
        return ids[start : start + limit]


@caught_by("test_writes_between_two_pages", "test_ids_of_another_process_are_seen")
class IdsReadOnce(ToyEngine):
    _ids: list[str] | None = None

    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        self._ids = sorted(self._load()) if self._ids is None else self._ids
        return [i for i in self._ids if i > after][:limit]


# --- the rest -------------------------------------------------------------------------------------


@caught_by("test_every_id_is_usable_and_apart_from_the_others")
class SharedTable(ToyEngine):
    def _file_name(self, identifier: str) -> str:
        return "db_" + re.sub("[^a-z0-9]", "_", identifier.lower())[:200]


@caught_by("test_two_installations_register_one_id_at_one_time")
class OneInstallation(ToyEngine):
    def __init__(self, vector_db: VectorDB, folder: Path) -> None:
        super().__init__(vector_db, folder)
        self._path = folder / self._file_name(vector_db.identifier)


@caught_by("test_every_id_is_usable_and_apart_from_the_others")
class DropsOthers(ToyEngine):
    async def drop(self) -> None:
        for path in self._path.parent.glob("*"):
            path.unlink()


@caught_by("test_dropping_removes_everything")
class DropsNothing(ToyEngine):
    async def drop(self) -> None:
        pass


@caught_by("test_a_restart_changes_no_answer", "test_chunks_survive_a_restart_whole")
class Forgetful(ToyEngine):
    def __init__(self, vector_db: VectorDB, folder: Path) -> None:
        super().__init__(vector_db, folder)
        self._path.unlink(missing_ok=True)


@caught_by("test_each_process_sees_what_the_other_wrote")
class NeverReadsAgain(ToyEngine):
    def _load(self) -> Entries:
        return self._entries or super()._load()


class _OwnQuery(EngineIndex):  # type: ignore[misc]  # the type checker refuses it, too
    async def query(self, *arguments: Any, **options: Any) -> QueryChunksResponse:
        return await super().query(*arguments, **options)


@caught_by("test_suite_tests_the_contracts_own_methods")
class OwnQuery(ToyEngine):
    index_class = _OwnQuery


@caught_by("test_suite_calls_engines_as_the_contract_does")
class OtherSignature(ToyEngine):
    async def delete(self, ids: Sequence[str]) -> None:
        await super().delete(ids)


# --- permissions ----------------------------------------------------------------------------------


@caught_by("test_chunks_without_an_acl_have_the_default", "test_a_filter_never_widens_the_scope")
class AbsentIsNeverUnequal(ToyEngine):
    """`ne` as in SQL, where nothing is unequal to null."""

    def _best(
        self, raw: Mapping[str, float], k: int, entries: Entries, filters: Filter | None
    ) -> list[Candidate]:
        known = {i: n for i, n in raw.items() if self._passes(filters, entries[i].chunk)}
        return super()._best(known, k, entries, None)

    def _passes(self, filters: Filter | None, chunk: Chunk) -> bool:
        if isinstance(filters, Compound):
            combine = all if filters.type == "and" else any
            return combine(self._passes(part, chunk) for part in filters.filters)
        return filters is None or (
            filters.key in chunk.metadata and matches(filters, chunk.metadata)
        )


@caught_by(
    "test_each_finds_what_its_tokens_open",
    "test_an_acl_comes_back_as_a_field_and_metadata_as_it_was",
)
class FirstOfAList(ToyEngine):
    def _entry(self, chunk: Chunk, row: Row) -> Entry:
        cut = {k: v[:1] if isinstance(v, list) else v for k, v in chunk.metadata.items()}
        return super()._entry(chunk.model_copy(update={"metadata": cut}), row)


@caught_by("test_what_is_hidden_is_as_what_is_missing")
class CountsTheWhole(ToyEngine):
    async def count_passing(self, filters: Filter) -> int:
        return await self.count()


@caught_by("test_what_is_hidden_is_as_what_is_missing")
class ListsTheWhole(ToyEngine):
    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await self.chunk_ids(after, limit)


@caught_by("test_a_document_is_seen_as_far_as_its_chunks_are")
class DocumentsOfTheWhole(ToyEngine):
    async def documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        return await super().documents_passing(after, limit, None)


@caught_by("test_each_finds_what_its_tokens_open")
class AnswersKept(ToyEngine):
    """A cache of answers by the question alone."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._answers: dict[str, Sequence[Candidate]] = {}

    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        if query_string not in self._answers:
            found = await super().search_keyword(query_string, k, filters)
            self._answers[query_string] = found
        return self._answers[query_string][:k]
