"""A vector DB follows its source: what every source has in common."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from corral.api.errors import ConfigError, Conflict
from corral.providers.base.documents import Page, all_documents, read_document
from corral.providers.sources.sync import SyncReport
from corral.providers.stack.stack import Stack

from ..ingestion.jobs_stack import Watched, of_text, opened
from .places import PLACES, Folder, Place, Repository

WORDS = {"lion": "The lion sleeps.", "zebra": "The zebra runs.", "okapi": "The okapi hides."}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Make each kind of place, with three documents."""
    with PLACES[request.param](tmp_path) as made:
        for name, text in WORDS.items():
            made.put(f"animals/{name}.txt", text)
        yield made


@pytest.fixture
def here(tmp_path: Path) -> Folder:
    """Make a folder with three documents."""
    made = Folder(tmp_path)
    for name, text in WORDS.items():
        made.put(f"animals/{name}.txt", text)
    return made


def entry(place: Place, **more: Any) -> dict[str, Any]:
    """Return the sync of a place, as run.yaml has it."""
    return {"name": "mine", "vector_db_id": "db", "source": place.settings, **more}


async def run(stack: Stack, *, full: bool = False) -> SyncReport:
    """Run the sync and return its report; a run that fails is an AssertionError."""
    sync = stack.syncs.entry("", "db", "mine")
    state = stack.syncs.start(sync, full=full)
    await stack.syncs.wait(sync)
    assert state.status == "completed", state.error
    return state.report


async def failure(stack: Stack) -> str:
    """Run a sync that fails and return the reason."""
    sync = stack.syncs.entry("", "db", "mine")
    state = stack.syncs.start(sync)
    await stack.syncs.wait(sync)
    assert state.status == "failed"
    return state.error


async def stored(stack: Stack) -> dict[str, str]:
    """Return the text of each document by id."""
    index = await stack.index("db")
    texts = {}
    async for page in all_documents(index):
        for each in page:
            document = await read_document(index, each.document_id, Page(0, 10))
            assert document
            texts[each.document_id] = "".join(str(c.content) for c in document.chunks)
    return texts


def counts(report: SyncReport) -> tuple[int, int, int, int]:
    """Return the numbers of stored, unchanged, deleted and failed documents."""
    return report.stored, report.unchanged, report.deleted, report.failed


async def test_a_vector_db_follows_its_source(
    place: Place, tmp_path: Path, embedder: Watched
) -> None:
    """New and changed documents are stored, deleted ones deleted, unchanged ones not read.

    If this fails: the versions of the listing and of the stored documents differ in form.
    """
    ids = {name: place.document_id(f"animals/{name}.txt") for name in WORDS}
    async with opened(tmp_path / "home", sync=[entry(place)]) as stack:
        assert counts(await run(stack)) == (3, 0, 0, 0)
        assert await stored(stack) == {ids[name]: text for name, text in WORDS.items()}
        embedder.texts.clear()
        assert counts(await run(stack)) == (0, 3, 0, 0)
        assert embedder.texts == []

        place.put("animals/lion.txt", "The lion has woken up.")
        place.put("animals/ibis.txt", "The ibis flies.")
        place.remove("animals/zebra.txt")
        assert counts(await run(stack)) == (2, 1, 1, 0)
        assert await stored(stack) == {
            ids["lion"]: "The lion has woken up.",
            ids["okapi"]: WORDS["okapi"],
            place.document_id("animals/ibis.txt"): "The ibis flies.",
        }


async def test_what_cannot_be_reached_deletes_nothing(place: Place, tmp_path: Path) -> None:
    """An unreachable source fails the run, and every document stays.

    If this fails: a failed listing is taken for an empty one.
    """
    async with opened(tmp_path / "home", sync=[entry(place)]) as stack:
        await run(stack)
        place.vanish()
        assert await failure(stack)
        assert len(await stored(stack)) == 3


async def test_an_empty_source_deletes_nothing(place: Place, tmp_path: Path) -> None:
    """A source without any document, such as a disk that is not mounted, is a problem to report."""
    async with opened(tmp_path / "home", sync=[entry(place)]) as stack:
        await run(stack)
        if isinstance(place, Repository):
            place.put("animals/.keep", "")  # a commit has at least a file
        for name in WORDS:
            place.remove(f"animals/{name}.txt")
        report = await run(stack)
        assert report.deleted == 0
        assert "lists no document" in report.problems[0]
        assert len(await stored(stack)) == 3


