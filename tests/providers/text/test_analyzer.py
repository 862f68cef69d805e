"""Text analysis: what finds what, in which language, and that no text can do harm."""

from __future__ import annotations

import hashlib
import re
import sys
import threading
import time
import unicodedata

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.api.invisible import clean_text
from corral.api.vector_dbs import LANGUAGES
from corral.providers.text import analyzer as text_module
from corral.providers.text.analyzer import (
    ANALYZER_VERSION,
    MAX_TERM_LENGTH,
    Analyzer,
    analyzer,
)
from corral.providers.text.stop_words import STOP_WORDS

NAMES = sorted(set(LANGUAGES.values()))
any_text = st.text(st.characters())  # lone surrogates included
# Texts that hold more of what needs care than arbitrary text does.
odd_text = st.text(
    st.sampled_from(
        "aAIİıß'’-_ 4½™e\u0301\u00ad\u200d\u200c\ufe0f\0\r\n\u2028\U000e0041\ud800"
        "❤🔥👩कि्ษเกกิ中のｶﾞ한အ်"
    )
)


def finds(language: str, query: str, document: str) -> bool:
    """Whether every term of the query is in the document; a query without terms finds nothing."""
    wanted = set(analyzer(language).terms(query))
    return bool(wanted) and wanted <= set(analyzer(language).terms(document))


SENTENCES = {
    "english": "The reactors were cooled by pumping seawater through the organization's pipes.",
    "norwegian": "Kommunene kjøpte nye båter, og løsningene står på skolene ved fjorden.",
    "german": "Die Gemeinden bauten größere Häuser an den Straßen der schönen Städte.",
    "chinese": "清华大学的学生在图书馆里用电脑写论文，也养猫。",
    "japanese": "学生たちは図書館でコンピューターを使い、本を読んでいる。",
    "thai": "นักเรียนกำลังอ่านหนังสือในห้องสมุดและกินไก่ทอด",
    "hindi": "विद्यार्थियों ने हिन्दी पुस्तकालय में किताबें पढ़ीं और भाषाओं का अध्ययन किया।",
    "arabic": "زار الطلاب المكتبات الجديدة في المدينة وقرأوا الكِتَابَ عن أحمد ومستشفى.",
    "korean": "학생들이 도서관에서 책을 읽고 서울은 크다.",
    "russian": "Студенты читали книги в городских библиотеках под ёлками.",
    "french": "Les élèves lisaient des livres à l’école et buvaient de l'eau.",
    "turkish": "Öğrenciler İstanbul'daki KIYI kütüphanelerinde kitapları okudular.",
    "greek": "Οι μαθητές διάβαζαν στις βιβλιοθήκες.",
    "burmese": "ကျောင်းသားများ စာကြည့်တိုက်တွင် စာဖတ်နေကြသည်။",
    "khmer": "សិស្សកំពុងអានសៀវភៅនៅបណ្ណាល័យ។",
    "lao": "ນັກຮຽນອ່ານປຶ້ມຢູ່ຫໍສະໝຸດ",
}


@pytest.mark.parametrize(
    ("language", "query"),
    [
        ("english", "cooling a reactor with pumps"),
        ("english", "Organizations"),
        ("english", "ＰＩＰＥ"),
        ("norwegian", "kommune båt kjøpte"),
        ("norwegian", "LØSNING på skolen"),
        ("norwegian", "fjordene"),
        ("german", "Gemeinde Haus Stadt"),
        ("german", "STRASSE schöne"),
        ("chinese", "大学 图书馆"),
        ("chinese", "电脑"),
        ("chinese", "猫"),
        ("japanese", "図書館"),
        ("japanese", "本"),
        ("japanese", "ｺﾝﾋﾟｭｰﾀｰ"),
        ("thai", "ห้องสมุด"),
        ("thai", "หนังสือ"),
        ("thai", "ไก่"),
        ("hindi", "किताब"),
        ("hindi", "विद्यार्थी"),
        ("hindi", "हिंदी भाषा"),
        ("hindi", "पढ़ना"),
        ("arabic", "مكتبة"),
        ("arabic", "مدينة جديدة"),
        ("arabic", "كتاب احمد"),
        ("arabic", "والكتاب"),
        ("arabic", "مستشفي"),
        ("korean", "도서관"),
        ("korean", "책 서울"),
        ("russian", "студент читать книга библиотека ёлка"),
        ("russian", "библиоте\u0301ка елка"),
        ("french", "ecole eau élève livre"),
        ("turkish", "İSTANBUL kıyı kitap öğrenci"),
        ("greek", "ΒΙΒΛΙΟΘΗΚΗ ΜΑΘΗΤΗΣ"),
        ("burmese", "စာကြည့်တိုက်"),
        ("khmer", "បណ្ណាល័យ"),
        ("lao", "ຫໍສະໝຸດ"),
    ],
)
def test_inflected_query_matches(language: str, query: str) -> None:
    """A word is found in another inflection, case, width or usual spelling of its language.

    If this fails: look at `analyzer(language).terms` of both texts.
    """
    assert finds(language, query, SENTENCES[language])


