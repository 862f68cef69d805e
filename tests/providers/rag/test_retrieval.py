"""Chunks are embedded where they must be, and several vector DBs are searched."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.errors import (
    ContractViolation,
    InvalidEmbedding,
    InvalidFilter,
    InvalidRequest,
    NotFound,
    Unavailable,
    UnsupportedMode,
)
from corral.providers.ingestion.storing import EMBED_BATCH, store
from corral.providers.rag.search import Retrieval
from corral.providers.rag.selection import ContextHit

from .fake_library import DIMENSION, FakeLibrary, SharedWordsEngine, WordEmbedder, embedding_of


def chunk(content: str, **fields: Any) -> Chunk:
    """Return a chunk whose id is its text, unless another is given."""
    return Chunk.model_validate({"content": content, "chunk_id": content, **fields})


async def stored(library: FakeLibrary, **texts: list[str]) -> Retrieval:
    """Store chunks of these texts in each vector DB and return the retrieval."""
    retrieval = Retrieval(library)
    for name, contents in texts.items():
        await store(retrieval.library, name, [chunk(content) for content in contents])
    return retrieval


def ids(hits: list[ContextHit]) -> list[tuple[str, str]]:
    """Return (vector DB, chunk) of each hit."""
    return [(each.vector_db_id, each.hit.chunk.chunk_id) for each in hits]


# --- store -----------------------------------------------------------------------------------


async def test_only_chunks_without_an_embedding_are_embedded() -> None:
    """Each text once, and a mixture keeps its order."""
    library = FakeLibrary()
    own = [1.0] + [0.0] * (DIMENSION - 1)
    chunks = [chunk("grass"), chunk("hay", embedding=own), chunk("straw")]
    await store(library, "db", chunks)
    rows = library.engines["db"].rows
    assert library.embedders["words"].documents == ["grass", "straw"]
    assert rows["hay"].tolist() == own
    for text in ("grass", "straw"):
        assert rows[text] @ embedding_of(text) == pytest.approx(np.linalg.norm(embedding_of(text)))


async def test_chunks_that_bring_embeddings_need_no_embedder() -> None:
    """A vector DB whose model is away takes them."""
    library = FakeLibrary()
    library.embedders.clear()
    await store(library, "db", [chunk("hay", embedding=[1.0] * DIMENSION)])
    assert library.engines["db"].chunks.keys() == {"hay"}


async def test_texts_are_stored_and_embedded_clean() -> None:
    """Invisible characters go before embedding; the chunk given is not changed."""
    library = FakeLibrary()
    given = chunk("gr\u200bass\u0007", chunk_id="c")
    await store(library, "db", [given])
    assert library.embedders["words"].documents == ["grass"]
    assert library.engines["db"].chunks["c"].content == "grass"
    assert given.content == "gr\u200bass\u0007"


async def test_a_chunk_without_visible_text_is_refused() -> None:
    """The error names the chunk; nothing is stored."""
    library = FakeLibrary()
    with pytest.raises(InvalidRequest) as caught:
        await store(library, "db", [chunk("hay"), chunk("\u200b ")])
    assert caught.value.field == "chunks[1].content"
    assert library.engines["db"].writes == 0


async def test_an_embedding_of_another_dimension_is_refused() -> None:
    """The error names the chunk and both dimensions, and no text was embedded for nothing."""
    library = FakeLibrary()
    with pytest.raises(InvalidEmbedding, match=r"3 dimensions.* 16") as caught:
        await store(library, "db", [chunk("a"), chunk("b", embedding=[1, 2, 3])])
    assert caught.value.field == "chunks[1].embedding"
    assert library.embedders["words"].documents == []


async def test_many_texts_are_embedded_in_batches_and_written_at_once() -> None:
    """Batches let other requests have their turn; the write is one."""
    library = FakeLibrary()
    await store(library, "db", [chunk(f"c{n}") for n in range(EMBED_BATCH + 1)])
    assert library.embedders["words"].batches == [EMBED_BATCH, 1]
    assert library.engines["db"].writes == 1


async def test_a_failing_embedder_leaves_nothing_stored() -> None:
    """Not even the batches before the failure."""
    library = FakeLibrary()
    library.embedders["words"].broken = 2
    with pytest.raises(Unavailable):
        await store(library, "db", [chunk(f"c{n}") for n in range(EMBED_BATCH + 1)])
    assert library.engines["db"].writes == 0


async def test_an_embedder_that_returns_another_shape_is_a_defect() -> None:
    """It is said so, and not taken for the caller's fault."""

    class Short(WordEmbedder):
        async def embed_documents(self, texts: Any) -> NDArray[np.float32]:
            return np.zeros((len(texts), 3), dtype=np.float32)

    library = FakeLibrary()
    library.embedders["words"] = Short("words")
    with pytest.raises(ContractViolation, match=r"\(1, 3\).*\(1, 16\)"):
        await store(library, "db", [chunk("hay")])


