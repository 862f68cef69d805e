"""Documents go in whole or not at all."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import derive_chunk_id
from corral.api.errors import InvalidRequest, NotFound, Unavailable
from corral.api.rag import URL
from corral.providers.base.config import Limits, RagSettings
from corral.providers.ingestion.ingest import InsertReport
from corral.providers.ingestion.read.fetching import Fetched, Fetcher
from corral.providers.text.tokens import tokenizer

from ..text.test_tokens import Words
from .fake_library import FakeLibrary, SharedWordsEngine, WordEmbedder
from .inserting import document, ingester, insert

PROSE = "Cattle graze in the valley. " * 60


def contents(library: FakeLibrary, name: str = "db") -> list[str]:
    """Return the stored texts, sorted."""
    return sorted(chunk.content for chunk in library.engines[name].chunks.values())


# --- insert ----------------------------------------------------------------------------------


async def test_a_document_becomes_chunks_with_their_origin() -> None:
    """The user's metadata, ids and counts; and where the chunk is from, how and by what made."""
    library = FakeLibrary()
    given = document("guide", PROSE, metadata={"farm": "north", "source": "https://x/guide"})
    report = await insert(library, given, chunk_size_in_tokens=40, overlap=0)
    chunks = list(library.engines["db"].chunks.values())
    assert report == InsertReport({"guide": len(chunks)})
    assert len(chunks) > 5
    for position, chunk in enumerate(chunks):
        tokens = tokenizer().count(chunk.content)
        printed = '{"farm":"north","source":"https://x/guide","document_id":"guide"}'
        assert chunk.chunk_id == derive_chunk_id("guide", chunk.content, position)
        assert chunk.metadata == {
            "farm": "north",
            "source": "https://x/guide",
            "document_id": "guide",
            "token_count": tokens,
            "metadata_token_count": tokenizer().count(printed),
        }
        origin = chunk.chunk_metadata
        assert origin is not None
        start, end = map(int, (origin.chunk_window or "").split("-"))
        assert end - start == tokens == origin.content_token_count
        assert origin.chunk_id == chunk.chunk_id
        assert origin.document_id == "guide"
        assert origin.source == "https://x/guide"
        assert origin.chunk_tokenizer == "cl100k"
        assert origin.chunk_embedding_model == "words"
        assert origin.chunk_embedding_dimension == 16
        assert origin.metadata_token_count == chunk.metadata["metadata_token_count"]
        assert origin.created_timestamp is not None
        assert origin.created_timestamp > 1_700_000_000
    assert given.metadata == {"farm": "north", "source": "https://x/guide"}, "mutated"


async def test_equal_input_gives_equal_ids() -> None:
    """So that inserting the same document again changes nothing."""
    one, two = FakeLibrary(), FakeLibrary()
    for library in (one, two):
        await insert(library, document("a", PROSE))
    assert one.engines["db"].chunks.keys() == two.engines["db"].chunks.keys()


async def test_equal_passages_of_one_document_stay_apart() -> None:
    """Their positions tell them apart."""
    library = FakeLibrary()
    report = await insert(
        library, document("a", "hay hay hay\n\n" * 20), chunk_size_in_tokens=4, overlap=0
    )
    assert len(library.engines["db"].chunks) == report.chunks["a"] == 20


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 64), ({"chunk_size_in_tokens": 16}, 16), ({"chunk_size_in_tokens": 200}, 200)],
)
async def test_the_request_decides_on_the_size_or_the_registration(
    options: dict[str, int], most: int
) -> None:
    """Chunks reach the size and do not exceed it."""
    library = FakeLibrary("db", chunking={"chunk_size_in_tokens": 64, "overlap_in_tokens": 16})
    await insert(library, document("a", PROSE), **options)
    sizes = [tokenizer().count(text) for text in contents(library)]
    assert most - 12 < max(sizes) <= most


@pytest.mark.parametrize(
    ("options", "shared"),
    [
        ({}, True),
        ({"chunk_size_in_tokens": 32}, True),
        ({"overlap": 0}, False),
        ({"chunk_size_in_tokens": 32, "overlap": 16}, True),
        ({"chunk_size_in_tokens": 2}, False),
    ],
)
async def test_the_overlap_is_the_requests_or_in_the_registrations_proportion(
    options: dict[str, int], shared: bool
) -> None:
    """A quarter of the size here, unless the request says otherwise."""
    library = FakeLibrary("db", chunking={"chunk_size_in_tokens": 64, "overlap_in_tokens": 16})
    text = " ".join(f"Cow {n} grazes." for n in range(100))
    await insert(library, document("a", text), **options)
    assert (sum(map(len, contents(library))) > len(text)) == shared


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"chunk_size_in_tokens": 0}, "chunk_size_in_tokens"),
        ({"chunk_size_in_tokens": 10_000}, "chunk_size_in_tokens"),
        ({"chunk_size_in_tokens": 10, "overlap": 6}, "chunk_size_in_tokens"),
        ({"overlap": -1}, "overlap_in_tokens"),
    ],
)
async def test_a_size_out_of_range_is_refused(options: dict[str, int], field: str) -> None:
    """The error names the field and the range."""
    with pytest.raises(InvalidRequest, match="8192") as caught:
        await insert(FakeLibrary(), document("a", PROSE), **options)
    assert caught.value.field == field


