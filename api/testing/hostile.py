"""Standard tests: any text is data, never syntax."""

from __future__ import annotations

from corral.api.testing.indexes import Indexes, chunk, ids
from corral.api.testing.suite import Suite, needs

QUERIES = [
    "what is torchtune?", "E-4711", "it's", '"', "'", '"unclosed', "NEAR(", "NEAR(a b, 5)", "*",
    "a*", "a AND", "OR", "NOT a", "a OR NOT", "-", "-a", "--", "+", "^a", ":", "content:a",
    "{a b}: c", "(", ")", "a\0b", "\0", "🙂", "👩\u200d🚀", "", " ", "\n", "\\", "%", "_", ";",
    "'; DROP TABLE chunks; --", "$1", "?1", "{{x}}", "<script>", "&|!", "a & | b", "a <-> b", "a:*",
    "\u202eabc", "e\u0301", "ﬁ", "½", "\ufeff", "a" * 10_000, "null", "None", "true", "1e999",
    "-1", "a=b", "a~2", "/regex/", "[a TO b]", "a^2",
]  # fmt: skip
"""Query syntax of several engines, punctuation, and text that breaks encoders."""


class HostileTextTests(Suite):
    """Queries and contents that look like syntax."""

    @needs(lambda can: can.keyword != "no")
    def test_no_query_text_raises(self, indexes: Indexes) -> None:
        """Keyword and hybrid mode search each of these texts as words, without an error.

        If this fails: the text reaches the engine's query parser.
        """
        index = indexes.open()
        index.add_texts({"a": "torchtune is a library", "b": "part E-4711 of it"})
        for text in QUERIES:
            for mode in sorted({"keyword", "hybrid"} & set(self.capabilities.modes)):
                index.search(mode, [1, 0], text)

    @needs(lambda can: can.keyword != "no")
    def test_words_are_found_among_signs(self, indexes: Indexes) -> None:
        """A word is found despite quotes, operators and punctuation around it."""
        index = indexes.open()
        index.add_texts({"a": "torchtune", "b": "part E-4711", "c": "lion"})
        queries = [
            "what is torchtune?", '"torchtune', "NEAR(torchtune", "torchtune*", "torchtune AND",
            "-torchtune", "content:torchtune", "(torchtune))", "torch\0tune", "torchtune🙂",
            "^torchtune", "torchtune'",
        ]  # fmt: skip
        hidden = [text for text in queries if ids(index.keyword(text))[:1] != ["a"]]
        assert hidden == []
        assert ids(index.keyword("E-4711")) == ["b"]
        assert ids(index.keyword("NOT lion")) == ["c"]

    def test_any_text_is_stored_and_found_by_its_id(self, indexes: Indexes) -> None:
        """Each of these as content, id, metadata key and value comes back unchanged, except NUL.

        Corral removes NUL before storage. If this fails: look at escaping and at encodings.
        """
        index = indexes.open()
        texts = {text.replace("\0", "")[:200]: text for text in QUERIES}
        chunks = [
            chunk(name, text, value=text, **({name: text})) for name, text in texts.items() if name
        ]
        index.add(chunks)
        assert index.count() == len(chunks)
        assert index.get(*[c.chunk_id for c in chunks]) == chunks
        for mode in self.capabilities.modes:
            for hit in index.search(mode, [1, 0], "torchtune", k=5).chunks:
                assert hit in chunks

    def test_control_characters_survive(self, indexes: Indexes) -> None:
        """Every control character but NUL is kept in content and metadata."""
        index = indexes.open()
        text = "".join(map(chr, range(1, 32))) + "\x7f\x80\u2028\ufffd\ue000\U0010ffff"
        index.add([chunk("a", text, value=text)])
        assert index.get("a") == [chunk("a", text, value=text)]