async def test_documents_are_replaced_in_the_same_write() -> None:
    """Their other chunks are gone, those of other documents are not."""
    library = FakeLibrary()
    retrieval = Retrieval(library)
    old = [chunk("a", metadata={"document_id": "x"}), chunk("b", metadata={"document_id": "y"})]
    await store(retrieval.library, "db", old)
    new = [chunk("c", metadata={"document_id": "x"})]
    await store(retrieval.library, "db", new, replace_documents=["x"])
    assert library.engines["db"].chunks.keys() == {"b", "c"}
    assert library.engines["db"].writes == 2


# --- search in one vector DB -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["vector", "hybrid", None])
async def test_a_query_is_embedded_once(mode: str | None) -> None:
    """In vector and hybrid mode, by the request or by the registration."""
    library = FakeLibrary()
    retrieval = await stored(library, db=["grass grows", "hay is dry"])
    found = await retrieval.search("db", "dry hay", k=1, mode=mode)
    assert [hit.chunk.content for hit in found.hits] == ["hay is dry"]
    assert library.embedders["words"].queries == ["dry hay"]


async def test_a_keyword_search_embeds_nothing() -> None:
    """By the request's mode, or the registration's."""
    for settings, mode in (({}, "keyword"), ({"search_mode": "keyword"}, None)):
        library = FakeLibrary("db", **settings)
        retrieval = await stored(library, db=["grass grows", "hay is dry"])
        found = await retrieval.search("db", "hay", k=5, mode=mode)
        assert found.chunks == [library.engines["db"].chunks["hay is dry"]]
        assert library.embedders["words"].queries == []


@pytest.mark.parametrize("query", ["", " \n\t", "\u200b", "\0", "\u3000"])
@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
async def test_a_blank_query_is_refused(query: str, mode: str) -> None:
    """In every mode, before it is embedded or asked of the index; `queries` may say more.

    If this fails: a client that loses its question hears that nothing was found.
    """
    library = FakeLibrary()
    retrieval = await stored(library, db=["grass"])
    with pytest.raises(
        InvalidRequest, match=r"The question is empty.*a question or keywords"
    ) as caught:
        await retrieval.search("db", query, k=5, mode=mode)
    assert caught.value.field == "query"
    assert library.embedders["words"].queries == []
    assert library.engines["db"].queries == []
    found = await retrieval.search("db", query, k=5, mode=mode, queries=["grass"])
    assert len(found.hits) == 1


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"k": 0}, InvalidRequest),
        ({"k": 1001}, InvalidRequest),
        ({"mode": "semantic"}, UnsupportedMode),
        ({"mode": ""}, UnsupportedMode),
        ({"score_threshold": 2}, InvalidRequest),
        ({"ranker": {"type": "best"}}, InvalidRequest),
        ({"filters": {"type": "like", "key": "a", "value": "b"}}, InvalidFilter),
    ],
)
@pytest.mark.parametrize("query", ["grass", ""])
async def test_a_bad_argument_is_refused_before_anything_is_embedded(
    bad: dict[str, Any], error: type[Exception], query: str
) -> None:
    """Also with a blank query, so that a mistake is not hidden by it."""
    library = FakeLibrary()
    with pytest.raises(error):
        await Retrieval(library).search("db", query, **{"k": 5, **bad})
    assert library.embedders["words"].queries == []


async def test_arguments_reach_the_index() -> None:
    """Threshold, filters and embeddings do what they say."""
    library = FakeLibrary()
    retrieval = Retrieval(library)
    chunks = [chunk("hay a", metadata={"farm": 1}), chunk("hay b", metadata={"farm": 2})]
    await store(retrieval.library, "db", chunks)
    found = await retrieval.search(
        "db",
        "hay",
        k=1,
        filters={"type": "eq", "key": "farm", "value": 2},
        include_embeddings=True,
    )
    assert [c.content for c in found.chunks] == ["hay b"]
    assert len(found.chunks[0].embedding or []) == DIMENSION
    exact = await retrieval.search("db", "hay a", k=5, score_threshold=0.9999, mode="vector")
    assert [c.content for c in exact.chunks] == ["hay a"]


# --- search in several -----------------------------------------------------------------------


async def test_one_vector_db_keeps_its_scores() -> None:
    """Also where it is named twice."""
    library = FakeLibrary()
    retrieval = await stored(library, db=["hay", "grass"])
    alone = (await retrieval.search("db", "hay", k=5)).scores
    twice = (await retrieval.search_many(["db", "db"], "hay", k=5)).hits
    assert [each.hit.score for each in twice] == alone
    assert len(library.engines["db"].queries) == 4  # two legs each


