"""`corral ingest` with files that only a configured reader takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.providers.ingestion.read.detecting import COMPOUND_FILE

from ...providers.json_service import Reply
from ...providers.reader.services import Request, running
from .conftest import RUN_YAML, Corral


def as_tika(_: Request) -> Reply:
    """Answer as Tika does, whatever the file is."""
    page = '<html><body><div class="page"><p>The old barn is red.</p></div></body></html>'
    return Reply(200, page.encode(), {"content-type": "text/html;charset=utf-8"})


@pytest.fixture
def tika_url() -> Iterator[str]:
    """The address of a service that answers as Tika does."""
    with running(as_tika) as service:
        yield service.url


def test_files_of_a_readers_types_are_sent(
    corral: Corral, home: Path, tmp_path: Path, tika_url: str
) -> None:
    """By their names, as bytes; without the reader they are skipped, with the kind.

    If this fails: a folder of old Office files is skipped though its operator runs Tika.
    """
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "plan.doc").write_bytes(COMPOUND_FILE + "WordDocument".encode("utf-16-le") * 40)
    (folder / "hay.md").write_text("# Hay")
    without = corral("ingest", "farm", folder, "--create")
    assert "Skipped (an Office file of before 2007, or an installer)" in without.stderr
    reader = f"""
  reader:
    - provider_id: tika
      provider_type: "remote::tika"
      config: {{base_url: "{tika_url}", mime_types: [application/msword]}}
"""
    (home / "run.yaml").write_text(RUN_YAML + reader)
    done = corral("ingest", "farm", folder)
    assert done.exit_code == 0, done.output
    assert "ingested 1 document" in done.stdout
    assert (
        "The old barn is red." in corral("documents", "show", "farm", "plan.doc", "--json").stdout
    )