async def test_markdown_gets_its_title() -> None:
    """The first heading of level 1, unless the user gave one; plain text has none."""
    text = "# Grazing plan\n\nCattle graze."
    library = FakeLibrary()
    await insert(
        library,
        document("a", text, mime_type="text/markdown"),
        document("b", text, mime_type="text/markdown", metadata={"title": "Mine"}),
        document("c", text),
    )
    titles = {c.document_id: c.metadata.get("title") for c in library.engines["db"].chunks.values()}
    assert titles == {"a": "Grazing plan", "b": "Mine", "c": None}


@pytest.mark.parametrize("mime_type", ["text/markdown", "text/plain"])
async def test_markdown_is_split_at_its_headings(mime_type: str) -> None:
    """A heading stays with its section, which the same lines as plain text do not know."""
    library = FakeLibrary()
    sections = ["# One\n\nfirst", "# Three\n\nthird", "# Two\n\nsecond"]
    text = "\n\n".join([sections[0], sections[2], sections[1]])
    given = document("a", text, mime_type=mime_type)
    await insert(library, given, chunk_size_in_tokens=8, overlap=0)
    assert (contents(library) == sections) == (mime_type == "text/markdown")


async def test_the_text_is_embedded_as_it_is_stored() -> None:
    """Content only: no title, no metadata."""
    library = FakeLibrary()
    await insert(library, document("a", "# T\n\nhay\u200b", mime_type="text/markdown"))
    assert library.embedders["words"].documents == ["# T\n\nhay"] == contents(library)


async def test_a_data_uri_is_read() -> None:
    """Nothing is fetched; the URI is no source, since it is the content itself."""
    library = FakeLibrary()
    uri = "data:text/markdown;base64," + base64.b64encode(b"# Hay\n\ndry").decode()
    await insert(library, document("a", URL(uri=uri)))
    (chunk,) = library.engines["db"].chunks.values()
    assert chunk.content == "# Hay\n\ndry"
    assert chunk.metadata["title"] == "Hay"
    assert chunk.chunk_metadata is not None
    assert chunk.chunk_metadata.source is None


async def test_a_fetched_document_remembers_its_source() -> None:
    """The type is the server's, the source is the URI that was asked for."""

    class Canned(Fetcher):
        async def fetch(self, uri: str, etag: str | None = None) -> Fetched:
            return Fetched("# Käse".encode("latin-1"), "text/plain; charset=latin-1", uri)

    library = FakeLibrary()
    uri = "https://docs.example.org/a.md"
    fetching = ingester(fetcher=Canned(RagSettings()))
    await fetching.insert(library, [document("a", URL(uri=uri))], "db")
    (chunk,) = library.engines["db"].chunks.values()
    assert chunk.content == "# Käse"
    assert chunk.metadata["title"] == "Käse"
    assert chunk.chunk_metadata is not None
    assert chunk.chunk_metadata.source == uri


@pytest.mark.parametrize(
    "uri", ["file:///etc/passwd", "http://127.0.0.1:8321/", "https://docs.example.org/x", "x"]
)
async def test_no_address_is_fetched_by_default(uri: str) -> None:
    """The error names the document and the setting; nothing is stored."""
    library = FakeLibrary()
    with pytest.raises(InvalidRequest, match=r"'b'.*rag\.allowed_url_hosts") as caught:
        await insert(library, document("a", "hay"), document("b", URL(uri=uri)))
    assert caught.value.field == "documents[1].content.uri"
    assert library.engines["db"].writes == 0


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"content": "\u200b\u200b"}, "documents[1].content"),
        ({"content": URL(uri="data:,%20%0A")}, "documents[1].content"),
        ({"content": URL(uri="data:;base64,%")}, "documents[1].content.uri"),
        ({"content": "x", "mime_type": "image/png"}, "documents[1].mime_type"),
        ({"content": "x", "mime_type": "application/pdf"}, "documents[1].mime_type"),
        ({"content": URL(uri="data:application/pdf;base64,AAAA")}, "documents[1].content"),
        ({"content": URL(uri="data:text/plain,%FF")}, "documents[1].content"),
    ],
)
async def test_an_unreadable_document_is_named_and_nothing_stored(
    bad: dict[str, Any], field: str
) -> None:
    """Empty, malformed, of a wrong type, broken or not UTF-8."""
    library = FakeLibrary()
    with pytest.raises(InvalidRequest, match="Document 'bad'") as caught:
        await insert(library, document("good", "hay"), document("bad", **bad))
    assert caught.value.field == field
    assert library.engines["db"].writes == 0


async def test_a_document_twice_in_a_request_is_refused() -> None:
    """Which of the two was meant nobody knows."""
    with pytest.raises(InvalidRequest, match="'a' is in the request twice") as caught:
        await insert(FakeLibrary(), document("a", "x"), document("b", "y"), document("a", "z"))
    assert caught.value.field == "documents[2].document_id"


