"""Every format comes back with its text, in order, with its pages and headings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from corral.providers.base.config import RagSettings
from corral.providers.ingestion.read.detecting import type_of
from corral.providers.ingestion.read.parsing import ParsedDocument, parse
from corral.providers.ingestion.read.reading import Reader

from .made_files import FORMATS as FILES
from .made_files import Made
from .made_texts import TEXTS

FORMATS = {**FILES, **TEXTS}

COUNT = 20
"""Documents of each format."""


def check(parsed: ParsedDocument, made: Made) -> None:
    """Compare what was read with what was written; white space is the format's."""
    words, starts = [], []
    position = 0
    for word in parsed.text.split():
        position = parsed.text.index(word, position)
        words.append(word)
        starts.append(position)
        position += len(word)
    flat = " ".join(words)
    reached = 0
    for number, text in enumerate(made.texts):
        wanted = " ".join(text.split())
        at = flat.find(wanted, reached)
        assert at >= 0, (wanted, flat[reached : reached + 300])
        assert flat.count(wanted) == made.texts.count(text) or len(wanted) < 40, wanted
        if made.pages is not None:
            place = starts[flat.count(" ", 0, at)]
            assert parsed.page(place) == made.pages[number], wanted
        reached = at + len(wanted)
    if made.pages is None:
        assert parsed.page_starts == ()
    if made.headings is not None:
        assert tuple((each.level, each.text) for each in parsed.headings) == made.headings
    assert parsed.title == made.title
    assert parsed.metadata == made.metadata
    if made.parts is not None:
        assert sorted(parsed.parts or ()) == sorted(made.parts)
    assert not [text for text in made.absent if text in parsed.text]


@pytest.mark.parametrize("form", FORMATS)
def test_documents_come_back_whole(form: str) -> None:
    """Text in order and once, each part on its page, headings with their levels, the title.

    If this fails: what is stored is not what the file says, or is cited from the wrong place.
    """
    name, make = FORMATS[form]
    for seed in range(COUNT):
        made = make(random.Random(seed))
        try:
            check(parse(made.data, type_of(name)), made)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize(
    "form", ["html", "pdf", "docx", "pptx", "xlsx", "epub", "eml", "odt", "odp", "rtf"]
)
def test_the_bytes_decide_and_not_the_name(form: str) -> None:
    """A file of the wrong name, or of none, is read as what it is.

    If this fails: a renamed PDF is stored as binary noise, or refused.
    """
    _, make = FORMATS[form]
    made = make(random.Random(1))
    names = (
        [None] if form in {"html", "eml"} else [None, "text/plain", "text/html", "application/pdf"]
    )
    for named in names:
        check(parse(made.data, named), made)


@pytest.mark.parametrize("form", ["text", "pdf", "docx", "code"])
async def test_a_file_on_disk_is_read_in_a_process(form: str, tmp_path: Path) -> None:
    """As an upload is, by its path: the same document."""
    name, make = FORMATS[form]
    made = make(random.Random(2))
    path = tmp_path / "blob"
    path.write_bytes(made.data)
    assert await Reader(RagSettings()).read_file(path, name) == parse(made.data, type_of(name))