@pytest.mark.parametrize(
    ("language", "query"),
    [
        ("english", "organ"),
        ("english", "water"),
        ("norwegian", "bater"),
        ("norwegian", "fjorder og fjell"),
        ("german", "Mäuse"),
        ("german", "Gemein"),
        ("chinese", "学大"),
        ("chinese", "狗"),
        ("japanese", "病院"),
        ("japanese", "コンビニ"),
        ("thai", "โรงพยาบาล"),
        ("thai", "ไข่"),
        ("hindi", "लड़का"),
        ("hindi", "किनारा"),
        ("arabic", "مسرح"),
        ("arabic", "مكتوب"),
        ("korean", "병원"),
        ("turkish", "kedi"),
        ("french", "eaux fortes"),
    ],
)
def test_other_words_do_not_match(language: str, query: str) -> None:
    """A word that is not there is not found, however like another one it looks."""
    assert not finds(language, query, SENTENCES[language])


@pytest.mark.parametrize("language", ["norwegian", "danish", "swedish", "finnish", "simple"])
def test_letters_stay_letters(language: str) -> None:
    """å, ä, æ, ö and ø are letters of their own: words that differ in them are different words."""
    words = ["blak", "blåk", "bläk", "blæk", "blok", "blök", "bløk"]
    assert len(set(analyzer(language).terms(" ".join(words)))) == len(words)


def test_german_umlauts() -> None:
    """Umlauts tell stop words apart (`schon`, `schön`) and are inflection to the stemmer."""
    assert analyzer("german").terms("schon") == []
    assert analyzer("german").terms("schön") != []
    assert finds("german", "Buch", "Bücher")
    assert finds("german", "Masse", "Maß")  # case folding: ß is ss


def test_accents_are_dropped_where_people_drop_them() -> None:
    """English and French text is found without its accents, Spanish keeps ñ apart from n."""
    assert finds("english", "resume cafe aero Orsted", "Résumé, café, Ærø, Ørsted")
    assert finds("french", "eleve societe", "Élèves de la société")
    assert not finds("spanish", "ano", "año")


@pytest.mark.parametrize(
    ("document", "queries"),
    [
        ("Error E-4711 occurred", ["E-4711", "e-4711", "4711", "E4711", "E‑4711"]),
        ("the max_tokens setting", ["max_tokens", "tokens", "max tokens", "max-tokens"]),
        ("COVID-19 and TNF-α", ["covid19", "COVID-19", "tnf-α", "TNF"]),
        ("on 2026-11-05", ["2026-11-05", "2026", "20261105"]),
        ("what is torchtune?", ["torchtune"]),
        ("version 3.14.1", ["3.14.1", "3.14"]),
        ("room ٤٧١١ or ४७११", ["4711"]),
        ("Corral™ and ﬁne 10 km²", ["corral", "fine", "km2"]),
    ],
)
def test_identifiers(document: str, queries: list[str]) -> None:
    """Parts joined by a hyphen or an underscore are found apart, together and written as one."""
    for query in queries:
        assert finds("english", query, document), query


def test_hyphens_and_dashes() -> None:
    """All hyphens are one; two of them are a dash, and the words around a dash are not one."""
    assert analyzer("simple").terms("E\u20104 E\u20114 E-4") == ["e", "4", "e4"] * 3
    assert analyzer("simple").terms("one--two -three- --") == ["one", "two", "three"]
    assert analyzer("simple").terms("猫-犬") == ["猫", "犬"]