async def test_several_vector_dbs_of_one_model_are_one_list() -> None:
    """Hits are in the order of their scores, whatever vector DB they come from.

    If this fails: lists that have nothing in common are merged by rank, so the best of a vector DB
    that answers nothing is as good as the answer. `test_corpus.py` has the rest.
    """
    library = FakeLibrary("a", "b", search_mode="vector")
    retrieval = await stored(library, b=["hay", "grass grows"], a=["hay grass", "corn"])
    found = (await retrieval.search_many(["b", "a"], "hay", k=3)).hits
    assert ids(found) == [("b", "hay"), ("a", "hay grass"), ("b", "grass grows")]
    assert [each.rank for each in found] == [1, 1, 2]
    own = (await retrieval.search("a", "hay", k=1)).scores[0]
    assert found[1].hit.score == found[1].vector_db_score == own


async def test_the_order_of_vector_dbs_does_not_matter() -> None:
    """Equal input, equal output, in whatever order they are named."""
    library = FakeLibrary("a", "b", "c")
    retrieval = await stored(library, a=["hay", "x"], b=["hay", "y"], c=["hay", "z"])
    orders = (["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a", "b"])
    found = [ids((await retrieval.search_many(names, "hay", k=6)).hits) for names in orders]
    assert found[0] == found[1] == found[2]


async def test_equal_chunk_ids_in_two_vector_dbs_stay_two_hits() -> None:
    """A chunk is itself within its vector DB only."""
    library = FakeLibrary("a", "b")
    retrieval = await stored(library, a=["hay"], b=["hay"])
    found = (await retrieval.search_many(["a", "b"], "hay", k=5)).hits
    assert ids(found) == [("a", "hay"), ("b", "hay")]


async def test_the_threshold_applies_to_a_vector_dbs_own_score() -> None:
    """And not to one that weights or confidence have changed.

    If this fails: a threshold of 0.9 empties answers from several vector DBs.
    """
    library = FakeLibrary("a", "b", search_mode="vector")
    retrieval = await stored(library, a=["hay", "corn"], b=["hay", "corn"])
    found = (await retrieval.search_many(["a", "b"], "hay", k=5, score_threshold=0.99)).hits
    assert ids(found) == [("a", "hay"), ("b", "hay")]


async def test_each_model_embeds_the_query_once() -> None:
    """Whatever the number of vector DBs; models of keyword searches not at all."""
    library = FakeLibrary("a", "b")
    for name, settings in (
        ("c", {"embedding_model": "other"}),
        ("d", {"embedding_model": "unused", "search_mode": "keyword"}),
    ):
        library.register(name, **settings)
    library.embedders["other"] = WordEmbedder("other")
    await Retrieval(library).search_many(["a", "b", "c", "d"], "hay", k=5)
    assert library.embedders["words"].queries == ["hay"]
    assert library.embedders["other"].queries == ["hay"]


async def test_each_vector_db_is_searched_in_its_own_way() -> None:
    """Mode and ranker of the registration hold where the request names none."""
    library = FakeLibrary("words_only", search_mode="keyword")
    library.register("meaning_only", search_mode="vector")
    await Retrieval(library).search_many(["words_only", "meaning_only"], "hay", k=5)
    assert library.engines["words_only"].queries == [("keyword", "hay")]
    assert library.engines["meaning_only"].queries == [("vector", "")]


async def test_an_unknown_vector_db_is_named_before_any_search() -> None:
    """One wrong name among good ones: which one, and nothing was embedded or searched."""
    library = FakeLibrary("a", "b")
    with pytest.raises(NotFound, match="nowhere"):
        await Retrieval(library).search_many(["a", "nowhere", "b"], "hay", k=5)
    assert library.embedders["words"].queries == []
    assert library.engines["a"].queries == []


async def test_searches_run_at_once_and_a_failure_ends_them() -> None:
    """All start before one ends; the first failure is the answer and cancels the others."""
    library = FakeLibrary("slow", "broken")
    events: list[str] = []
    started = asyncio.Event()

    class Slow(SharedWordsEngine):
        async def search_vector(self, *args: Any) -> Any:
            events.append("started")
            started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                events.append("cancelled")
                raise

    class Broken(SharedWordsEngine):
        async def search_vector(self, *args: Any) -> Any:
            await started.wait()
            raise Unavailable("the backend is away")

    for name, kind in (("slow", Slow), ("broken", Broken)):
        library.use(kind(library.vector_dbs[name]))

    with pytest.raises(Unavailable):
        await Retrieval(library).search_many(["slow", "broken"], "hay", k=5, mode="vector")
    await asyncio.sleep(0)
    assert events == ["started", "cancelled"]