async def test_no_document_is_refused() -> None:
    """An empty list is a mistake."""
    with pytest.raises(InvalidRequest) as caught:
        await insert(FakeLibrary())
    assert caught.value.field == "documents"


async def test_an_unknown_vector_db_is_refused_first() -> None:
    """Before anything is parsed."""
    with pytest.raises(NotFound, match="nowhere"):
        await ingester().insert(FakeLibrary(), [document("a", "\u200b")], "nowhere")


@pytest.mark.parametrize(
    ("limits", "name"),
    [(Limits(max_documents_per_insert=1), "max_documents_per_insert"),
     (Limits(max_chunks_per_insert=3), "max_chunks_per_insert")],
)  # fmt: skip
async def test_an_insert_is_bounded(limits: Limits, name: str) -> None:
    """Documents and chunks; the error names the setting, and nothing is stored or embedded."""
    library, texts = FakeLibrary(), [document("a", PROSE), document("b", PROSE)]
    with pytest.raises(InvalidRequest, match=f"server.limits.{name}"):
        await ingester(limits).insert(library, texts, "db", 64)
    assert library.engines["db"].writes == 0
    assert library.embedders["words"].documents == []


async def test_several_documents_are_one_write() -> None:
    """All or nothing, old versions replaced in it."""
    library = FakeLibrary()
    await insert(library, document("a", "old a"), document("b", "old b"), document("c", "old c"))
    report = await insert(library, document("a", "new a"), document("b", "new b"))
    assert library.engines["db"].writes == 2
    assert contents(library) == ["new a", "new b", "old c"]
    assert report.chunks == {"a": 1, "b": 1}


async def test_a_failed_insert_leaves_the_old_version() -> None:
    """The embedder fails in the middle: the old document is whole, the new one absent."""
    library = FakeLibrary()
    await insert(library, document("a", "old a"))
    library.embedders["words"].broken = 2
    with pytest.raises(Unavailable):
        await insert(library, document("a", "new a"), document("b", "new b"))
    assert contents(library) == ["old a"]


class Reading(WordEmbedder):
    """An embedder that reads ten words of a text, two of which are its marks."""

    marks = 2

    def __init__(self) -> None:
        super().__init__("words")
        self.info = self.info.model_copy(update={"max_tokens": 10})
        self.tokenizer = Words()


def longest(library: FakeLibrary) -> int:
    """Return the words of the longest chunk."""
    return max(len(text.split()) for text in contents(library))


async def test_chunks_fit_the_model_unless_somebody_says_a_size() -> None:
    """The default size is also bounded by the model; one that is asked for is kept, with a note.

    If this fails: the end of a chunk is stored and never found by its meaning.
    """
    for size, registered, fits in ((None, 256, True), (40, 256, False), (None, 40, False)):
        sizes = {"chunk_size_in_tokens": registered, "overlap_in_tokens": 0}
        library = FakeLibrary(chunking=sizes)
        library.embedders["words"] = Reading()
        report = await insert(library, document("a", PROSE), chunk_size_in_tokens=size)
        assert (longest(library) <= 8) == fits
        if fits:
            assert report.notes == []
        else:
            count = len(contents(library))
            (note,) = report.notes
            assert note.startswith(f"{count} of {count} chunks are longer than the 8 tokens that")
    small = await insert(library, document("a", PROSE), chunk_size_in_tokens=8)
    assert small.notes == []


# --- writers at once -------------------------------------------------------------------------


class Hesitating(WordEmbedder):
    """An embedder that lets the later versions of a document overtake the earlier ones."""

    async def embed_documents(self, texts: Any) -> NDArray[np.float32]:
        for _ in range(20 - int(texts[0].split()[1])):
            await asyncio.sleep(0)
        return await super().embed_documents(texts)


class Watched(SharedWordsEngine):
    """An index that notes whose version is stored, write by write."""

    async def add(self, chunks: Any, embeddings: Any, replace_documents: Any) -> None:
        await super().add(chunks, embeddings, replace_documents)
        self.versions.append({c.content.split()[1] for c in self.chunks.values()})

    versions: list[set[str]]


async def test_of_many_writers_of_one_document_the_last_one_wins_whole() -> None:
    """16 at once: at every moment one version is stored whole, in the end the last acknowledged.

    If this fails: a document is written in more than one call, and versions mix.
    """
    library = FakeLibrary()
    library.embedders["words"] = Hesitating("words")
    engine = Watched(library.vector_dbs["db"])
    engine.versions = []
    library.use(engine)
    writer = ingester()
    acknowledged: list[tuple[str, int]] = []

    async def write(version: int) -> None:
        text = " ".join(f"Version {version} says hay." for _ in range(30 + version))
        report = await writer.insert(library, [document("a", text)], "db", 6, 0)
        acknowledged.append((str(version), report.chunks["a"]))

    async def run() -> None:
        await asyncio.gather(*(write(version) for version in range(16)))

    await run()
    assert len(engine.versions) == 16
    assert all(len(stored) == 1 for stored in engine.versions)
    version, count = acknowledged[-1]
    assert engine.versions[-1] == {version}
    assert len(engine.chunks) == count >= 30
