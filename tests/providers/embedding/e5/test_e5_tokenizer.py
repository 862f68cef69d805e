"""The tokens of inline::e5 are those of XLM-RoBERTa's vocabulary, as another library finds them."""

from __future__ import annotations

import random
import unicodedata

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from corral.providers.embedding.e5.tokenizer import MARKS, UNKNOWN, UnigramTokenizer
from corral.providers.embedding.e5.weights import ModelFile, model_file, read_model

TEXTS = [
    "Sheep need a shelter from the wind,  in winter.\n\n\tAnd hay.",
    "Die Verteidigung der Panthers gab nur 308 Punkte ab.",
    "黑豹队的防守只丢了 308分，在联赛中排名第六",
    "पैंथर्स की डिफ़ेन्स ने लीग में केवल 308 अंक गंवाए",
    "من أسس هذه الجامعة في القرن التاسع عشر؟",
    "½ cup, ﬁve ﬁgures, e\u0301te\u0301, full\u3000width and\u00a0no\u2028break",
    "def f(x): return x['a'] ** 2  # 😀 \x00\x0b\x85end",
    "",
    " \n ",
]


@pytest.fixture(scope="module")
def file() -> ModelFile:
    """The file of the model."""
    return read_model(model_file(None))


@pytest.fixture(scope="module")
def tokenizer(file: ModelFile) -> UnigramTokenizer:
    """The tokenizer of inline::e5."""
    return UnigramTokenizer(file.pieces, file.scores, file.characters)


@pytest.fixture(scope="module")
def other(file: ModelFile) -> Tokenizer:
    """The same vocabulary in the library `tokenizers`."""
    texts = [piece.decode() for piece in file.pieces]
    pieces = list(zip(texts, file.scores.tolist(), strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNKNOWN, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    return tokenizer


def random_texts(seed: int) -> list[str]:
    """Return texts of random characters of many scripts, and of random words."""
    chance = random.Random(seed)
    scripts = [(32, 0x24F), (0x370, 0x2FFF), (0x3000, 0xD7FF), (0x1F300, 0x1FAFF)]
    words = " ".join(TEXTS).split()
    texts = []
    for _ in range(300):
        texts.append("".join(chr(chance.randint(*chance.choice(scripts))) for _ in range(40)))
        texts.append(" ".join(chance.choices(words, k=40)))
    return texts


def test_tokens_are_those_of_another_library(
    file: ModelFile, tokenizer: UnigramTokenizer, other: Tokenizer
) -> None:
    """Ids and ends are equal, for texts in several languages and for random characters."""
    space = file.pieces.index("\u2581".encode())  # It has no end of its own.
    for text in TEXTS + random_texts(seed=1):
        clean = unicodedata.normalize("NFC", text).translate(file.characters).replace("\x85", " ")
        [encoding] = other.encode_batch([clean], add_special_tokens=False)
        assert tokenizer.ids([text]) == [encoding.ids]
        ends = list(zip(encoding.ids, tokenizer.ends(clean), encoding.offsets, strict=True))
        assert all(mine == end for token, mine, (_, end) in ends if token != space)


def test_marks_in_a_text_are_text(tokenizer: UnigramTokenizer) -> None:
    """A document that quotes the model's marks cannot end itself, or hide a word as padding."""
    [found] = tokenizer.ids(["<s> one </s> <pad> two <unk>"])
    assert not set(found) & set(MARKS)
