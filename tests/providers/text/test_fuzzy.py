"""Fuzzy keyword search beyond the conformance suite: scores by hand, alike on all backends, and a
vocabulary that follows every write.

The backends of one machine share the code of the chunk store, so one of them answers for all.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.hits import QueryChunksResponse
from corral.api.testing.indexes import PLAIN
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.text.similar import MAX_SIMILAR, Vocabulary
from corral.providers.vector_io.store.provider import file_name

from ..vector_io import inline_backends
from ..vector_io.inline_backends import vector_db

FUZZY = ["chroma", "faiss", "lancedb", "memory", "sqlite"]
ROOT = Path(inline_backends.__file__ or "").parents[3]


@asynccontextmanager
async def opened(
    folder: Path, texts: dict[str, str] | None = None, backend: str = "sqlite", **settings: Any
) -> AsyncIterator[EmbeddingIndex]:
    """Open an index whose terms are words, with these texts by chunk id where it is a new one."""
    options = {**PLAIN, **settings}
    create = texts is not None
    async with inline_backends.opened(backend, folder, create=create, **options) as index:
        await add(index, texts or {})
        yield index


async def add(index: EmbeddingIndex, texts: dict[str, str]) -> None:
    """Store texts by chunk id."""
    chunks = [Chunk(content=text, chunk_id=i) for i, text in texts.items()]
    await inline_backends.add(index, chunks)


async def ask(index: EmbeddingIndex, query: str, **options: Any) -> QueryChunksResponse:
    """Ask for words, fuzzily."""
    options = {"k": 100, "mode": "keyword", "fuzzy": True, **options}
    return await index.query(None, query, **options)


async def raw(index: EmbeddingIndex, query: str, **options: Any) -> dict[str, float]:
    """Return the raw scores of an answer by chunk id, in its order."""
    hits = (await ask(index, query, **options)).hits
    return {hit.chunk.chunk_id: hit.explanation.legs["keyword"].raw_score for hit in hits}


TEXTS = {
    "a": "saddle",
    "b": "saddles saddles",
    "c": "paddle steamer",
    "d": "the paddock",
    "e": "a quiet river bank",
}


def by_hand(*frequencies_lengths: tuple[float, int], share: float, holding: int) -> list[float]:
    """Return share * idf * weight for chunks of TEXTS with a term's frequency and a length."""
    average = sum(len(text.split()) for text in TEXTS.values()) / len(TEXTS)
    return [
        share * idf(holding, len(TEXTS)) * term_weight(frequency, length, average)
        for frequency, length in frequencies_lengths
    ]


# --- scores -----------------------------------------------------------------------------------


async def test_a_similar_word_scores_its_share_by_hand(tmp_path: Path) -> None:
    """All similar words count as one, which is as common as the chunks that hold any of them, and
    each is worth its similarity: for `sadle` saddle 5/6, saddles 5/7 and paddle 4/6."""

    async with opened(tmp_path, TEXTS) as index:
        found = await raw(index, "sadle")
    [a] = by_hand((1, 1), share=5 / 6, holding=3)
    [b] = by_hand((2, 2), share=5 / 7, holding=3)
    [c] = by_hand((1, 2), share=4 / 6, holding=3)
    assert found == pytest.approx({"a": a, "b": b, "c": c}, rel=1e-9)


async def test_a_word_that_is_right_keeps_its_full_score(tmp_path: Path) -> None:
    """A chunk that holds the word itself scores as without fuzzy search, and the others less than
    it in a chunk of the same kind; one that no word resembles changes nothing at all."""

    async with opened(tmp_path, TEXTS) as index:
        exact, fuzzy = await raw(index, "saddle", fuzzy=False), await raw(index, "saddle")
        assert list(exact) == ["a"]
        assert fuzzy["a"] == pytest.approx(exact["a"], rel=1e-12)
        assert next(iter(fuzzy)) == "a"
        assert set(fuzzy) == {"a", "b", "c"}
        assert await raw(index, "river bank") == await raw(index, "river bank", fuzzy=False)