def test_turkish_letters() -> None:
    """In Turkish ı is the small I, which its stemmer relies on; elsewhere İ is an i."""
    assert finds("turkish", "ışık", "IŞIKLAR")
    assert finds("turkish", "IBM", "ibm")
    assert finds("german", "Istanbul", "İSTANBUL")


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("english", "It's John’s, don't", ["john"]),
        ("english", "O'Neill's rock'n'roll", ["o", "neill", "rock", "n", "roll"]),
        ("english", "vitamin D, the 'quoted'", ["vitamin", "d", "quot"]),
        ("french", "l'eau L’EAU qu'elle", ["eau", "eau"]),
        ("italian", "dell'acqua", ["acqua"]),
        ("turkish", "Ankara'nın", ["ankar"]),
        ("simple", "l'eau '' '", ["l", "eau"]),
    ],
)
def test_apostrophes(language: str, text: str, terms: list[str]) -> None:
    """Beside an apostrophe the clitics of the language are dropped; alone they are words."""
    assert analyzer(language).terms(text) == terms


def test_stop_words() -> None:
    """Function words are no terms, in documents as in queries, and only in their own language."""
    assert analyzer("english").terms("To be, or not to be: THAT is the") == []
    assert analyzer("norwegian").terms("Det er ikke på en av disse") == []
    assert analyzer("simple").terms("to be or not") == ["to", "be", "or", "not"]
    assert analyzer("english").terms("die") == ["die"]
    assert analyzer("arabic").terms("على") == []  # on
    assert analyzer("arabic").terms("علي") != []  # Ali


@pytest.mark.parametrize("language", sorted(STOP_WORDS))
def test_stop_words_are_folded(language: str) -> None:
    """Each listed stop word is dropped: it stands in the list as the analyzer sees it.

    If this fails: the word is listed in another case or spelling than the folded one.
    """
    assert language in NAMES
    assert analyzer(language).terms(" ".join(sorted(STOP_WORDS[language]))) == []


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("中国人", ["中", "中国", "国", "国人", "人"]),
        ("Pinyin手机第3章", ["pinyin", "手", "手机", "机", "机第", "第", "3", "章"]),
        ("猫が食べる", ["猫", "猫が", "が食", "食", "食べ", "べる"]),
        ("の", ["の"]),
        ("カ\u3099ラス", ["ガラ", "ラス"]),
        ("서울은", ["서", "서울", "울", "울은", "은"]),
        ("ภาษาไทย", ["ภา", "ภาษา", "ษา", "ษาไท", "ไท", "ไทย"]),
        ("เกาะน้ำ", ["เกาะ", "เกาะน้ํา", "น้ํา"]),
        ("မြန်မာ", ["မြန်", "မြန်မာ", "မာ"]),
        ("ខ្មែរ", ["ខ្មែ", "ខ្មែរ"]),
        ("བོད་ཡིག", ["བོད", "ཡིག"]),
    ],
)
def test_scripts_without_spaces(text: str, terms: list[str]) -> None:
    """A run gives its characters, vowel signs included, and the pairs of neighbors, in order."""
    for language in ("simple", "norwegian", "chinese"):
        assert analyzer(language).terms(text) == terms


def test_marks_belong_to_the_word() -> None:
    """Vowel signs, viramas and points never split a word."""
    for word in ("हिंदुस्तान", "বাংলাদেশ", "தமிழ்நாடு", "తెలుగు", "മലയാളം", "العَرَبِيَّة", "עִבְרִית"):
        assert len(analyzer("simple").terms(word)) == 1


@pytest.mark.parametrize(
    "hidden",
    ["\u00ad", "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\0", "\x1b", "\u202e",
     "\ufe0f", "\u034f", "\U000e0041", "\U000e0100", "\u3164"],
)  # fmt: skip
def test_invisible_characters_hide_nothing(hidden: str) -> None:
    """A character that nobody sees neither splits a word nor makes it another one."""
    for language, word in (("english", "password"), ("hindi", "किताब"), ("chinese", "密码")):
        split = hidden + hidden.join(word) + hidden
        assert analyzer(language).terms(split) == analyzer(language).terms(word)


HOSTILE = [
    "", " ", '"', '""', "'", "NEAR(", "NEAR(a b, 5)", "*", "a*", "-", "--", "^a", "a:b", "a AND",
    "OR NOT", "{a b}: c", "a + b", ";DROP TABLE x;", "\0", "a\0b", "\ud800", "a\udfffb", "🎉", "❤️",
    "👩‍👩‍👧", "\u202e", "%s %d {0} ${x}", "\\", "\n\t\r", "ﷺ", "a" * 1_000_000, "a-" * 40_000,
    "1.1" * 20_000, "aB1.c" * 20_000, "1 000 " * 20_000, "C++" * 20_000, "a@a." * 20_000,
    "0a1b2c3d" * 10_000, "a1-" * 20_000, "🚀" * 10_000, "👩\u200d" * 10_000, "中A1b2.5" * 10_000,
    "'" * 20_000, "中" * 10_000, "เก" * 10_000, "a" + "\u0301" * 20_000, "æ" * 1000, "\u0301",
]  # fmt: skip


