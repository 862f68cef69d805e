"""The query syntax `web`: what a query is taken apart into, and which chunks it refuses."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.api.invisible import clean_text
from corral.providers.rag.query_syntax import Checker, WebQuery, parse
from corral.providers.text.analyzer import analyzer

from ...growth import growth

FIELDS = ("content", "title")


def refusal(query: str, content: str, *, language: str = "english", title: str = "") -> str | None:
    """Return why a chunk of this text is refused."""
    chunk = Chunk(content=content, metadata={"title": title})
    return Checker(parse(query), language, FIELDS).refusal(chunk)


# --- taking a query apart ---------------------------------------------------------------------


def test_a_query_is_taken_apart() -> None:
    """Words, phrases, excluded words and excluded phrases, each in its order; what is embedded
    keeps the order of the query, without marks and without what is excluded."""
    query = 'heart "blood  pressure" -mouse treatment -"side effects" “in humans” -rat'
    assert parse(query) == WebQuery(
        words=("heart", "treatment"),
        phrases=("blood pressure", "in humans"),
        excluded_words=("mouse", "rat"),
        excluded_phrases=("side effects",),
        embedded_text="heart blood pressure treatment in humans",
    )
    assert parse(query).text == "heart treatment blood pressure in humans"
    assert parse(query).restricts


@pytest.mark.parametrize(
    "phrase",
    [
        '"god dag"', "“god dag”", "„god dag“", "„god dag”", "”god dag”", "«god dag»", "»god dag«",
        "»god dag»", "‹god dag›", "›god dag‹", "「god dag」", "『god dag』", "＂god dag＂",
        "〝god dag〞", "〝god dag〟", "｢god dag｣", "﹁god dag﹂", "﹃god dag﹄", "‟god dag”",
    ],
)  # fmt: skip
def test_every_kind_of_quotation_marks_makes_a_phrase(phrase: str) -> None:
    """Marks of all languages, as keyboards and word processors write them, also behind a minus."""
    assert parse(f"a {phrase} b").phrases == ("god dag",)
    assert parse(f"a -{phrase} b").excluded_phrases == ("god dag",)
    assert parse(f"a {phrase} b").embedded_text == "a god dag b"


@pytest.mark.parametrize(
    "query",
    [
        'an open "quote', "an open „quote", "an open “quote", "closed” only", "«", 'tire 5"',
        'a 5" pipe and 6" tube', '-"open', "e-mail", "well-known -", "a - b", "a -- b", "--help",
        "-_x", "x+y", "+x", "AND OR NOT", "title:x", "a* (b) [c] {d} ^2 ~1", "don't 'quote' this",
        "‘single’ ones", '"" "!!" “ ”', "NEAR(a, b)", "a\\b", "", "   ", "😀 -",
    ],
)  # fmt: skip
def test_all_else_is_text(query: str) -> None:
    """Marks without a counterpart, a minus elsewhere, and the operators of other engines."""
    parsed = parse(query)
    assert not parsed.restricts
    assert parsed.embedded_text == query
    assert parsed.words == tuple(query.split())


@pytest.mark.parametrize("minus", ["-", "－", "−"])
def test_a_minus_excludes_at_the_beginning_of_a_word(minus: str) -> None:
    """Behind white space of any kind, before a letter or a digit; up to the next white space."""
    parsed = parse(f"{minus}first x\n{minus}4711\u3000{minus}e-mail y{minus}z")
    assert parsed.excluded_words == ("first", "4711", "e-mail")
    assert parsed.words == ("x", f"y{minus}z")


def test_quotation_marks_within_words_of_hebrew_are_letters() -> None:
    """Abbreviations hold the mark: צה"ל is one word, also behind a minus."""
    assert parse('צה"ל נצ"מ').words == ('צה"ל', 'נצ"מ')
    assert parse('שלום -צה"ל').excluded_words == ('צה"ל',)


@pytest.mark.parametrize("query", ["-mouse", '-"a b"', ' -mouse -"a b"  -8 '])
def test_exclusions_only_are_refused(query: str) -> None:
    """There is nothing to look for; the message says what to add."""
    with pytest.raises(InvalidRequest, match="only exclusions") as caught:
        parse(query)
    assert caught.value.field == "query"
    assert caught.value.hint


