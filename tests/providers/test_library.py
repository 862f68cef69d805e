"""The library: what a person gets in ten lines, with and without an event loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import corral.providers.library as corral
from corral.api.errors import InvalidRequest, NotFound
from corral.providers.config import ProviderEntry, Providers, RunConfig

HASHING = RunConfig(
    providers=Providers(
        embedding=[
            ProviderEntry(
                provider_id="hashing",
                provider_type="inline::hashing",
                config={"dimension": 64},
            )
        ]
    ),
    default_embedding_model="hashing",
)
TEXTS = {"fence.md": "A fence keeps the sheep in.", "barn.md": "The barn is red."}


def test_the_whole_way_without_an_event_loop(tmp_path: Path) -> None:
    """Register, insert, query, ask, delete; the next session finds what this one stored.

    If this fails: compare with `Corral`, of which `SyncCorral` is the twin.
    """
    with corral.open_sync(tmp_path, HASHING) as herd:
        registered = herd.register("notes", search_mode="keyword")
        assert registered.embedding_model == "hashing"
        assert herd.insert("notes", TEXTS).chunks == {"fence.md": 1, "barn.md": 1}
    with corral.open_sync(tmp_path, HASHING) as herd:
        assert [each.identifier for each in herd.vector_dbs()] == ["notes"]
        hits = herd.query("which fence", "notes", k=1).hits
        assert [hit.chunk.document_id for hit in hits] == ["fence.md"]
        assert "A fence keeps the sheep in." in herd.ask("which fence", "notes").text
        assert herd.ask("xyzzy", "notes").text == ""
        herd.unregister("notes")
        with pytest.raises(NotFound, match="notes"):
            herd.query("which fence", "notes")


async def test_the_whole_way_with_one(tmp_path: Path) -> None:
    """The same, awaited; options of a registration and of a request reach the search."""

    async with corral.open(tmp_path, HASHING) as herd:
        await herd.register("notes", search_mode="vector")
        await herd.insert("notes", TEXTS)
        found = await herd.query("red barn", "notes", k=2, mode="keyword", explain=True)
        assert [hit.chunk.document_id for hit in found.hits] == ["barn.md"]
        answer = await herd.ask("red barn", "notes", max_tokens=200, max_chunks=1)
        assert answer.metadata["max_tokens"] == 200
        assert len(answer.metadata["chunk_ids"]) == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"search_mode": "psychic"}, "search_mode"), ({"colour": "red"}, "colour")],
)
def test_a_bad_setting_is_named(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    """A refusal names the setting, and registers nothing."""
    with corral.open_sync(tmp_path, HASHING) as herd:
        with pytest.raises(InvalidRequest, match=said):
            herd.register("notes", **settings)
        assert herd.vector_dbs() == []


def test_a_script_that_fails_ends(tmp_path: Path) -> None:
    """An exception outside a `with` ends the interpreter, and what was stored is there.

    If this fails: a thread that nobody stops keeps the process, and a notebook's kernel, alive.
    """
    script = (
        "import sys; from pathlib import Path\n"
        "import corral.providers.library as corral\n"
        "from corral.providers.config import RunConfig\n"
        "config = RunConfig.model_validate_json(sys.argv[2])\n"
        "herd = corral.open_sync(Path(sys.argv[1]), config)\n"
        "herd.register('farm'); herd.insert('farm', {'a': 'the owl sleeps'})\n"
        "raise LookupError('of the user')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), HASHING.model_dump_json()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "of the user" in ended.stderr
    with corral.open_sync(tmp_path, HASHING) as herd:
        assert len(herd.query("owl", "farm").hits) == 1
    herd.close()  # again, which does nothing