async def test_words_that_no_typo_makes_are_not_expanded(tmp_path: Path) -> None:
    """Short words, numbers, codes and characters of scripts without spaces are found as written."""
    texts = {"a": "cat 4711 e4711", "b": "bat 4712 e4712", "c": "天气真好", "d": "天地真大"}

    async with opened(tmp_path, texts) as index:
        for query in ("cat", "4711", "e4711", "天气"):
            assert await raw(index, query) == await raw(index, query, fuzzy=False), query
        assert list(await raw(index, "cot 4713 e4713")) == []


async def test_only_the_most_similar_words_count(tmp_path: Path) -> None:
    """Of many similar words the nearest few are searched, ties by spelling."""
    words = ["saddle", *(f"sadd{letter}e" for letter in "abcdfg"), "saddlery"]

    async with opened(tmp_path, {word: word for word in words}) as index:
        found = await raw(index, "saddle")
    assert list(found) == ["saddle", "saddae", "saddbe", "saddce", "saddde"]
    assert len(found) == MAX_SIMILAR


async def test_hits_name_the_words_that_they_hold(tmp_path: Path) -> None:
    """Matched terms are those of the chunk, not the misspelled one of the query."""

    async with opened(tmp_path, TEXTS) as index:
        hits = (await ask(index, "sadle stemer river")).hits
    terms = {hit.chunk.chunk_id: hit.explanation.matched_terms for hit in hits}
    assert terms == {
        "a": ("saddle",),
        "b": ("saddles",),
        "c": ("paddle", "steamer"),
        "e": ("river",),
    }


async def test_filters_languages_and_fields_count_as_ever(tmp_path: Path) -> None:
    """Filters apply before the top k, words are stemmed first, and a title is worth its weight."""

    settings: dict[str, Any] = {
        "language": "norwegian",
        "field_weights": {"content": 1.0, "title": 5.0},
    }
    async with opened(tmp_path, {}, **settings) as index:
        chunks = [
            Chunk(content="fjorden er dyp", chunk_id="a"),
            Chunk(content="det er dypt", chunk_id="b", metadata={"title": "Fjorder"}),
        ]
        await inline_backends.add(index, chunks)
        assert list(await raw(index, "fjrodene")) == ["b", "a"]
        only = {"type": "ne", "key": "title", "value": "Fjorder"}
        assert list(await raw(index, "fjrodene", k=1, filters=only)) == ["a"]


async def test_all_backends_score_alike(tmp_path: Path) -> None:
    """Seeded texts, queries with seeded typos: the same hits with the same raw scores, sorted, the
    best k being the first k of all."""
    rng = np.random.default_rng(5)
    letters = list("aeiostrnlm")
    words = ["".join(rng.choice(letters, rng.integers(3, 9))) for _ in range(150)]
    texts = {f"c{n:03}": " ".join(rng.choice(words, rng.integers(1, 15))) for n in range(120)}
    queries = [" ".join(_misspelled(str(w), rng) for w in rng.choice(words, 3)) for _ in range(25)]

    answers: dict[str, list[dict[str, float]]] = {}
    for backend in FUZZY:
        (tmp_path / backend).mkdir()
        async with opened(tmp_path / backend, texts, backend) as index:
            answers[backend] = [await raw(index, query) for query in queries]
            for query, found in zip(queries, answers[backend], strict=True):
                assert list((await raw(index, query, k=7)).items()) == list(found.items())[:7]
                assert sorted(found.values(), reverse=True) == list(found.values())
    assert sum(map(len, answers["memory"])) > 200
    for backend, theirs in answers.items():
        for one, other in zip(theirs, answers["memory"], strict=True):
            assert one == pytest.approx(other, rel=1e-9), backend


def _misspelled(word: str, rng: np.random.Generator) -> str:
    place = int(rng.integers(len(word)))
    edits = [word[:place] + word[place + 1 :], f"{word[:place]}z{word[place:]}", word]
    return edits[int(rng.integers(3))]


def file_of(folder: Path) -> str:
    """Return the chunk file in a folder."""
    return str(next(folder.rglob(file_name(vector_db()))))


# --- the vocabulary ---------------------------------------------------------------------------