@pytest.mark.parametrize("part", ['"a b"', "-a", '-"a b"', "“a”"])
def test_there_are_a_hundred_phrases_and_exclusions_at_most(part: str) -> None:
    """One more is refused before anything is searched; the query's length does not matter.

    If this fails: a query of 200 KB looks for 20,000 phrases in 1,000 chunks, for minutes.
    """
    parsed = parse("x " + f"{part} " * 100)
    assert len(parsed.phrases + parsed.excluded_words + parsed.excluded_phrases) == 100
    with pytest.raises(InvalidRequest, match="more than 100 phrases and exclusions"):
        parse("x " + f"{part} " * 101)


@given(
    st.text(alphabet=st.one_of(st.characters(), st.sampled_from('"-“”„«»「」 \n a')), max_size=60)
)
@example('"' * 9 + "-")
def test_no_text_does_harm(text: str) -> None:
    """Any text is taken apart or refused as exclusions only, and any chunk can be checked."""
    query = clean_text(text)
    try:
        parsed = parse(query)
    except InvalidRequest:
        assert any(mark in query for mark in "-－−")
        return
    checker = Checker(parsed, "english", FIELDS)
    refusal = checker.refusal(Chunk(content="unlikely words"))
    assert refusal is None or parsed.restricts
    if not parsed.restricts:
        assert parsed.embedded_text == query
        assert analyzer("english").terms(parsed.text) == analyzer("english").terms(query)


@given(st.text(st.characters(categories=["L", "N", "Z", "M"]), max_size=60))
def test_plain_characters_are_plain(text: str) -> None:
    """Without a quotation mark and a minus there is no syntax, in any script."""
    assert not parse(text).restricts


@given(
    st.text(min_size=1, max_size=40), st.sampled_from(["english", "german", "chinese", "arabic"])
)
def test_a_text_holds_its_own_words(text: str, language: str) -> None:
    """A phrase of a whole text is in that text, and the text is refused where it is excluded."""
    cleaned = clean_text(text).replace('"', " ").strip()
    if any(map(str.isalnum, cleaned)) and analyzer(language).sequence(cleaned)[0].strip():
        assert refusal(f'"{cleaned}"', cleaned, language=language) is None
        assert refusal(f'x -"{cleaned}"', f"so {cleaned} so", language=language) is not None


@pytest.mark.parametrize("mark", "“„«「‹")
def test_marks_without_end_are_read_in_one_pass(mark: str) -> None:
    """A query of 8,000 characters that only open phrases takes ten times as long as one of 800.

    If this fails: between the marks of a phrase the opening one is allowed again."""
    assert not parse(f"{mark}a " * 8000).restricts
    assert growth(parse, f"{mark}a " * 800, f"{mark}a " * 8000) < 40


# --- checking chunks --------------------------------------------------------------------------

HOLDS = [
    ("english", '"running shoes"', "He likes his runs. Shoe!", True),
    ("english", '"running shoes"', "shoes for running", False),
    ("english", '"to be or not to be"', "Whether TO BE, or not to be", True),
    ("english", '"to be or not to be"', "to be or to be not", False),
    ("english", '"state of the art"', "a state-of-the-art engine", True),
    ("english", '"state of art"', "a state of the art engine", False),
    ("english", '"e4711 error"', "an E-4711 error", True),
    ("english", '"E-4711"', "part e4711", True),
    ("english", '"4711 error"', "an E-4711 error", True),
    ("english", '"cafe society"', "Café Society", True),
    ("english", '"don\'t panic"', "DON’T PANIC", True),
    ("english", '"don\'t panic"', "do not panic", False),
    ("german", "„gute Bücher“", "ein gutes Buch", True),
    ("german", "„gute Bücher“", "Bücher, gute", False),
    ("german", "»schön war es«", "Schön war es dort.", True),
    ("german", "»schon war es«", "Schön war es dort.", False),
    ("norwegian", "«røde hunder»", "Vaksine mot røde hunder", True),
    ("norwegian", "«røde hunder»", "Hunden er rød", False),
    ("norwegian", "«norske fjorder»", "en norsk fjord", True),
    ("french", '"l\'eau potable"', "eau potable", True),
    ("chinese", '"人工智能"', "搜索人工智能技术", True),
    ("chinese", '"人工智能"', "人工的智能", False),
    ("chinese", "「天气真好」", "今天天气真好!", True),
    ("chinese", '"iPhone手机"', "新的ｉＰｈｏｎｅ手机壳", True),
    ("japanese", "「機械学習」", "これは機械学習の本です", True),
    ("japanese", "「機械学習」", "機械で学習", False),
    ("japanese", "『本を読む』", "私は本を読む。", True),
    ("thai", '"ภาษาไทย"', "ผมเรียนภาษาไทยทุกวัน", True),
    ("thai", '"ภาษาไทย"', "ไทยภาษา", False),
    ("korean", '"서울 날씨"', "오늘 서울 날씨는", True),
    ("arabic", "«الكتاب المدرسي»", "قرأت الكِتابَ المَدرسي", True),
    ("arabic", "«الكتاب المدرسي»", "المدرسي الكتاب", False),
]


