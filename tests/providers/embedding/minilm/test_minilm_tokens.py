"""The model's tokenizer counts whole texts for whoever has to keep a budget."""

from __future__ import annotations

import pytest

from corral.providers.embedding._local.embedder import LocalEmbedder
from corral.providers.embedding.minilm.weights import MAX_TOKENS
from corral.providers.ingestion.split.chunking import window_of
from corral.providers.ingestion.split.splitting import split
from corral.providers.text.tokens import own_tokenizer


def ends(embedder: LocalEmbedder, text: str) -> list[int]:
    """Return where the tokens of a text end."""
    assert embedder.tokenizer is not None
    return list(embedder.tokenizer.token_ends(text))


def test_tokens_are_the_models_without_its_marks(embedder: LocalEmbedder) -> None:
    """`torchtune` is torch, tu, ne; positions are characters, surrogates count as one."""
    assert ends(embedder, "torchtune!") == [5, 7, 9, 10]
    assert ends(embedder, "a\ud800 😀 b")[-1] == 6
    assert ends(embedder, "") == ends(embedder, " \n") == []


def test_counting_does_not_stop_where_embedding_does(embedder: LocalEmbedder) -> None:
    """1,000 words are 1,000 tokens, though the model reads 256 of them.

    If this fails: a context would exceed its budget without limit.
    """
    assert MAX_TOKENS == 256
    assert ends(embedder, "hay " * 1000) == list(range(3, 4000, 4))


def test_a_cut_is_within_the_limit(embedder: LocalEmbedder) -> None:
    """Words are cut between tokens, never inside one."""
    assert embedder.tokenizer is not None
    counter = own_tokenizer(embedder.tokenizer)
    assert [counter.cut("torchtune grazes", n) for n in range(5)] == [
        "", "torch", "torchtu", "torchtune", "torchtune graz",
    ]  # fmt: skip


GERMAN = "Der morsche Weidezaun gehört ausgebessert. Rindern schmecken Löwenzahn und Klee. "


@pytest.mark.parametrize("markdown", [False, True])
def test_default_chunks_are_read_whole(embedder: LocalEmbedder, markdown: bool) -> None:
    """The default size is bounded by the model's own count, too: 256 without its two marks.

    256 tokens of cl100k are more word pieces than that in German and in code.
    If this fails: vector search does not know the end of a chunk.
    """
    window, tokenizer = window_of(embedder), embedder.tokenizer
    assert window is not None
    assert tokenizer is not None
    assert window.size == 254
    code = "\n".join(f"    self._unrelated_{n} = make_index(vector_db_id={n})" for n in range(300))
    for text in (GERMAN * 40, code, "the cow grazes. " * 500):
        plain = split(text, chunk_size=256, overlap=32, markdown=markdown)
        assert text.startswith("the") or not all(window.holds(piece.text) for piece in plain)
        bound = split(text, chunk_size=256, overlap=32, markdown=markdown, window=window)
        assert all(window.holds(piece.text) and piece.tokens <= 256 for piece in bound)
        assert len(tokenizer.token_ends(bound[0].text)) > 120