async def test_the_vocabulary_follows_writes(tmp_path: Path) -> None:
    """A new word is found by a misspelled one at once; a word that is gone finds nothing, and does
    not take the place of one that is there."""

    async with opened(tmp_path, TEXTS) as index:
        assert list(await raw(index, "zebar")) == []
        await add(index, {"z": "zebra"})
        assert list(await raw(index, "zebar")) == ["z"]
        await index.delete_chunks(["z"])
        assert list(await raw(index, "zebar")) == []
        near = {f"n{letter}": f"{letter}sadle" for letter in "abcdef"}
        await add(index, near)
        assert "a" not in await raw(index, "sadle")
        await index.delete_chunks(list(near))
        assert next(iter(await raw(index, "sadle"))) == "a"
        await add(index, {"a": "replaced"})
        assert "a" not in await raw(index, "sadle")
        assert list(await raw(index, "replacde")) == ["a"]


async def test_the_vocabulary_is_there_after_a_restart(tmp_path: Path) -> None:
    """Opened anew, misspelled words find what they found before."""

    async with opened(tmp_path, TEXTS) as index:
        before = await raw(index, "sadle stemer")
    async with opened(tmp_path) as index:
        assert await raw(index, "sadle stemer") == before


WRITE = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.providers.vector_io.inline_backends import add, opened
from corral.api.chunks import Chunk
from corral.api.testing.indexes import PLAIN
async def main():
    async with opened("sqlite", Path(sys.argv[2]), **PLAIN) as index:
        await index.delete_chunks(["a"])
        await add(index, [Chunk(chunk_id="z", content="zebra")])
asyncio.run(main())
"""


async def test_the_vocabulary_follows_another_process(tmp_path: Path) -> None:
    """What another process has written is found, what it has deleted is not."""

    async with opened(tmp_path, TEXTS) as index:
        assert set(await raw(index, "sadle zebar")) == {"a", "b", "c"}
        command = [sys.executable, "-c", WRITE, str(ROOT), str(tmp_path)]
        await asyncio.to_thread(subprocess.run, command, check=True)
        assert set(await raw(index, "sadle zebar")) == {"z", "b", "c"}


async def test_the_vocabulary_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries between writes read nothing of it, and after a write only what is new.

    If this fails: each fuzzy query takes as long as reading all words, 0.2 s for 200,000."""
    read: list[list[str]] = []
    real = Vocabulary.add

    def spy(self: Vocabulary, terms: Any) -> None:
        read.append(list(terms))
        real(self, read[-1])

    async def scenario() -> None:
        async with opened(tmp_path, TEXTS) as index:
            for query in ("sadle", "stemer", "sadle"):
                await raw(index, query)
            await add(index, {"z": "zebra saddle"})
            await raw(index, "sadle")
            await index.delete_chunks(["z"])
            await raw(index, "sadle")

    monkeypatch.setattr(Vocabulary, "add", spy)
    await scenario()
    assert [len(words) for words in read] == [9, 1]
    assert read[1] == ["zebra"]


async def test_a_file_of_before_is_made_anew(tmp_path: Path) -> None:
    """A file whose keyword index has no vocabulary gets one when it is opened."""

    async with opened(tmp_path, TEXTS) as index:
        before = await raw(index, "sadle")
    with apsw.Connection(file_of(tmp_path)) as file:
        file.execute("DROP TABLE lexical_words")
        file.execute("UPDATE state SET value = value / 10 WHERE name = 'analyzer'")
    async with opened(tmp_path) as index:
        assert await raw(index, "sadle") == before


async def test_an_index_made_anew_is_followed(tmp_path: Path) -> None:
    """Another process rebuilds the keyword index; a copy of its words in memory misses none.

    If this fails: the numbers of the words begin again, and new words hide behind old numbers."""

    async with opened(tmp_path, TEXTS) as index:
        assert list(await raw(index, "zebar")) == []
        await index.delete_chunks(["a", "b", "c", "d"])
        with apsw.Connection(file_of(tmp_path)) as file:
            file.execute("UPDATE state SET value = value - 1 WHERE name = 'analyzer'")
        async with opened(tmp_path) as other:
            await add(other, {"z": "zebra"})
        assert list(await raw(index, "zebar")) == ["z"]