@pytest.mark.parametrize(("language", "phrase", "text", "held"), HOLDS)
def test_a_phrase_is_words_in_order(language: str, phrase: str, text: str, held: bool) -> None:
    """Consecutive words as the language's analyzer sees them, stop words included; and excluded it
    refuses exactly the chunks that it asks for otherwise."""
    bare = parse(phrase).phrases[0]
    missing = f"phrase {bare!r} is missing"
    assert refusal(phrase, text, language=language) == (None if held else missing)
    excluded = f"excluded phrase {bare!r}"
    assert refusal(f"x -{phrase}", text, language=language) == (excluded if held else None)


@pytest.mark.parametrize(
    ("language", "word", "text", "held"),
    [
        ("english", "run", "running in the rain", True),
        ("english", "run", "a rune in the rain", False),
        ("english", "the", "the rain", True),
        ("english", "well-known", "well known rain", True),
        ("english", "wellknown", "well-known rain", True),
        ("english", "CAFÉ", "in a cafe", True),
        ("german", "Hunde", "ein Hund", True),
        ("german", "Hunde", "hundert", False),
        ("norwegian", "katter", "katten sover", True),
        ("chinese", "北京", "天气在北京很好", True),
        ("chinese", "北京", "京北天气", False),
        ("japanese", "東京", "東京の天気", True),
        ("japanese", "猫", "黒猫です", True),
        ("arabic", "كتاب", "هذا الكتاب", True),
        ("arabic", "كتاب", "هذا القلم", False),
    ],
)
def test_an_excluded_word_refuses_its_chunks(
    language: str, word: str, text: str, held: bool
) -> None:
    """Also inflected, as far as the language's stemmer goes; also stop words."""
    expected = f"excluded word {word!r}" if held else None
    assert refusal(f"x -{word}", text, language=language) == expected


def test_all_fields_are_looked_at_one_by_one() -> None:
    """A phrase may be in any field, not across two; an excluded word in none of them."""
    assert refusal('"blood pressure"', "text", title="High blood pressure") is None
    assert refusal('"blood pressure"', "pressure", title="blood") is not None
    assert refusal("x -mouse", "text", title="Of mice and a mouse") == "excluded word 'mouse'"
    chunk = Chunk(content="a", metadata={"title": "mouse"})
    assert Checker(parse("x -mouse"), "english", ["content"]).refusal(chunk) is None


def test_every_condition_counts() -> None:
    """All phrases have to be there, nothing excluded; the reason is the first that is broken."""
    query = '"red wine" "white bread" -beer -"blue cheese"'
    assert refusal(query, "red wine, white bread") is None
    assert refusal(query, "red wine") == "phrase 'white bread' is missing"
    assert refusal(query, "red wine, white bread, beer") == "excluded word 'beer'"
    assert refusal(query, "blue cheese") == "excluded phrase 'blue cheese'"


def test_a_query_without_syntax_refuses_nothing() -> None:
    """Nor does one whose words the language drops entirely."""
    assert refusal("red wine", "beer") is None
    assert refusal("", "beer") is None


def test_a_symbol_that_belongs_to_a_word_counts() -> None:
    """`-C++` excludes C++, not C#; a phrase with C++ is not in a text about C#.

    If this fails: the words agree, and `Analyzer.marks` of both were not compared.
    """
    assert refusal("templates -C++", "templates of C++")
    assert refusal("templates -C++", "templates of C#") is None
    assert refusal('"in C++"', "written in C#")
    assert refusal('"in C++"', "written in C++.") is None
    assert refusal("-C templates", "templates of C++")
