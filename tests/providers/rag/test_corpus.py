"""Several vector DBs whose scores compare are searched as one, and others merged by confidence."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.options import RetrievalOptions
from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.rag.search import Retrieval, Retrieved
from corral.providers.stack.stack import Stack

PROVIDERS = ("sqlite", "faiss", "memory")
EXACT = 1e-9
MODES = ("vector", "keyword", "hybrid")
TEXT = (
    "hay straw oats rye barley clover sheep goat cow horse barn fence gate field stream mill grain "
    "seed plough wool milk cheese butter bread flour yeast salt honey apple pear"
)
WORDS = TEXT.split()


def config(*providers: str) -> RunConfig:
    """Return a configuration with these inline providers and two embedders."""
    return RunConfig.model_validate(
        {
            "providers": {
                "vector_io": [
                    {"provider_id": name, "provider_type": f"inline::{name}"} for name in providers
                ],
                "embedding": [
                    {
                        "provider_id": "hashing",
                        "provider_type": "inline::hashing",
                        "config": {"dimension": 64},
                    },
                    {"provider_id": "minilm", "provider_type": "inline::minilm"},
                ],
            },
            "default_embedding_model": "hashing",
        }
    )


@asynccontextmanager
async def opened(folder: Path, *providers: str) -> AsyncIterator[Stack]:
    """Open a stack and close it in the end."""
    stack = Stack(config(*(providers or PROVIDERS)), folder)
    try:
        yield stack
    finally:
        await stack.close()


async def made(
    stack: Stack, name: str, texts: Mapping[str, str], provider: str = "memory", **settings: Any
) -> None:
    """Register a vector DB and store a chunk for each id and text."""
    registration = {"embedding_model": "hashing", **settings}
    await stack.register(
        VectorDBRegistration(vector_db_id=name, provider_id=provider, **registration)
    )
    chunks = [
        Chunk(
            chunk_id=chunk_id,
            content=text,
            metadata={"even": number % 2 == 0, "document_id": f"d{number % 9}"},
            acl=["user:ann"] if number % 3 == 0 else None,
        )
        for number, (chunk_id, text) in enumerate(texts.items())
    ]
    await store(stack, name, chunks)


def corpus(seed: int, size: int) -> dict[str, str]:
    """Return texts of 3 to 30 words, common and rare ones, some of them twice."""
    chosen = random.Random(seed)
    chances = [1 / (place + 1) for place in range(len(WORDS))]
    texts = {
        f"c{n:03}": " ".join(chosen.choices(WORDS, chances, k=chosen.randint(3, 30)))
        for n in range(size)
    }
    for n in range(0, size, 10):
        texts[f"c{n:03}"] = texts[f"c{(n + 5) % size:03}"]
    return texts


def split(texts: Mapping[str, str], parts: int, seed: int | None) -> list[dict[str, str]]:
    """Return the texts in blocks, or with a seed in random parts."""
    ids = list(texts)
    if seed is not None:
        random.Random(seed).shuffle(ids)
    bounds = [len(ids) * part // parts for part in range(parts + 1)]
    return [{i: texts[i] for i in ids[start:end]} for start, end in pairwise(bounds)]


def answer(found: Retrieved) -> list[tuple[str, Any]]:
    """Return (chunk id, about the score) of each hit."""
    return [
        (each.hit.chunk.chunk_id, pytest.approx(each.hit.score, abs=EXACT)) for each in found.hits
    ]


async def numbered(stack: Stack, texts: Sequence[Mapping[str, str]], **settings: Any) -> list[str]:
    """Make vector DBs that take turns on the providers; a chunk keeps the metadata it has alone."""
    names = []
    for number, some in enumerate(texts):
        name, provider = f"part{number}", PROVIDERS[number % len(PROVIDERS)]
        registration = {"embedding_model": "hashing", **settings}
        await stack.register(
            VectorDBRegistration(vector_db_id=name, provider_id=provider, **registration)
        )
        await store(stack, name, [whole_chunk(i, text) for i, text in some.items()])
        names.append(name)
    return names


def whole_chunk(chunk_id: str, text: str) -> Chunk:
    """Return a chunk whose metadata and acl depend on its id alone."""
    number = int(chunk_id[1:])
    return Chunk(
        chunk_id=chunk_id,
        content=text,
        metadata={"even": number % 2 == 0, "document_id": f"d{number % 9}"},
        acl=["user:ann"] if number % 3 == 0 else None,
    )


OPTIONS: list[dict[str, Any]] = [
    {},
    {"ranker": {"type": "rrf"}},
    {"ranker": {"type": "weighted", "alpha": 0.4, "normalization": "min_max"}},
    {"ranker": {"type": "max"}},
    {"filters": {"type": "eq", "key": "even", "value": True}},
    {"rerank": {"type": "bm25"}},
    {"rerank": {"type": "mmr"}},
    {"queries": ["milk and cheese"]},
    {"query_syntax": "web"},
    {"cutoff": "gap"},
    {"score_threshold": 0.6},
    {"explain": True},
]


@pytest.mark.parametrize("seed", [None, 3], ids=["block", "random"])
async def test_the_answer_is_that_of_one_vector_db(tmp_path: Path, seed: int | None) -> None:
    """120 chunks over seven vector DBs on three providers: hits, scores and confidence of one.

    If this fails in keyword mode: the statistics are not those of all vector DBs. If only in hybrid
    mode: the legs are fused before they are merged, or a leg is cut too early.
    """
    texts = corpus(seed=1, size=120)
    async with opened(tmp_path) as stack:
        names = await numbered(stack, split(texts, 7, seed))
        await stack.register(VectorDBRegistration(vector_db_id="one", embedding_model="hashing"))
        await store(stack, "one", [whole_chunk(i, text) for i, text in texts.items()])
        retrieval = Retrieval(stack)
        for mode in MODES:
            for options in OPTIONS:
                for question in ("honey salt", "sheep in the barn", "rye -bread", "nothing known"):
                    one = await retrieval.search_many(["one"], question, k=9, mode=mode, **options)
                    all_ = await retrieval.search_many(names, question, k=9, mode=mode, **options)
                    assert answer(all_) == [
                        (each.hit.chunk.chunk_id, each.hit.score) for each in one.hits
                    ], (mode, options, question)
                    assert all_.evidence.confidence == pytest.approx(one.evidence.confidence)
                    assert all_.reason == one.reason


async def test_fuzzy_words_are_found_in_all(tmp_path: Path) -> None:
    """A misspelled word is as common as in all vector DBs together."""
    texts = corpus(seed=2, size=60)
    async with opened(tmp_path) as stack:
        names = await numbered(stack, split(texts, 3, None))
        await stack.register(VectorDBRegistration(vector_db_id="one", embedding_model="hashing"))
        await store(stack, "one", [whole_chunk(i, text) for i, text in texts.items()])
        for mode in ("keyword", "hybrid"):
            one, several = [
                await Retrieval(stack).search_many(
                    some, "chese and buter", k=8, mode=mode, fuzzy=True
                )
                for some in (["one"], names)
            ]
            assert one.hits
            assert answer(several) == [(x.hit.chunk.chunk_id, x.hit.score) for x in one.hits]


async def test_all_of_the_best_may_be_in_one(tmp_path: Path) -> None:
    """Of five vector DBs one holds all good chunks: nothing of it is missed.

    If this fails: each vector DB is asked for its share of the candidates, and not again for all.
    """
    good = {f"c{n:03}": f"honey {' '.join(WORDS[: n % 12])}" for n in range(150)}
    others = [
        {f"c{n:03}": "barn fence gate" for n in range(200 + 30 * part, 230 + 30 * part)}
        for part in range(4)
    ]
    async with opened(tmp_path) as stack:
        names = await numbered(stack, [good, *others])
        await stack.register(VectorDBRegistration(vector_db_id="one", embedding_model="hashing"))
        every = good | {i: text for some in others for i, text in some.items()}
        await store(stack, "one", [whole_chunk(i, text) for i, text in every.items()])
        for mode in MODES:
            for k in (5, 60):
                one, several = [
                    await Retrieval(stack).search_many(some, "honey", k=k, mode=mode)
                    for some in (["one"], names)
                ]
                assert answer(several) == [(x.hit.chunk.chunk_id, x.hit.score) for x in one.hits]


async def test_a_reader_gets_what_one_vector_db_shows(tmp_path: Path) -> None:
    """Hidden chunks are in no answer, and no confidence tells of words in them.

    If this fails: statistics or a share of the greatest score are told to somebody who does not
    see every chunk.
    """
    texts = corpus(seed=4, size=90)
    ann, ben = (Principal(user=user, role=Role.READER) for user in ("ann", "ben"))
    async with opened(tmp_path) as stack:
        names = await numbered(stack, split(texts, 4, 5), default_acl=["tenant:*"])
        registration = VectorDBRegistration(
            vector_db_id="one", embedding_model="hashing", default_acl=["tenant:*"]
        )
        await stack.register(registration)
        await store(stack, "one", [whole_chunk(i, text) for i, text in texts.items()])
        for who in (ann, ben):
            retrieval = Retrieval(stack.for_principal(who))
            for mode in MODES:
                one, several = [
                    await retrieval.search_many(some, "hay goat honey", k=20, mode=mode)
                    for some in (["one"], names)
                ]
                assert answer(several) == [(x.hit.chunk.chunk_id, x.hit.score) for x in one.hits]
                assert several.evidence.keyword_share is None
                hidden = [i for i, _ in answer(several) if int(i[1:]) % 3 == 0]
                assert bool(hidden) == (who is ann)


async def test_words_of_a_vector_db_that_is_hidden_play_no_part(tmp_path: Path) -> None:
    """Searched beside a vector DB in which a reader sees nothing, another answers as alone.

    If this fails: scores tell how common a word is in a vector DB that only others may read.
    """
    async with opened(tmp_path) as stack:
        await made(stack, "open", {"a": "hay and straw", "b": "oats"}, default_acl=["tenant:*"])
        secret = {f"s{n}": f"hay {WORDS[n]}" for n in range(1, 20)}
        registration = {"embedding_model": "hashing", "default_acl": ["group:sales"]}
        await stack.register(VectorDBRegistration(vector_db_id="closed", **registration))
        chunks = [Chunk(chunk_id=i, content=text) for i, text in secret.items()]
        await store(stack, "closed", chunks)
        reader = Retrieval(stack.for_principal(Principal(user="ben", role=Role.READER)))
        for mode in MODES:
            alone, both = [
                await reader.search_many(some, "hay oats", k=5, mode=mode)
                for some in (["open"], ["open", "closed"])
            ]
            assert answer(both) == [(x.hit.chunk.chunk_id, x.hit.score) for x in alone.hits]


async def test_what_does_not_compare_is_merged_by_confidence(tmp_path: Path) -> None:
    """Another model: a score is multiplied by the confidence of the search that found it.

    A question that one vector DB answers and the other does not has the answer on top.
    If this fails: lists are merged by rank, so that the best of the wrong one is as good.
    """
    async with opened(tmp_path) as stack:
        await made(stack, "keys", {"a": "rotate keys every month", "b": "a key opens a gate"})
        sheep = {"c": "sheep graze on the hill", "d": "a goat eats hay"}
        await made(stack, "sheep", sheep, embedding_model="all-MiniLM-L6-v2")
        retrieval = Retrieval(stack)
        for mode in ("hybrid", "vector"):
            both = await retrieval.search_many(["sheep", "keys"], "rotate keys", k=4, mode=mode)
            alone = {
                name: await retrieval.search_many([name], "rotate keys", k=4, mode=mode)
                for name in ("sheep", "keys")
            }
            assert both.hits[0].hit.chunk.chunk_id == "a"
            if mode == "vector":
                expected = {
                    each.hit.chunk.chunk_id: each.hit.score * (found.evidence.confidence or 0)
                    for found in alone.values()
                    for each in found.hits
                }
                found = {each.hit.chunk.chunk_id: each.hit.score for each in both.hits}
                assert found == pytest.approx(expected)
            own = {each.hit.chunk.chunk_id: each.vector_db_score for each in both.hits}
            assert all(score is not None and 0 <= score <= 1 for score in own.values())
            ranked = [each.hit.score for each in both.hits]
            assert ranked == sorted(ranked, reverse=True)


async def test_keyword_scores_of_two_models_compare(tmp_path: Path) -> None:
    """In keyword mode a model plays no part: two vector DBs of different models are one."""
    async with opened(tmp_path) as stack:
        await made(stack, "a", {"x": "hay and straw", "y": "hay hay hay"})
        await made(stack, "b", {"z": "hay"}, provider="sqlite", embedding_model="all-MiniLM-L6-v2")
        await made(stack, "one", {"x": "hay and straw", "y": "hay hay hay", "z": "hay"})
        one, several = [
            await Retrieval(stack).search_many(some, "hay straw", k=5, mode="keyword")
            for some in (["one"], ["a", "b"])
        ]
        assert answer(several) == [(x.hit.chunk.chunk_id, x.hit.score) for x in one.hits]


async def test_another_analyzer_is_another_corpus(tmp_path: Path) -> None:
    """German and English terms do not compare: each is ranked alone, and merged by confidence.

    If this fails: the statistics of two analyzers are added up, or their legs merged.
    """
    async with opened(tmp_path) as stack:
        await made(stack, "en", {"a": "the barn is full of hay", "b": "hay", "x": "straw"})
        await made(stack, "de", {"c": "Heu", "d": "hay", "e": "Stroh"}, language="german")
        retrieval = Retrieval(stack)
        both = await retrieval.search_many(["de", "en"], "hay", k=5, mode="keyword")
        expected: dict[str, float] = {}
        for name in ("en", "de"):
            alone = await retrieval.search_many([name], "hay", k=5, mode="keyword")
            confidence = alone.evidence.confidence
            assert confidence is not None
            expected |= {x.hit.chunk.chunk_id: x.hit.score * confidence for x in alone.hits}
        assert set(expected) == {"a", "b", "d"}
        found = {each.hit.chunk.chunk_id: each.hit.score for each in both.hits}
        assert found == pytest.approx(expected)


async def test_the_ranker_that_most_register_fuses_all(tmp_path: Path) -> None:
    """In any order of the request, with a note; a ranker that the request names wins, without one.

    If this fails: two rankers put scores of two scales into one list, or nobody is told.
    """
    texts = corpus(seed=6, size=45)
    rrf, weighted = {"type": "rrf"}, {"type": "weighted", "alpha": 0.9}
    async with opened(tmp_path) as stack:
        names = []
        for number, some in enumerate(split(texts, 5, 1)):
            names.append(f"part{number}")
            await made(stack, names[-1], some, ranker=weighted if number in (0, 4) else rrf)
        retrieval = Retrieval(stack)
        named = await retrieval.search_many(names, "hay and honey", k=9, ranker=rrf)
        assert named.notes == []
        for order in (names, names[::-1]):
            found = await retrieval.search_many(order, "hay and honey", k=9)
            assert answer(found) == [(x.hit.chunk.chunk_id, x.hit.score) for x in named.hits]
            [note] = found.notes
            assert "rrf, as registered with 'part1'" in note


async def test_weights_multiply_scores(tmp_path: Path) -> None:
    """A score is multiplied by its vector DB's weight relative to the largest, before the cut.

    If this fails: the k best are chosen before the weights count, so a heavy vector DB whose hits
    are a little worse is not in the answer.
    """
    texts = {f"c{n:03}": f"hay {WORDS[n]}" for n in range(1, 13)}
    async with opened(tmp_path) as stack:
        await made(stack, "light", {f"l{i}": text for i, text in texts.items()})
        await made(stack, "heavy", {f"h{i}": f"{text} gate" for i, text in texts.items()})
        retrieval = Retrieval(stack)
        plain = await retrieval.search_many(["light", "heavy"], "hay", k=6, mode="keyword")
        assert {each.vector_db_id for each in plain.hits} == {"light"}
        weighted = await retrieval.search_many(
            ["light", "heavy"], "hay", k=6, mode="keyword", weights={"heavy": 50}
        )
        assert {each.vector_db_id for each in weighted.hits} == {"heavy"}
        assert [each.hit.score for each in weighted.hits] == [
            each.vector_db_score for each in weighted.hits
        ]


async def test_steps_say_what_was_searched_together(tmp_path: Path) -> None:
    """Each vector DB has the steps of the search that it was part of."""
    async with opened(tmp_path) as stack:
        for name in ("a", "b"):
            await made(stack, name, {f"{name}1": "hay", f"{name}2": "straw"})
        options = RetrievalOptions(explain=True)
        found = await Retrieval(stack).search_many(["a", "b"], "hay", k=5, options=options)
        assert list(found.steps) == ["a", "b"]
        assert found.steps["a"] == found.steps["b"]
        assert "2 vector DBs as one" in found.steps["a"][0].detail
