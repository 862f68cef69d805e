"""inline::hashing: deterministic embeddings that share words and letters, never zero."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from corral.api.errors import NotFound
from corral.providers.embedding.hashing import embedder
from corral.providers.embedding.hashing.config import HashingConfig
from corral.providers.embedding.hashing.embedder import create, embed_text

ODD_TEXTS = [
    "",
    " ",
    "\n\t",
    "😀",
    "👩‍👩‍👧",
    "\ud800",
    "\0",
    "!",
    "_",
    "中文检索",
    "สวัสดี",
    "a" * 5000,
]


async def embed(texts: list[str], dimension: int = 256) -> NDArray[np.float32]:
    """Return the embeddings of documents by a provider of this dimension."""

    provider = create("hashing", HashingConfig(dimension=dimension), Path())
    return await (await provider.embedder("hashing")).embed_documents(texts)


@pytest.mark.parametrize("dimension", [1, 2, 3, 256])
async def test_every_text_has_a_unit_embedding(dimension: int) -> None:
    """No text gets a zero vector, however odd it is and however few places there are.

    If this fails: features that cancel out have to be replaced by one that cannot.
    """
    words = [f"w{i}" for i in range(300)]
    result = await embed([*ODD_TEXTS, *words, " ".join(words)], dimension)
    assert result.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(result, axis=1), 1.0, rtol=1e-6)


def test_embedding_is_pinned() -> None:
    """The embedding of a text never changes: its places and signs are these, in every version.

    If this fails: stored embeddings no longer match new ones. Undo the change of the hash.
    """
    expected = np.array([2, 4, 2, -1, -1, 2, 0, 0]) / np.sqrt(30)
    np.testing.assert_allclose(embed_text("Corral, corral", 8), expected, atol=1e-6)


def test_no_blob_is_remembered() -> None:
    """What is kept of a text for the next ones are its words and their trigrams, no long run.

    If this fails: 16,000 texts of base64 or Chinese take as much memory as all of them.
    """
    tracemalloc.start()
    try:
        for number in range(10):
            embed_text(f"{number}{'a' * 20_000}", 8)
        # Threads that earlier tests left behind allocate memory, too.
        own = tracemalloc.Filter(inclusive=True, filename_pattern=embedder.__file__)
        kept = tracemalloc.take_snapshot().filter_traces([own]).statistics("filename")
        assert sum(each.size for each in kept) < 100_000
    finally:
        tracemalloc.stop()


def test_another_process_agrees() -> None:
    """Another process, with another seed of Python's own hash, gives the same bytes."""
    code = (
        "import sys\n"
        "from corral.providers.embedding.hashing.embedder import embed_text\n"
        "sys.stdout.write(embed_text('the fence around the herd', 64).tobytes().hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {embed_text("the fence around the herd", 64).tobytes().hex()}


async def test_shared_words_are_similar() -> None:
    """Texts with common words, or common letters within a word, are closer than others."""
    query, same_words, same_letters, other = await embed(
        ["database index", "the index of a database", "databases indexing", "green tea ceremony"]
    )
    assert query @ same_words > 0.5
    assert query @ same_letters > 0.3
    assert abs(query @ other) < 0.2


async def test_case_forms_and_spaces_make_no_difference() -> None:
    """Case, compatibility forms and white space do not count."""
    result = await embed(["Straße  Ｋ9", "STRASSE\nk9"])
    np.testing.assert_array_equal(result[0], result[1])


async def test_order_shape_and_query() -> None:
    """Row i belongs to text i, none gives (0, dimension), and questions are embedded alike."""

    embedder = await create("h", HashingConfig(dimension=16), Path()).embedder("hashing")
    result = await embedder.embed_documents(["one", "two"])
    np.testing.assert_array_equal(result[1], await embedder.embed_query("two"))
    assert not np.array_equal(result[0], result[1])
    assert (await embedder.embed_documents([])).shape == (0, 16)


async def test_model_name_and_health() -> None:
    """The one model is `hashing`; another name is refused with the known one."""

    provider = create("h", HashingConfig(), Path())
    assert [(m.model, m.dimension) for m in provider.models()] == [("hashing", 256)]
    assert (await provider.health()).status == "OK"
    with pytest.raises(NotFound, match=r"'bge'.*Known: hashing"):
        await provider.embedder("bge")


@pytest.mark.parametrize("config", [{"dimension": 0}, {"dimension": 5000}, {"size": 3}])
def test_bad_config_is_refused(config: dict[str, int]) -> None:
    """A dimension out of range or an unknown key is refused."""
    with pytest.raises(ValidationError):
        HashingConfig.model_validate(config)
