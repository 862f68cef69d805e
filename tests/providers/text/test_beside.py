"""Terms beside the words: what finds what, what stays as it was, and that no text can do harm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from corral.api.chunks import Chunk
from corral.api.hits import KeywordLeg
from corral.api.invisible import clean_text
from corral.api.vector_dbs import LANGUAGES
from corral.providers.rerank.bm25 import candidate_bm25
from corral.providers.text.analyzer import Analyzer, analyzer
from corral.providers.text.fields import BESIDE_WEIGHT, chunk_terms
from corral.providers.text.similar import is_word
from corral.providers.vector_io.memory.provider import memory_engine

from ..vector_io.registrations import registration

NAMES = sorted(set(LANGUAGES.values()))
# Texts that hold more of what the rules look at than arbitrary text does.
odd_text = st.text(
    st.sampled_from(
        "aBcD zX09012345.,'’-_/&+#@$%*=<>\u00a0\u202f−±€§½🚀🏽👩\u200d\ufe0f🇳🇴中\0\u200b"
    )
)


def first(texts: list[str], question: str, language: str = "english") -> str | None:
    """Return the first hit among some texts."""
    chunks = [Chunk(content=text) for text in texts]
    db = registration("memory", language=language)
    scores = candidate_bm25(question, chunks, db, k1=1.2, b=0.75).raw_scores
    return texts[int(scores.argmax())] if scores.any() else None


@pytest.mark.parametrize(
    ("question", "text", "others"),
    [
        ("C++", "modern C++ in depth", ["C# in a nutshell", "C is small"]),
        ("C++17", "what C++17 added", ["what C++ lacks in 17 ways"]),
        ("C/C++", "a C/C++ compiler", ["a C# compiler in C"]),
        ("F#", "F# infers", ["F is a letter"]),
        ("A*", "A* finds a path", ["a path finds us"]),
        ("CD4+", "CD4+ cells", ["CD4 cells"]),
        ("AT&T", "AT&T sells phones", ["at the T junction"]),
        ("Q&A", "Q&A at noon", ["q and a"]),
        ("TCP/IP", "TCP/IP stack", ["an IP stack over TCP today"]),
        ("I/O", "I/O bound", ["I owe o"]),
        ("@alice", "ping @alice", ["alice", "alice@example.com"]),
        ("alice@example.com", "to alice@example.com", ["alice in example for com"]),
        ("#ops", "join #ops", ["ops", "C#"]),
        ("$HOME", "set $HOME", ["go home"]),
        (".gitignore", "edit .gitignore", ["gitignore"]),
        ("node.js", "uses node.js", ["a node in js mode"]),
        ("nodejs", "uses node.js", ["nodes"]),
        ("ASP.NET", "ASP.NET core", ["an asp in the net core"]),
    ],
)
def test_symbols_that_belong_to_a_word(question: str, text: str, others: list[str]) -> None:
    """A word with its symbols is found before the plain word.

    If this fails: compare `analyzer("english").analyze` of both texts.
    """
    assert first([*others, text], question) == text


@pytest.mark.parametrize("language", ["english", "german", "simple", "hindi", "turkish"])
def test_spellings_of_a_number_meet(language: str) -> None:
    """A number is found by every spelling, before its neighbors, whatever spelling they have.

    If this fails: a spelling has no common term, or parts of a wrong number outweigh it.
    """
    spellings = ["1102900", "1,102,900", "1.102.900", "1 102 900", "1'102'900", "1’102’900",
                 "$1,102,900", "11,02,900", "1\u00a0102\u00a0900", "1\u2009102\u2009900",
                 "1_102_900"]  # fmt: skip
    near = ["it is 1,102,901", "it is 1102 and 900", "it is 1.102.909", "it is 2 102 900"]
    for written in spellings:
        for asked in spellings:
            text = f"it is {written}"
            assert first([*near, text], asked, language) == text, (written, asked)


def test_fractions_meet() -> None:
    """`2.50`, `2,50` and `2.5` meet; what may be a group or a fraction is read as both."""
    for written in ("2.50", "2,50", "2.5"):
        for asked in ("2.50", "2,50"):
            assert first(["it is 50", "it is 25", f"it is {written}"], asked) == f"it is {written}"
    german, english = analyzer("german").terms, analyzer("english").terms
    assert {"1234", "1．234"} <= set(german("1,234"))
    assert "1234" in german("1.234")
    assert "1．234" not in german("1.234")
    assert {"1234", "1．234"} <= set(english("1.234"))
    assert "1．234" not in english("1,234")
    assert "1102900．5" in english("1,102,900.50")
    assert "1102900．5" in english("1.102.900,50")
    assert "1102900．5" in english("1 102 900,50")
    assert "2．5" in analyzer("arabic").terms("٢٫٥٠")


@pytest.mark.parametrize(
    ("question", "text", "others"),
    [
        ("-40", "at -40 degrees", ["at 40 degrees", "from 30-40 degrees"]),
        ("−40", "at -40 degrees", ["at 40 degrees"]),
        ("5%", "up 5% today", ["up 5 today"]),
        ("v1.2.3", "tag v1.2.3", ["tag v1.3.2", "tag 1, 2 and 3"]),
        ("1.2", "tag v1.2.3", ["tag v1.3.2"]),
        ("192.168.0.17", "at 192.168.0.17", ["at 192.168.17.0"]),
        ("192.168.17", "at 192.168.17.0", ["at 192.168.0.17"]),
        ("+4791234567", "call +47 912 34 567", ["call 912 34 567"]),
        ("05.11.2026", "on 05.11.2026", ["on 11.05.2026"]),
        ("AB-1234-X", "part AB-1234-X", ["part AB-1234-Y", "X of AB 1234 here"]),
    ],
)
def test_signs_versions_and_addresses(question: str, text: str, others: list[str]) -> None:
    """The order of the numbers counts, and the sign."""
    assert first([*others, text], question) == text


@pytest.mark.parametrize(
    ("name", "questions"),
    [
        ("getUserById", ["get user", "user id", "getUserById", "get_user_by_id", "get-user-by-id"]),
        ("HTTPResponseParser", ["http response", "response parser", "httpResponseParser"]),
        ("XMLHttpRequest", ["xml request", "http", "XMLHttpRequest"]),
        ("parseJSON", ["parse json", "parse_json"]),
        ("user_profile_url", ["user profile", "userProfileUrl", "user_profile_url"]),
        ("MAX_RETRY_COUNT", ["max retry", "maxRetryCount"]),
        ("--dry-run", ["dry run", "dry-run", "dryRun"]),
        ("os.path.join", ["path join", "os.path.join"]),
        ("base64Decode2", ["base64 decode2"]),
    ],
)
def test_parts_of_identifiers(name: str, questions: list[str]) -> None:
    """Parts find an identifier in each of its spellings, and the whole ranks first.

    If this fails: see what `_PARTS` makes of the name.
    """
    others = ["parse the url of it", "the base class", "a path to it", "we retry, then count"]
    for question in questions:
        assert first([*others, f"call {name} here"], question) == f"call {name} here", question
    assert first([f"{name.strip('-')}s and others: {name[:4]}", f"call {name} here"], name)


def test_abbreviations_are_no_identifiers() -> None:
    """A capital inside a word is not enough: `mRNAs`, `IgG`, `PhD`, `NaCl` and `iPhone` are one."""
    for word in (
        "mRNA",
        "mRNAs",
        "IgG",
        "PhD",
        "NaCl",
        "iPhone",
        "DNAs",
        "LaTeX",
        "GmbH",
        "OAuth2",
    ):
        assert analyzer("english").analyze(word).beside == []


@pytest.mark.parametrize(
    "code",
    [
        "4be1f0c27a9d33e85d60b1c2f7a8e9d0c1b2a394",
        "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08",
        "51c3ab90-77de-4a6b-8a41-0c9d2e7f6b15",
        "4500123456",
        "ORD-2024-0012345",
        "NCT01234567",
    ],
)
def test_the_beginning_of_a_code_finds_it(code: str) -> None:
    """Seven characters and more, in any case, with hyphens and without.

    If this fails: a prefix of this length is not a term, or is stemmed otherwise in a question.
    """
    joined = code.replace("-", "")
    for written, asked in ((code, joined), (code, joined.upper()), (joined, joined.lower())):
        for length in (*range(7, 17), len(asked)):
            text = f"look for {written} there"
            assert first(["look there", text], asked[:length]) == text, asked[:length]
    assert first(["look", f"at {code}"], code[:12]) == f"at {code}"


@pytest.mark.parametrize(
    ("question", "text", "others"),
    [
        ("🚀", "sent 🚀", ["sent 🐌"]),
        ("👍🏽", "nice 👍🏽", ["nice 👍", "nice 👍🏿"]),
        ("👍", "nice 👍🏽", ["nice 👎"]),
        ("👩\u200d🚀", "hi 👩\u200d🚀", ["hi 👩 🚀", "hi 👩"]),
        ("🇳🇴", "to 🇳🇴", ["to 🇸🇪"]),
        ("❤", "i ❤\ufe0f it", ["i 💔 it"]),
        ("❤\ufe0f", "i ❤ it", ["i 💔 it"]),
        ("1\ufe0f\u20e3", "step 1\ufe0f\u20e3", ["step 1"]),
        ("±", "± 5", ["5"]),
        ("€ 5", "5€", ["£5", "5"]),
        ("§ 823", "§823", ["823"]),
        ("α", "angle α", ["angle β"]),
        ("->", "a -> b", ["a - b"]),
        ("状态🚀", "状态🚀已发货", ["状态已发货"]),
    ],
)
def test_emoji_and_symbols(question: str, text: str, others: list[str]) -> None:
    """Each can be searched, alone and beside words, and a sequence as a whole ranks first."""
    assert first([*others, text], question) == text


def test_a_text_of_emoji_has_a_length() -> None:
    """Terms beside the words are half a word and no part of the length, unless there is no word."""
    english = analyzer("english")
    words = chunk_terms(Chunk(content="C++ and 🚀"), {"content": 2.0}, english)
    assert words.length == 1
    assert words.frequencies == {"c": 2.0, "c＋＋": 2 * BESIDE_WEIGHT, "🚀": 2 * BESIDE_WEIGHT}
    assert chunk_terms(Chunk(content="🚀 🐌"), {"content": 1.0}, english).length == 2


async def test_what_no_chunk_holds_lowers_no_maximum() -> None:
    """A term beside the words that no chunk holds is not missed; a word is.

    If this fails: `C++` answered by a chunk about C seems less certain than `C` is.
    """
    engine = memory_engine(registration("memory"))
    chunks = [Chunk(content=text) for text in ("about c", "about d")]
    await engine.add(chunks, np.ones((2, 2), np.float32), frozenset())

    async def greatest(question: str) -> float:
        leg = await engine.search_keyword(question, 2, None)
        assert isinstance(leg, KeywordLeg)
        return leg.greatest

    assert await greatest("C++") == await greatest("c")
    assert await greatest("c rust") > await greatest("c")


def test_symbols_are_not_misspelled() -> None:
    """Fuzzy search has no similar ones of a term with a symbol."""
    assert not any(map(is_word, ("＃tags", "＠alice", "bob＠example．com", "👩👩👧👦")))
    assert is_word("tags")


@settings(max_examples=400)
@given(st.text(st.characters()) | odd_text, st.sampled_from(NAMES))
@example("+#\0", "english")
@example("x &\0& y", "english")
@example("\N{REGIONAL INDICATOR SYMBOL LETTER E}\0\N{REGIONAL INDICATOR SYMBOL LETTER D}", "simple")
@example("\N{GREEK SMALL LETTER ALPHA}C\u200b++", "greek")
def test_any_text(text: str, language: str) -> None:
    """Words are never lost, each term that is indexed is found by the same text, no call raises.

    If this fails: the rules look at more than the text, or replace words; or what a reader cannot
    see changes the terms, so that a text has others before `clean_text` than after it.
    """
    assume(clean_text(text).strip())
    analyze = Analyzer(language)
    terms, fields = analyze.analyze(text), chunk_terms(Chunk(content=text), {"content": 1}, analyze)
    assert set(analyze.terms(text)) == {*terms.words, *terms.beside} == set(fields.frequencies)
    assert analyze.terms(text)[: len(terms.words)] == terms.words
    assert len(set(terms.beside) - set(terms.words)) == len(terms.beside)
    for word in analyze.words(text, analyze.terms(text)):
        assert word in text
        assert not set(analyze.terms(word)).isdisjoint(analyze.terms(text))


@settings(max_examples=200)
@given(odd_text, odd_text)
def test_a_word_of_a_text_is_found_among_others(before: str, after: str) -> None:
    """What stands between white space has the same terms beside words in every text."""
    english = analyzer("english")
    alone = set(english.terms("C++")) | set(english.terms("getUserById"))
    assert alone <= set(english.terms(f"{before} C++ getUserById {after}"))
