"""Toy indexes that search wrongly: by their scores, their order, their filters or their words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from caught_by import caught_by
from numpy.typing import NDArray
from toy_engine import Entries, Entry, ToyEngine

from corral.api.chunks import Chunk
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import Analysis

Row = NDArray[np.float32]
Scores = NDArray[np.float64]


# --- scores and order -----------------------------------------------------------------------------


@caught_by("test_normalized_embeddings_score_by_their_angle[cosine]", "test_raw_scores_by_hand")
class ReversedOrder(ToyEngine):
    def _best(self, *arguments: Any) -> list[Candidate]:
        return super()._best(*arguments)[::-1]


@caught_by("test_in_three_dimensions", "test_exact_search_equals_brute_force[l2]")
class InvertedSign(ToyEngine):
    def _compare(self, rows: Row, query: Row) -> Scores:
        return -super()._compare(rows, query)


@caught_by("test_normalized_embeddings_score_by_their_angle[l2]", "test_in_three_dimensions")
class InverseDistance(ToyEngine):
    def _compare(self, rows: Row, query: Row) -> Scores:
        distances: Scores = np.linalg.norm(rows - query, axis=1).astype(np.float64)
        return 1.0 / (1.0 + distances)


@caught_by("test_normalized_embeddings_score_by_their_angle[dot]")
class RawDistance(ToyEngine):
    def _compare(self, rows: Row, query: Row) -> Scores:
        return 1.0 - super()._compare(rows, query)


@caught_by("test_l2_of_raw_embeddings")
class SquaredDistance(ToyEngine):
    def _compare(self, rows: Row, query: Row) -> Scores:
        raw = super()._compare(rows, query)
        return raw if self.vector_db.normalize else -raw * raw


@caught_by("test_an_embedding_finds_itself_with_score_1[cosine]")
class ScoresOfCodes(ToyEngine):
    def _compare(self, rows: Row, query: Row) -> Scores:
        return super()._compare(np.round(rows * 16).astype(np.float32), query)


@caught_by("test_k_is_the_number_of_hits_and_a_prefix_of_more", "test_words_are_joined_by_or")
class OneHitTooFew(ToyEngine):
    def _best(self, raw: Mapping[str, float], k: int, *rest: Any) -> list[Candidate]:
        return super()._best(raw, k, *rest)[: k - 1 if k < 5 else -1]


@caught_by("test_equal_distances_come_in_the_order_of_ids")
class DroppedTie(ToyEngine):
    def _best(self, raw: Mapping[str, float], k: int, *rest: Any) -> list[Candidate]:
        distinct = {score: chunk_id for chunk_id, score in sorted(raw.items(), reverse=True)}
        return super()._best({i: score for score, i in distinct.items()}, k, *rest)


@caught_by(
    "test_equal_distances_come_in_the_order_of_ids",
    "test_equal_texts_come_in_the_order_of_ids",
    "test_the_order_of_insertion_does_not_matter",
)
class TiesByInsertion(ToyEngine):
    def _best(
        self, raw: Mapping[str, float], k: int, entries: Entries, filters: Filter | None
    ) -> list[Candidate]:
        passing = [i for i in raw if matches(filters, entries[i].chunk.metadata)]
        passing.sort(key=lambda i: -raw[i])
        return [Candidate(i, raw[i]) for i in passing[:k]]


@caught_by("test_the_same_question_has_the_same_answer")
class AnotherOrderEveryTime(ToyEngine):
    def _best(self, raw: Mapping[str, float], *rest: Any) -> list[Candidate]:
        noise = {i: int.from_bytes(os.urandom(2)) * 1e-15 for i in raw}
        return super()._best({i: raw[i] + noise[i] for i in raw}, *rest)


@caught_by("test_hybrid_is_the_fusion_of_both_legs", "test_what_one_leg_finds_is_in_the_answer")
class HybridOfWhatBothFind(ToyEngine):
    async def search_hybrid(
        self, embedding: Row, query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        vector, keyword = await super().search_hybrid(embedding, query_string, k, filters)
        both = {c.chunk_id for c in vector} & {c.chunk_id for c in keyword}
        return [c for c in vector if c.chunk_id in both], [c for c in keyword if c.chunk_id in both]


class HalfBlind(ToyEngine):
    """Approximate search that misses half of the chunks."""

    def _best(self, raw: Mapping[str, float], *rest: Any) -> list[Candidate]:
        return super()._best(dict(sorted(raw.items())[::2]), *rest)


# --- filters --------------------------------------------------------------------------------------


@caught_by(
    "test_equality_with_every_kind_of_value",
    "test_a_filter_holds_in_both_legs",
    "test_a_filtered_hybrid_answer_holds_only_what_its_legs_may",
)
class IgnoredFilter(ToyEngine):
    def _best(self, raw: Mapping[str, float], k: int, entries: Entries, _: Any) -> list[Candidate]:
        return super()._best(raw, k, entries, None)


@caught_by(
    "test_a_filter_is_applied_before_the_top_k",
    "test_what_is_hidden_takes_no_place_among_the_best",
    "test_filtered_vector_search_equals_brute_force",
    "test_filtered_keyword_search_equals_the_definition",
)
class FilterAfterTopK(ToyEngine):
    def _best(
        self, raw: Mapping[str, float], k: int, entries: Entries, filters: Filter | None
    ) -> list[Candidate]:
        best = super()._best(raw, k, entries, None)
        return [c for c in best if matches(filters, entries[c.chunk_id].chunk.metadata)]


@caught_by("test_equality_with_every_kind_of_value", "test_random_filters_equal_the_reference")
class BooleansAreNumbers(ToyEngine):
    def _entry(self, chunk: Chunk, row: Row) -> Entry:
        metadata = {k: int(v) if isinstance(v, bool) else v for k, v in chunk.metadata.items()}
        return super()._entry(chunk.model_copy(update={"metadata": metadata}), row)


@caught_by("test_keys_are_data")
class KeysArePaths(ToyEngine):
    def _entry(self, chunk: Chunk, row: Row) -> Entry:
        metadata = dict(chunk.metadata)
        for key, value in chunk.metadata.items():
            if isinstance(value, dict):
                metadata |= {f"{key}.{inner}": one for inner, one in value.items()}
        return super()._entry(chunk.model_copy(update={"metadata": metadata}), row)


@caught_by("test_a_filter_changes_no_score", "test_filtered_keyword_search_equals_the_definition")
class StatisticsOfWhatPasses(ToyEngine):
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        passing = {i: e for i, e in self._load().items() if matches(filters, e.chunk.metadata)}
        return self._best(self._bm25(self._terms(query_string), passing), k, passing, None)


# --- keyword --------------------------------------------------------------------------------------


@caught_by("test_confidence_is_that_of_the_definition")
class NoGreatestScore(ToyEngine):
    async def search_keyword(self, query_string: str, *rest: Any) -> Sequence[Candidate]:
        return list(await super().search_keyword(query_string, *rest))


@caught_by("test_confidence_is_that_of_the_definition")
class GreatestOfWordsThatAreThere(ToyEngine):
    def _greatest(self, terms: Sequence[str], entries: Entries) -> float:
        there = {term for entry in entries.values() for term in entry.frequency}
        return super()._greatest([term for term in terms if term in there], entries)


@caught_by("test_several_vector_dbs_rank_as_one")
class OwnStatisticsOnly(ToyEngine):
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await super().search_keyword(query_string, k, filters)


@caught_by("test_several_vector_dbs_rank_as_one")
class OwnAverageLength(ToyEngine):
    def _bm25_by(
        self, by: TermStatistics, terms: Sequence[str], entries: Entries
    ) -> dict[str, float]:
        average = sum(e.length for e in entries.values()) / max(len(entries), 1)
        mixed = TermStatistics(by.count, round(average * by.count), by.holding)
        return super()._bm25_by(mixed, terms, entries)


@caught_by("test_words_are_joined_by_or", "test_the_longest_query")
class KeywordAnd(ToyEngine):
    def _bm25(self, terms: Sequence[str], entries: Entries) -> dict[str, float]:
        raw = super()._bm25(terms, entries)
        return {i: s for i, s in raw.items() if all(t in entries[i].frequency for t in terms)}


@caught_by("test_one_chunk_alone_has_a_real_score", "test_a_word_in_every_chunk_still_counts")
class IdfCutOff(ToyEngine):
    def _bm25(self, terms: Sequence[str], entries: Entries) -> dict[str, float]:
        raw = super()._bm25(terms, entries)
        common = 2 * len(raw) > len(entries)
        return {i: s * 1e-6 if common else s for i, s in raw.items()}


@caught_by("test_raw_scores_are_bm25", "test_a_random_corpus_equals_the_definition")
class WithoutTheFactor(ToyEngine):
    def _bm25(self, terms: Sequence[str], entries: Entries) -> dict[str, float]:
        return {i: s / 2.2 for i, s in super()._bm25(terms, entries).items()}


@caught_by("test_a_heavier_title_outranks_content", "test_field_weights_multiply_the_frequency")
class UnusedWeights(ToyEngine):
    def __init__(self, vector_db: VectorDB, folder: Path) -> None:
        equal = dict.fromkeys(vector_db.field_weights, 1.0)
        super().__init__(vector_db.model_copy(update={"field_weights": equal}), folder)


@caught_by(
    "test_inflected_forms_and_unspaced_scripts_are_found[english]",
    "test_inflected_forms_and_unspaced_scripts_are_found[chinese]",
)
class SplitAtSpaces(ToyEngine):
    def __init__(self, vector_db: VectorDB, folder: Path) -> None:
        super().__init__(vector_db, folder)
        self._terms = lambda text: text.lower().split()
        self._analyze = lambda text: Analysis(text.lower().split(), [])


@caught_by("test_no_query_text_raises")
class QueryIsSyntax(ToyEngine):
    async def search_keyword(self, query_string: str, *rest: Any) -> Sequence[Candidate]:
        if query_string.count('"') % 2:
            raise ValueError("unterminated string")
        return await super().search_keyword(query_string, *rest)


@caught_by("test_statistics_are_per_vector_db")
class SharedStatistics(ToyEngine):
    everywhere: ClassVar[dict[Path, Entries]] = {}

    def _bm25(self, terms: Sequence[str], entries: Entries) -> dict[str, float]:
        self.everywhere[self._path] = entries
        every = {f"{p} {i}": e for p, one in self.everywhere.items() for i, e in one.items()}
        raw = super()._bm25(terms, every)
        return {i: raw[key] for i in entries if (key := f"{self._path} {i}") in raw}

    def _save(self, entries: Entries) -> None:
        super()._save(entries)
        self.everywhere[self._path] = entries


@caught_by("test_writes_change_the_statistics")
class DeletedChunksStillCount(ToyEngine):
    def __init__(self, vector_db: VectorDB, folder: Path) -> None:
        super().__init__(vector_db, folder)
        self._ever: Entries = {}

    def _bm25(self, terms: Sequence[str], entries: Entries) -> dict[str, float]:
        raw = super()._bm25(terms, {**self._ever, **entries})
        return {i: s for i, s in raw.items() if i in entries}

    def _save(self, entries: Entries) -> None:
        self._ever |= entries
        super()._save(entries)
