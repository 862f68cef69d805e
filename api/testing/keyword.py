"""Standard tests: keyword search is BM25 over analyzed words, joined by OR."""

from __future__ import annotations

import math

import numpy as np
import pytest

from corral.api.hits import TermStatistics
from corral.api.testing.indexes import PLAIN, Indexes, chunk, ids, raw_scores
from corral.api.testing.oracle import Oracle, bm25
from corral.api.testing.suite import Suite, needs

CORPUS = {
    "a": "alpha beta gamma",
    "b": "alpha alpha beta",
    "c": "gamma delta delta delta epsilon",
    "d": "beta",
    "e": "zeta zeta eta theta iota kappa",
}
QUERIES = ["alpha", "beta", "delta", "alpha beta", "gamma delta zeta", "kappa beta nothing"]
# Each chunk is the first hit of its questions. The chunks differ only in characters between words.
BESIDE_WORDS = {
    "C++ expands templates": ["C++"],
    "C# has properties": ["C#"],
    "g++ builds the release": ["g++"],
    ".NET collects garbage": [".NET"],
    "a net for herring": ["herring net"],
    "R&D spent the most": ["R&D"],
    "deploys are told in #ops": ["#ops"],
    "the ops team of old": ["team ops"],
    "the depot holds 1,102,900 bolts": ["1102900", "1.102.900", "1 102 900", "$1,102,900"],
    "the depot holds 1,102,901 bolts": ["1'102'901", "1,102,901"],
    "a loaf costs 2,50 today": ["2.50"],
    "a loaf costs 50 today, or 2": [],
    "it was -40 degrees": ["-40 degrees"],
    "it was 40 degrees": [],
    "def getUserById(key)": ["get user", "getUserById", "get_user_by_id"],
    "class HTTPResponseParser": ["http response", "HTTPResponseParser"],
    "release v1.2.3 is out": ["v1.2.3", "1.2.3"],
    "release v1.3.2 is out": ["1.3", "v1.3.2"],
    "commit 4be1f0c27a9d33e85d60b1c2f7a8e9d0c1b2a394": ["4be1f0c", "4BE1F0C27A9D"],
    "job 51c3ab90-77de-4a6b-8a41-0c9d2e7f6b15": ["51c3ab9", "51c3ab90-77", "51c3ab9077de4a6b"],
    "order ORD-2024-0012345": ["ORD-2024-001", "ORD-2024-0012345"],
    "order ORD-2024-0067890": ["ord-2024-0067"],
    "shipped \U0001f680": ["\U0001f680"],
    "nice \U0001f44d\U0001f3fd work": ["\U0001f44d\U0001f3fd"],
    "nice \U0001f44d work": [],
    "tickets at \u20ac 5": ["\u20ac5", "\u20ac"],
    "tickets at \u00a3 5": ["\u00a35", "\u00a3"],
    "a tolerance of \u00b1 3": ["\u00b1"],
}

WORDLESS = ["", " ", "\n\t", "?!", "...", "\0", '"', "-", "*"]


