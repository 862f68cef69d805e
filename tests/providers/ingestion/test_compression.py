"""One layer of gzip, bzip2, xz or Zstandard around a document is opened."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from corral.api.errors import InvalidRequest
from corral.providers.base.config import RagSettings
from corral.providers.ingestion.read.compression import unpacked
from corral.providers.ingestion.read.detecting import MARKDOWN, PDF, type_of
from corral.providers.ingestion.read.mime_types import served_type
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.read.reading import Reader

from .made_files import FORMATS

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_a_compressed_document_is_the_document(form: str, pack: Callable[[bytes], bytes]) -> None:
    """Of every format, by the name of the file inside.

    If this fails: a compressed file is refused, or stored as something else.
    """
    name, make = FORMATS[form]
    data = make(random.Random(1)).data
    assert parse(pack(data), type_of(name)) == parse(data, type_of(name))


@pytest.mark.parametrize("suffix", PACKERS)
async def test_a_compressed_upload_is_read(suffix: str, tmp_path: Path) -> None:
    """A small text too, which the server's own process would read without the layer."""
    (tmp_path / "blob").write_bytes(PACKERS[suffix](b"# Hay\n\nDry."))
    parsed = await Reader(RagSettings()).read_file(tmp_path / "blob", f"notes.md.{suffix}")
    assert (parsed.title, parsed.text) == ("Hay", "# Hay\n\nDry.")


@pytest.mark.parametrize("mime_type", [None, "text/plain", "application/gzip", "application/x-xz"])
def test_the_type_is_that_of_the_content(mime_type: str | None) -> None:
    """A sender may name the layer, the document, or nothing."""
    assert parse(gzip.compress(b"Hay is dry."), mime_type).text == "Hay is dry."


def test_names_and_addresses_look_through_the_layer() -> None:
    """`a.md.gz` is Markdown; `a.gz` says nothing."""
    assert type_of("a.md.gz") == type_of("A.MD.XZ") == MARKDOWN
    assert type_of("a.gz") is type_of(".gz") is None
    assert served_type("https://x/a.pdf.bz2", "application/x-bzip2") == PDF


def test_several_members_are_one_document() -> None:
    """As `cat a.gz b.gz` makes them."""
    for pack in PACKERS.values():
        assert unpacked(pack(b"Hay ") + pack(b"is dry.")) == b"Hay is dry."


def test_a_limit_ends_it() -> None:
    """The limit itself is allowed; a byte more is not unpacked, and other files are untouched."""
    for pack in PACKERS.values():
        assert unpacked(pack(b"hay"), limit=3) == b"hay"
        with pytest.raises(InvalidRequest, match="unpacks to more than 2 bytes"):
            unpacked(pack(b"hay"), limit=2)
    assert unpacked(b"hay", limit=2) == b"hay"