TWINS = frozenset(chr(code) for code in range(0xFF01, 0xFF5F) if not chr(code).isalnum())


def assert_safe(terms: list[str]) -> None:
    """A term is 1 to 64 characters: ASCII lower case or digits, and beyond ASCII letters, marks,
    numbers, symbols and the full-width twins of ASCII symbols.
    """
    assert all(1 <= len(term) <= MAX_TERM_LENGTH for term in terms)
    for char in set("".join(terms)) - TWINS - set("§¶†‡‰‱※"):
        assert re.match(r"[0-9a-z\u0080-\U0010ffff]", char)
        newer = "\U0001f000" <= char <= "\U0001faff"  # emoji that Python does not know yet
        assert unicodedata.category(char)[0] in {"L", "M", "N", "S"} or newer


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_only_text(text: str) -> None:
    """Whatever the text holds, its terms are plain words: nothing that a query language reads.

    French takes clitics away and Turkish has small letters of its own; the rest has fewer steps.
    """
    languages = ("english", "french", "turkish", "chinese", "simple")
    for language in languages if len(text) < 1000 else ("french", "turkish"):
        assert_safe(analyzer(language).terms(text))


@settings(max_examples=300)
@given(any_text | odd_text, st.sampled_from(NAMES))
def test_any_text(text: str, language: str) -> None:
    """Any text has terms, safe ones, the same at every call and after `clean_text`."""
    terms = Analyzer(language).terms(text)
    assert_safe(terms)
    assert terms == analyzer(language).terms(text) == analyzer(language).terms(text)
    assert terms == analyzer(language).terms(clean_text(text))


@settings(max_examples=200)
@given(st.text(st.characters(categories=("L", "M", "N"))), st.sampled_from(NAMES))
def test_canonical_equivalence(text: str, language: str) -> None:
    """Composed and decomposed spellings of a text have the same terms."""
    expected = analyzer(language).terms(unicodedata.normalize("NFC", text))
    assert analyzer(language).terms(unicodedata.normalize("NFD", text)) == expected


@settings(max_examples=300)
@given(st.text(st.characters(max_codepoint=127)), st.sampled_from(NAMES))
def test_ascii_road_agrees(text: str, language: str) -> None:
    """ASCII text, which takes a shorter road, has the terms that it has beside other text."""
    assert analyzer(language).terms(text) == analyzer(language).terms(text + "\u3000")


def test_every_character() -> None:
    """Each character of Unicode, alone and inside a word, yields safe terms.

    Of the uniform blocks of Han and Hangul, and of what lies behind them, only the first ones.
    """
    blocks = ((0, 0x4E40), (0x9FF0, 0xAC40), (0xD7A0, 0x17040), (0x18AF0, 0x20040))
    codes = [code for first, end in (*blocks, (0xE0000, 0xE0200)) for code in range(first, end)]
    characters = list(map(chr, codes))
    for language in ("simple", "english", "turkish"):
        assert_safe(analyzer(language).terms(" ".join(characters)))
    assert_safe(analyzer("simple").terms(" ".join(f"x{char}x" for char in characters)))


def test_no_marks_beyond_those_known() -> None:
    """The marks that words are made of are searched up to U+1F000; none but selectors lie above."""
    above = (chr(code) for code in range(0x1F000, sys.maxunicode + 1))
    marks = [char for char in above if unicodedata.category(char) in {"Mn", "Mc"}]
    assert all("\U000e0100" <= char <= "\U000e01ef" for char in marks)


