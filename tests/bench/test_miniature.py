"""The set that the project makes itself asks for words and for meaning."""

from __future__ import annotations

from pathlib import Path

from corral.bench.data.datasets import read_sets
from corral.bench.data.miniature import miniature_sets, write_miniature


def test_it_is_the_same_for_everybody(tmp_path: Path) -> None:
    """Equal seeds write equal files, another seed other ones."""
    names = ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"]
    texts = []
    for number, seed in enumerate((0, 0, 1)):
        english, _ = write_miniature(tmp_path / str(number), seed)
        texts.append([(english / name).read_text("utf-8") for name in names])
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_its_size_and_languages() -> None:
    """300 English notes with 42 questions, some German ones, all graded."""
    english, german = read_sets(["miniature"])
    assert (len(english.documents), len(english.queries), english.language) == (300, 42, "english")
    assert (len(german.documents), len(german.queries), german.language) == (48, 12, "german")
    grades = {grade for judged in english.qrels.values() for grade in judged.values()}
    assert grades == {1, 2}
    assert english.kind == "miniature"


def test_words_and_meaning_are_asked_for() -> None:
    """A part number stands in one note; a layman's question shares no noun with its note."""
    english, _ = miniature_sets()
    for key, text in english.queries.items():
        notes = [english.documents[one] for one in english.qrels[key]]
        words = {word.strip("?!.,:").lower() for word in text.split()}
        if key.startswith("code"):
            code = next(word for word in words if "x-" in word)
            assert [code in note.lower() for note in notes] == [True]
            assert sum(code in note.lower() for note in english.documents.values()) == 1
        elif key.startswith("meaning"):
            device = notes[0].split("if the ")[1].split()[0]
            assert device not in words
