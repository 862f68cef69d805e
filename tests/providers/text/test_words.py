"""The words of a text: as they are written, and each by itself."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.providers.text.analyzer import MAX_TERM_LENGTH, analyzer


@pytest.mark.parametrize(
    ("language", "query", "text", "words"),
    [
        ("english", "city", "Cities, CITY, the city and citizens. City!", "Cities CITY city City"),
        ("english", "city", "A city's city-hall, ci\u00adties", "city ci\u00adties"),
        ("english", "running", "She ran; she runs.", "runs"),
        ("english", "4711", "E-4711 and 4712", "4711"),
        ("english", "e4711", "E-4711 and E4711", "E-4711 E4711"),
        ("english", "e4711", "‘E-4711’ and -E-4711-", "E-4711"),
        ("english", "C++", "C++ and c++, not C#", "C C++ c c++"),
        ("english", "1102900", "from $1,102,900 to 1102900", "1,102,900 1102900"),
        ("english", "get user", "Call getUserById to get it.", "getUserById get"),
        ("english", "4be1f0c", "In 4be1f0c27a9d33e8", "4be1f0c27a9d33e8"),
        ("english", "🚀 €", "It is 🚀, for € 5", "🚀 €"),
        ("english", "café", "cafe cafe\u0301 CAFÉ", "cafe cafe\u0301 CAFÉ"),
        ("german", "Buch", "Die Bücher der Buchung", "Bücher"),
        ("french", "eau", "l'eau, l’EAU", "eau EAU"),
        ("russian", "книга", "Книги кни\u0301га", "Книги кни\u0301га"),
        ("turkish", "istanbul", "İstanbul'da, Istanbul", "İstanbul Istanbul"),
        ("hindi", "किताब", "किताबें", "किताबें"),
        ("arabic", "كتاب", "الكتاب", "الكتاب"),
        ("chinese", "数据", "大数据,数学", "数 数据 据"),
        ("chinese", "数据 iphone", "iPhone数据", "iPhone 数 数据 据"),
        ("japanese", "猫の話", "猫のはなし", "猫 猫の"),
        ("korean", "서울", "서울은", "서 서울 울"),
        ("thai", "ไทย", "ประเทศไทย", "ไท ไทย"),
        ("thai", "ไทย", "ประเทศไ\u200bทย", "ไ\u200bท ไ\u200bทย"),
        ("khmer", "ខ្មែរ", "ភាសា\u200bខ្មែ\u200bរ", "ខ្មែ ខ្មែ\u200bរ"),
    ],
)
def test_words_as_written(language: str, query: str, text: str, words: str) -> None:
    """Each word that the terms of a query come from, in its own spelling, once, in order.

    If this fails: an explanation's `matched_words` are not in the text, or miss what was found.
    """
    analyze = analyzer(language)
    assert analyze.words(text, analyze.terms(query)) == words.split()


@given(st.text(max_size=60), st.sampled_from(["english", "french", "chinese", "turkish", "thai"]))
def test_every_word_is_in_the_text(text: str, language: str) -> None:
    """Whatever the text, a word of it is a part of it, and has a term that was wanted."""
    analyze = analyzer(language)
    wanted = set(analyze.terms(text))
    for word in analyze.words(text, wanted):
        assert word in text
        assert wanted & set(analyze.terms(word))


def test_no_terms_and_blobs() -> None:
    """Without a term nothing is looked for, and a blob of data is no word."""
    assert analyzer("english").words("city", []) == []
    blob = "a" * (MAX_TERM_LENGTH + 1)
    assert analyzer("english").words(blob, analyzer("english").terms(blob)) == []


HARD = [
    "plain words, and E-4711 snake_case l'eau don't",
    "tabs\tand\nlines\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029 ends",
    "no\u00a0break \u1680 \u2000\u200a\u202f\u205f\u3000 spaces",
    "zero\u200bwidth so\u00adft a\u0000b \u0301accent e\u0301 \u00b4 \ufdfa",
    "İstanbul ISPARTA ılık i\u0307",
    "ﬁne ｆｕｌｌ ½ ² ™ ℠ Ⅷ",
    "東京都に住む 猫が好き ไทย ភាសា မြန်မာ 서울에서",
    "🇳🇴 👨‍👩‍👧 ❤️ \ud800 \u180e",
]


@pytest.mark.parametrize("language", ["english", "turkish", "french", "simple", "japanese"])
def test_terms_are_those_of_the_parts_between_white_space(language: str) -> None:
    """The memory of spellings changes no word: a text's words are those of its parts.

    If this fails: a rule of words looks across white space, and the terms of a word depend
    on whether all of its text is ASCII.
    """
    chance = random.Random(6)
    alphabet = "".join(HARD)
    wild = ["".join(chance.choices(alphabet, k=60)) for _ in range(400)]
    for text in [*HARD, *wild]:
        assert analyzer(language).analyze(text).words == list(analyzer(language)._folded(text))