def test_terms_survive_fts5() -> None:
    """FTS5's ascii tokenizer gives back the terms as they are and finds each as a string."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize='ascii')")
    connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, row)")
    texts = [*SENTENCES.values(), *HOSTILE[:30]]
    for number, text in enumerate(texts):
        for language in ("english", "simple"):
            terms = analyzer(language).terms(text)
            connection.execute("DELETE FROM t")
            connection.execute("INSERT INTO t (rowid, x) VALUES (?, ?)", (number, " ".join(terms)))
            kept = {term for (term,) in connection.execute("SELECT term FROM v")}
            assert kept == set(terms)
            for term in kept:
                query = "SELECT rowid FROM t WHERE t MATCH ?"
                assert list(connection.execute(query, (f'"{term}"',))) == [(number,)]


def test_many_threads() -> None:
    """Threads that share an analyzer get what one thread gets, also while its memory is cleared."""
    endings = ("s", "ed", "ing", "er")
    words = [stem + ending for stem in ("walk", "talk", "jump", "play") for ending in endings]
    texts = [" ".join(f"{word}x{number} {word}" for word in words) for number in range(40)]
    expected = [Analyzer("english").terms(text) for text in texts]
    shared = Analyzer("english", max_cached_words=20)
    results: list[list[list[str]]] = []
    threads = [
        threading.Thread(target=lambda: results.append([shared.terms(text) for text in texts]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


class OneAtATime:
    """A stemmer that notices a second caller."""

    def __init__(self) -> None:
        self.busy = self.disturbed = False

    def stemWord(self, word: str) -> str:
        self.disturbed |= self.busy
        self.busy = True
        time.sleep(0.001)
        self.busy = False
        return word


def test_stemmer_has_one_caller() -> None:
    """A Snowball stemmer keeps the word it works on, so two threads never use one at once."""
    shared, stemmer = Analyzer("english"), OneAtATime()
    shared._rules._stemmer = stemmer
    texts = [" ".join(f"word{number}x{other}" for other in range(10)) for number in range(4)]
    threads = [threading.Thread(target=shared.terms, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not stemmer.disturbed


def test_memory_is_bounded() -> None:
    """The memories of words hold a bounded number of words, and no long one."""
    fresh = Analyzer("simple", max_cached_words=10)
    for number in range(100):
        fresh.terms(f"word{number} " + "long" * 100 + " 中国人民大学图书馆")
        fresh.terms(f"getUser{number} " + "getUser" * 100)
        for memory in (fresh._terms, fresh._spelled, fresh._beside):
            assert 0 < len(memory) <= 10
            assert all(
                len(word) <= MAX_TERM_LENGTH and len(memory[word]) <= 16 for word in [*memory]
            )


def test_analyzers_are_kept() -> None:
    """There is one analyzer for each language, and none for a language nobody registered."""
    assert analyzer("german") is analyzer("german")
    assert analyzer("german").language == "german"
    for name in NAMES:
        assert analyzer(name).terms("2026") == ["2026"]
    with pytest.raises(ValueError, match="klingon"):
        analyzer("klingon")


def test_version_changes_with_the_terms() -> None:
    """An index knows its analyzer by `ANALYZER_VERSION`, so other terms need another version.

    If this fails: terms changed. Raise `_RULES` in text.py (a new release of PyStemmer raises the
    version by itself) and put the new version and digest here.
    """
    texts = [
        *SENTENCES.values(),
        "it's l'eau dell'acqua E-4711 Ærø crème IŞIK 東京タワー",
        "C++ .NET R&D #tag @name I/O A* 1,102,900 1 102 900 2,50 v1.2.3 -4 5% +47 912 34 567",
        "getUserById node.js 4be1f0c27a9d33e8 51c3ab90-77de-4a6b-8a41-0c9d2e7f6b15 👍🏽 §",
    ]
    terms = [
        (sorted(STOP_WORDS.get(language, ())), [analyzer(language).terms(text) for text in texts])
        for language in sorted({*SENTENCES, *STOP_WORDS})
    ]
    digest = hashlib.sha256(repr(terms).encode()).hexdigest()[:16]
    assert (ANALYZER_VERSION, digest) == (2_000_310, "c813ac52346ed962")


@settings(max_examples=500)
@given(any_text | odd_text)
def test_clean_text_is_idempotent(text: str) -> None:
    """Cleaning twice is cleaning once, and the result can be stored as UTF-8 in any engine."""
    clean = clean_text(text)
    assert clean_text(clean) == clean
    assert clean.encode().decode() == clean
    assert not re.search("[\0\r\ufeff\u200b\u202e\U000e0000-\U000e0fff]", clean)


def test_the_names_of_the_kit_are_here() -> None:
    """`text` gives provider authors each of its names, `clean_text` among them.

    If this fails: a name moved to another module; import it here again, or their code breaks.
    """
    assert all(hasattr(text_module, name) for name in text_module.__all__)
    assert text_module.clean_text is clean_text