@needs(lambda can: can.keyword != "no")
class KeywordTests(Suite):
    """Keyword mode."""

    def test_raw_scores_by_hand(self, indexes: Indexes) -> None:
        """Two chunks, "alpha alpha" and "alpha beta": scores computed by hand.

        N = 2, both of length 2, so len / avg = 1 and the weight of f is f * 2.2 / (f + 1.2).
        alpha: n = 2, idf = ln(1 + 0.5 / 2.5) = ln 1.2. beta: n = 1, idf = ln(1 + 1.5 / 1.5) = ln 2.
        """
        index = indexes.open(**PLAIN)
        index.add_texts({"twice": "alpha alpha", "once": "alpha beta"})
        raws = raw_scores(index.keyword("alpha"))
        expected = {"twice": math.log(1.2) * 4.4 / 3.2, "once": math.log(1.2)}
        assert raws == pytest.approx(expected, abs=self.bm25_tolerance)
        assert list(raws) == ["twice", "once"]
        raws = raw_scores(index.keyword("beta"))
        assert raws == pytest.approx({"once": math.log(2)}, abs=self.bm25_tolerance)
        [hit] = index.keyword("beta").hits
        assert hit.score == pytest.approx(math.log(2) / (1 + math.log(2)), abs=self.bm25_tolerance)

    def test_raw_scores_are_bm25(self, indexes: Indexes) -> None:
        """k1 1.2, b 0.75 and Lucene's idf over the terms, for rare, common and repeated words.

        If this fails by a constant factor: the factor k1 + 1 was dropped. If only for long chunks:
        look at the average length. If for common words: FTS5's own idf is cut off at 1e-6.
        """
        index = indexes.open(**PLAIN)
        index.add_texts(CORPUS)
        texts = {i: {"content": text} for i, text in CORPUS.items()}
        for query in QUERIES:
            expected = bm25(query, texts, {"content": 1})
            response = index.keyword(query)
            right = pytest.approx(expected, abs=self.bm25_tolerance)
            assert raw_scores(response) == right, query
            in_order = sorted(expected.items(), key=lambda one: (-one[1], one[0]))
            assert ids(response) == [chunk_id for chunk_id, _ in in_order], query

    def test_a_random_corpus_equals_the_definition(self, indexes: Indexes) -> None:
        """200 chunks of 1 to 20 words, 20 queries: ids, order, ties and scores of the reference."""
        index = indexes.open(**PLAIN)
        rng = np.random.default_rng(5)
        vocabulary = [f"w{number}" for number in range(40)]
        chances = 1 / np.arange(1, 41)
        chances /= chances.sum()
        texts = [
            " ".join(rng.choice(vocabulary, rng.integers(1, 21), p=chances)) for _ in range(200)
        ]
        chunks = [chunk(f"c{n:03}", texts[n]) for n in rng.permutation(200)]
        oracle = Oracle(index.vector_db)
        index.add(chunks)
        oracle.add(chunks, [[1, 0]] * 200)
        for number in range(20):
            query = " ".join(rng.choice(vocabulary, 4, replace=False))
            k = int(rng.integers(1, 50))
            response = index.keyword(query, k=k)
            wrong = oracle.complaint(response, oracle.keyword(query), k, self.bm25_tolerance)
            assert wrong == "", f"query {number}: {query}"

    def test_several_vector_dbs_rank_as_one(self, indexes: Indexes) -> None:
        """Two halves ranked by their total statistics have the raw scores of the whole.

        This includes ties, repeated terms, the best k of a half, and words that only the other half
        contains. An index without `has_term_statistics` makes no such promise: its hits are merged
        by confidence.

        If this fails: `search_keyword` uses its own number of chunks, average length or frequencies
        somewhere; an engine that proposes candidates must use the given statistics for the bound of
        the chunks that it did not propose.
        """
        halves = {name: indexes.open(name, **PLAIN) for name in ("one", "two")}
        if not all(half.index.has_term_statistics for half in halves.values()):
            return
        rng = np.random.default_rng(11)
        words = [f"w{number}" for number in range(12)]
        for name, size in (("one", 40), ("two", 15)):
            some = words[:9] if name == "one" else words[3:]
            longest = 24 if name == "one" else 6
            halves[name].add_texts(
                {
                    f"{name}{n:02}": " ".join(rng.choice(some, rng.integers(1, longest)))
                    for n in range(size)
                }
            )
        texts = {
            one.chunk_id: {"content": one.content}
            for half in halves.values()
            for one in half.get(*half.chunk_ids())
        }
        for query in ("w0 w4", "w3 w5 w5 w11", "w10 w1", "w2", "w11 unknown", "", "w0 w1 w2 w3 w4"):
            statistics = TermStatistics.total([h.term_statistics(query) for h in halves.values()])
            expected = bm25(query, texts, {"content": 1})
            for name, half in halves.items():
                right = {i: s for i, s in expected.items() if i.startswith(name)}
                leg = half.keyword_leg(query, statistics, k=100)
                assert leg == pytest.approx(right, abs=self.bm25_tolerance), (query, name)
                in_order = sorted(right, key=lambda i: (-right[i], i))
                best = half.keyword_leg(query, statistics, k=4)
                assert [leg[i] for i in best] == pytest.approx(
                    [right[i] for i in in_order[:4]], abs=self.bm25_tolerance
                ), (query, name)

    def test_an_index_that_has_become_empty_finds_nothing(self, indexes: Indexes) -> None:
        """A query finds nothing once all chunks are deleted, and finds a chunk that is added then.

        If this fails: cached values of a term are divided by the mean length of an empty index.
        """
        index = indexes.open(**PLAIN)
        index.add_texts({"a": "alpha beta", "b": "alpha"})
        assert ids(index.keyword("alpha beta")) == ["a", "b"]
        index.remove("a", "b")
        assert ids(index.keyword("alpha beta")) == []
        assert ids(index.hybrid([1, 0], "alpha beta")) == []
        index.add_texts({"c": "beta"})
        assert ids(index.keyword("alpha beta")) == ["c"]

    def test_words_are_joined_by_or(self, indexes: Indexes) -> None:
        """A chunk with any word of the question is found; a chunk with none is not.

        If this fails: the engine joins by AND, and real questions find nothing.
        """
        index = indexes.open()
        index.add_texts({"a": "zebra", "b": "quagga", "c": "zebra and quagga", "d": "lion"})
        assert ids(index.keyword("zebra quagga")) == ["c", "a", "b"]
        assert ids(index.keyword("does the zebra like unheard of things?")) == ["a", "c"]

    def test_more_and_rarer_words_rank_higher(self, indexes: Indexes) -> None:
        """Two rare words beat one, and a rare word beats a common one."""
        index = indexes.open(**PLAIN)
        common = {f"x{n}": f"common filler{n}" for n in range(8)}
        index.add_texts(
            {"both": "rare scarce", "one": "rare filler", "none": "common filler", **common}
        )
        assert ids(index.keyword("common rare scarce", k=2)) == ["both", "one"]
        assert (
            raw_scores(index.keyword("rare"))["one"] > raw_scores(index.keyword("common"))["none"]
        )

    def test_one_chunk_alone_has_a_real_score(self, indexes: Indexes) -> None:
        """With N = 1 the score is ln(4 / 3) = 0.2877, and 0.2234 in [0, 1]; not 0 and not 1e-6.

        If this fails: the idf of a word in more than half of the chunks was cut off.
        """
        index = indexes.open(**PLAIN)
        index.add_texts({"a": "zebra"})
        [hit] = index.keyword("zebra").hits
        raw = hit.explanation.legs["keyword"].raw_score
        assert raw == pytest.approx(math.log(4 / 3), abs=self.bm25_tolerance)
        assert hit.score == pytest.approx(0.22340, abs=1e-4 + self.bm25_tolerance)

    def test_a_word_in_every_chunk_still_counts(self, indexes: Indexes) -> None:
        """All chunks contain the word: all are found, and the shortest is best."""
        index = indexes.open(**PLAIN)
        index.add_texts({f"c{n}": "zebra " + "filler " * n for n in range(5)})
        response = index.keyword("zebra")
        assert ids(response) == ["c0", "c1", "c2", "c3", "c4"]
        assert min(response.scores) > 0.01

    def test_equal_texts_come_in_the_order_of_ids(self, indexes: Indexes) -> None:
        """Chunks with one text share a score; ids ascend, and the cut at k keeps the first ids."""
        index = indexes.open(**PLAIN)
        names = [f"c{number:02}" for number in np.random.default_rng(6).permutation(20)]
        index.add_texts({**dict.fromkeys(names, "zebra"), "z": "zebra zebra"})
        for k in (1, 2, 8, 21, 30):
            assert ids(index.keyword("zebra", k=k)) == ["z", *sorted(names)][:k], f"k={k}"

    def test_writes_change_the_statistics(self, indexes: Indexes) -> None:
        """Adding, replacing and deleting chunks gives the scores of a fresh index.

        If this fails: document counts, frequencies or the average length are only ever added to.
        """
        index = indexes.open(**PLAIN)
        index.add_texts({**CORPUS, "gone": "alpha beta zeta", "d": "alpha alpha alpha alpha eta"})
        index.remove("gone")
        index.add_texts({"d": CORPUS["d"]})
        expected = bm25(
            "alpha zeta", {i: {"content": t} for i, t in CORPUS.items()}, {"content": 1}
        )
        raws = raw_scores(index.keyword("alpha zeta"))
        assert raws == pytest.approx(expected, abs=self.bm25_tolerance)

    def test_statistics_are_per_vector_db(self, indexes: Indexes) -> None:
        """The chunks of another vector DB change no score.

        If this fails: scores leak the words of other vector DBs, and every ranking is wrong.
        """
        index, other = indexes.open("one", **PLAIN), indexes.open("two", **PLAIN)
        index.add_texts(CORPUS)
        before = raw_scores(index.keyword("alpha zeta"))
        other.add_texts({f"x{n}": "alpha zeta" for n in range(50)})
        assert raw_scores(index.keyword("alpha zeta")) == before

    def test_a_query_without_a_word_finds_nothing(self, indexes: Indexes) -> None:
        """A text that is blank or only punctuation has an empty answer."""
        index = indexes.open()
        index.add_texts({"a": "zebra ? - *"})
        for text in WORDLESS:
            assert index.keyword(text).hits == [], repr(text)

    def test_what_separates_words_can_be_searched(self, indexes: Indexes) -> None:
        """Symbols of words, numbers, parts of identifiers, beginnings of codes and emoji are terms.

        If this fails: index the terms of `chunk_terms`, and search for the terms of
        `Analyzer.terms`; a tokenizer of the engine drops or splits them.
        """
        index = indexes.open(language="english")
        names = {f"t{number:02}": text for number, text in enumerate(BESIDE_WORDS)}
        index.add_texts(names)
        for name, text in names.items():
            for question in BESIDE_WORDS[text]:
                assert ids(index.keyword(question))[:1] == [name], question

    def test_terms_beside_the_words_are_no_longer_text(self, indexes: Indexes) -> None:
        """They count half and do not add to the length, so they do not change scores of words.

        Two chunks of two words, N = 2: "alpha beta#" has "beta" and the extra term "beta#". So
        len / avg is 1, a word has the weight 1, the extra term 0.5 * 2.2 / (0.5 + 1.2).
        """
        index = indexes.open(**PLAIN)
        index.add_texts({"a": "alpha beta#", "b": "alpha gamma"})
        assert raw_scores(index.keyword("beta")) == pytest.approx(
            {"a": math.log(2)}, abs=self.bm25_tolerance
        )
        assert raw_scores(index.keyword("beta#")) == pytest.approx(
            {"a": math.log(2) * (1 + 1.1 / 1.7)}, abs=self.bm25_tolerance
        )

    @pytest.mark.parametrize(
        ("language", "texts"),
        [
            (
                "english",
                {
                    "The runners were running fast": ["run"],
                    "several connections": ["connected"],
                    "a cat": ["cats"],
                    "今天天气真好": ["天气"],
                },
            ),
            ("norwegian", {"hundene bjeffer": ["hund"]}),
            ("german", {"die Häuser": ["Haus"]}),
            ("chinese", {"今天天气真好": ["天气", "今天的天气怎么样"]}),
            ("japanese", {"東京タワーは高い": ["東京"]}),
            ("simple", {"Zebra": ["zEBRA"], "ＺＥＢＲＡ": ["zebra"]}),
        ],
        ids=["english", "norwegian", "german", "chinese", "japanese", "simple"],
    )
    def test_inflected_forms_and_unspaced_scripts_are_found(
        self, indexes: Indexes, language: str, texts: dict[str, list[str]]
    ) -> None:
        """The registered language stems; every language segments scripts without spaces.

        If this fails for Chinese: the engine's own tokenizer treats a sentence as one word.
        """
        index = indexes.open(language=language)
        for text, queries in texts.items():
            index.add_texts({"a": text, "b": "unrelated words 你好"})
            for query in queries:
                assert ids(index.keyword(query))[:1] == ["a"], f"{query} in {text}"

    def test_the_simple_language_stems_nothing(self, indexes: Indexes) -> None:
        """`simple` finds exact words, including stop words."""
        index = indexes.open(language="simple")
        index.add_texts({"a": "the running zebra"})
        assert ids(index.keyword("run")) == []
        assert ids(index.keyword("the")) == ["a"]

    def test_a_heavier_title_outranks_content(self, indexes: Indexes) -> None:
        """With title 3 and content 1 a word in the title wins, with 1 and 3 the word in the text.

        If this fails: field weights are stored but not used.
        """
        chunks = [chunk("t", "quagga", title="zebra"), chunk("c", "zebra", title="quagga")]
        for name, title, content, order in (("x", 3, 1, ["t", "c"]), ("y", 1, 3, ["c", "t"])):
            weights = {"content": content, "title": title}
            index = indexes.open(name, language="simple", field_weights=weights)
            index.add(chunks)
            assert ids(index.keyword("zebra")) == order

    def test_field_weights_multiply_the_frequency(self, indexes: Indexes) -> None:
        """f is the sum over the fields of weight times count; lengths are unweighted counts."""
        weights = {"content": 1.0, "title": 2.0, "tags": 0.5}
        index = indexes.open(language="simple", field_weights=weights)
        texts = {
            "a": {"content": "zebra quagga", "title": "zebra", "tags": "lion"},
            "b": {"content": "lion lion zebra", "title": "quagga okapi", "tags": ""},
            "c": {"content": "okapi", "title": "", "tags": "zebra zebra"},
        }
        index.add(
            [
                chunk(i, t["content"], title=t["title"], tags=t["tags"].split())
                for i, t in texts.items()
            ]
        )
        for query in ("zebra", "lion okapi", "quagga"):
            raws = raw_scores(index.keyword(query))
            expected = bm25(query, texts, weights)
            assert raws == pytest.approx(expected, abs=self.bm25_tolerance)

    def test_only_registered_fields_are_searched(self, indexes: Indexes) -> None:
        """Words in metadata without a weight are not found; a field may be a list or a number."""
        weights = {"content": 1.0, "tags": 1.0, "year": 1.0}
        index = indexes.open(field_weights=weights)
        index.add(
            [chunk("a", "text", tags=["zebra", "lion"], year=1848, note="okapi", title="quagga")]
        )
        for word, expected in {"lion": ["a"], "1848": ["a"], "okapi": [], "quagga": []}.items():
            assert ids(index.keyword(word)) == expected, word