async def test_another_process_of_the_same_data_starts_where_this_one_was(
    place: Place, tmp_path: Path
) -> None:
    """What is stored is the memory: after a restart nothing is read again."""
    async with opened(tmp_path / "home", sync=[entry(place)]) as stack:
        await run(stack)
    async with opened(tmp_path / "home", sync=[entry(place)]) as stack:
        assert counts(await run(stack)) == (0, 3, 0, 0)


async def test_a_run_that_broke_off_is_continued(
    here: Folder, tmp_path: Path, embedder: Watched
) -> None:
    """After an interruption in the middle, the next run stores the rest, and each document once.

    If this fails: a document is taken for stored before it is.
    """
    for number in range(100):
        here.put(f"n{number:03}.txt", f"Text {number} of many.")
    async with opened(tmp_path / "home", sync=[entry(here)]) as stack:
        embedder.gate.clear()
        sync = stack.syncs.entry("", "db", "mine")
        state = stack.syncs.start(sync)
        await embedder.pass_one()
        await embedder.waiting.wait()
        await stack.syncs.close()
        assert state.status == "failed"
        embedder.gate.set()
    async with opened(tmp_path / "home", sync=[entry(here)]) as stack:
        report = await run(stack)
        assert report.stored + report.unchanged == 103
        assert len(await stored(stack)) == 103
        assert counts(await run(stack)) == (0, 103, 0, 0)


async def test_one_run_at_a_time(here: Folder, tmp_path: Path, embedder: Watched) -> None:
    """A second run of the vector DB is a conflict, here and in another process of the data folder.

    If this fails: two runs delete what the other one stores.
    """
    home = tmp_path / "home"
    other = {**entry(here), "name": "other"}
    async with opened(home, sync=[entry(here), other]) as stack:
        embedder.gate.clear()
        first = stack.syncs.entry("", "db", "mine")
        stack.syncs.start(first)
        for name in ("mine", "other"):
            with pytest.raises(Conflict, match="is running"):
                stack.syncs.start(stack.syncs.entry("", "db", name))
        embedder.gate.set()
        await stack.syncs.wait(first)
        [path] = (home / "syncing").iterdir()
        with FileLock(path), pytest.raises(Conflict):
            stack.syncs.start(first)
        await run(stack)


async def test_documents_from_elsewhere_are_not_touched(here: Folder, tmp_path: Path) -> None:
    """A document of the same id fails, unless `replace`; documents of others are never deleted."""
    key = "animals/lion.txt"
    for replace in (False, True):
        async with opened(tmp_path / "home", sync=[entry(here, replace=replace)]) as stack:
            if not replace:
                for name in (key, "mine.txt"):
                    jobs = await stack.ingestion.submit([of_text(name, "By hand.")])
                    await stack.ingestion.wait(jobs, 60)
            report = await run(stack)
            texts = await stored(stack)
            assert texts["mine.txt"] == "By hand."
            assert texts[key] == (WORDS["lion"] if replace else "By hand.")
            assert [name for name, _ in report.failures] == ([] if replace else [key])


async def test_settings_of_the_documents(here: Folder, tmp_path: Path) -> None:
    """A prefix, metadata and an acl are those of every document; secrets and locks are left out.

    As in `corral ingest`, text may be Windows-1252, and one layer of compression is opened.
    """
    here.put("id_rsa", "secret")
    here.put("package-lock.json", "{}")
    here.put("picture.png", "not a picture")
    here.put("latin.txt", "")
    (here.root / "latin.txt").write_bytes("Café au lait".encode("windows-1252"))
    here.put("empty.txt", " ")
    (here.root / "hay.md.gz").write_bytes(gzip.compress(b"Hay is dry."))
    (here.root / os.fsdecode(b"gr\xe4s.txt")).write_text("Hay is dry.")
    (here.root / "two.gz").write_bytes(gzip.compress(gzip.compress(b"Hay is dry.")))
    more = {"prefix": "zoo/", "metadata": {"year": 2026}, "acl": ["user:ann"]}
    async with opened(tmp_path / "home", sync=[entry(here, **more)]) as stack:
        report = await run(stack)
        texts = await stored(stack)
        assert texts.pop("zoo/latin.txt") == "Café au lait"
        assert texts.pop("zoo/hay.md.gz") == "Hay is dry."
        assert set(texts) == {f"zoo/animals/{name}.txt" for name in WORDS}
        assert dict(report.skips) == {
            "id_rsa": "secret or key; the source's as_text takes it",
            "package-lock.json": "lock file; the source's as_text takes it",
            "zoo/picture.png": "a picture, sound or film",
            "zoo/empty.txt": "empty",
            "gr?s.txt": "its name is not UTF-8; rename it",
            "two.gz": "a compressed file",
        }
        document = await read_document(await stack.index("db"), "zoo/latin.txt", Page(0, 1))
        assert document
        assert document.metadata["year"] == 2026
        assert document.metadata["title"] == "latin"
        assert document.chunks[0].acl == ["user:ann"]


async def test_pictures_are_read_if_asked(here: Folder, tmp_path: Path) -> None:
    """A picture is skipped by its name; with `pictures` it is read, and this one is a text."""
    here.put("picture.png", "not a picture")
    for pictures in (False, True):
        home = tmp_path / f"home-{pictures}"
        async with opened(home, sync=[entry(here, pictures=pictures)]) as stack:
            report = await run(stack)
            assert [name for name, _ in report.skips] == ([] if pictures else ["picture.png"])
            assert ("picture.png" in await stored(stack)) == pictures


async def test_one_bad_document_fails_alone(here: Folder, tmp_path: Path) -> None:
    """The others are stored; what was stored of the bad one stays, and it is tried again."""
    here.put("report.pdf", "%PDF-1.4 broken")
    async with opened(tmp_path / "home", sync=[entry(here)]) as stack:
        for unchanged in (0, 3):
            report = await run(stack)
            assert counts(report) == (3 - unchanged, unchanged, 0, 1)
            assert report.failures[0][0] == "report.pdf"
            assert "cannot be read" in report.failures[0][1]


async def test_a_full_run_reads_everything(here: Folder, tmp_path: Path) -> None:
    """`full` stores again what has not changed."""
    async with opened(tmp_path / "home", sync=[entry(here)]) as stack:
        await run(stack)
        assert counts(await run(stack, full=True)) == (3, 0, 0, 0)


async def test_a_source_that_is_listed_in_part_deletes_nothing(
    here: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could be listed is stored, and the rest stays; the report says why."""
    async with opened(tmp_path / "home", sync=[entry(here)]) as stack:
        await run(stack)
        here.put("a.txt", "Something.")
        real = os.scandir

        def scandir(path: Any) -> Any:
            if Path(path).name == "animals":
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)
        report = await run(stack)
        assert counts(report) == (1, 0, 0, 0)
        assert "animals cannot be read: Permission denied" in report.problems
        assert len(await stored(stack)) == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"type": "sharepoint"}, "sharepoint"),
        ({"type": "folder", "path": "relative"}, r"sync\.mine\.source\.path"),
        ({"type": "folder", "path": "/tmp", "unknown": 1}, r"sync\.mine\.source\.unknown"),
        ({"type": "git", "url": "https://me:very-secret@host/x"}, r"sync\.mine\.source\.url"),
        ({"type": "git", "url": "ext::sh -c very-secret"}, r"sync\.mine\.source\.url"),
        ({"type": "git", "url": "--upload-pack=very-secret"}, r"sync\.mine\.source\.url"),
        ({"type": "git", "url": "/x", "branch": "--output=a"}, r"sync\.mine\.source\.branch"),
        ({"type": "objects", "url": "s3://key:very-secret@b/c"}, r"sync\.mine\.source\.url"),
        ({"type": "site", "url": "ftp://host"}, r"sync\.mine\.source\.url"),
    ],
)
async def test_settings_are_checked_at_the_start(
    source: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """A source that cannot work stops the start; the error names the setting, and no value."""
    bad = {"name": "mine", "vector_db_id": "db", "source": source}
    with pytest.raises(ConfigError, match=message) as caught:
        async with opened(tmp_path / "home", sync=[bad]):
            pass
    assert "very-secret" not in str(caught.value)
