"""Kill -9 at random moments: no chunk lost, none twice, no job stuck. See tests/kills.py."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml

from ... import kills
from .jobs_stack import HASHING

KILLS = int(os.environ.get("CORRAL_TEST_KILLS", "2"))
LONGEST = {"sqlite": "0.3", "chroma": "0.8"}
"""Seconds that a process lives at most: about what its work takes, or most kills would be late."""


def kill(folder: Path, provider: str, *more: str) -> dict[str, object]:
    """Run the script and return what it saw."""
    config = folder / "run.yaml"
    one = {"provider_id": provider, "provider_type": f"inline::{provider}"}
    providers = {"vector_io": [one], "embedding": [HASHING]}
    config.write_text(
        yaml.safe_dump({"providers": providers, "default_embedding_model": "hashing"})
    )
    words = ["--config", str(config), "--provider", provider, "--kills", str(KILLS), *more]
    with redirect_stdout(io.StringIO()) as printed:
        kills.main(words)
    told: dict[str, object] = json.loads(printed.getvalue().splitlines()[-1])
    return told


@pytest.mark.parametrize("provider", ["sqlite", "chroma"])
def test_no_job_is_lost_stuck_or_done_twice(tmp_path: Path, provider: str) -> None:
    """Documents that a killed process was at have their chunks once, of their last version.

    If this fails: a crash of the server loses documents, or leaves two versions of one.
    """
    told = kill(tmp_path, provider, "--documents", "60", "--longest", LONGEST[provider])
    assert (told["kills"], told["documents"]) == (KILLS, 60)


@pytest.mark.parametrize("provider", ["sqlite", "chroma"])
def test_documents_that_are_replaced_end_as_their_last_version(
    tmp_path: Path, provider: str
) -> None:
    """Each process that is killed was sent a new version, while jobs of the one before waited.

    If this fails: a job of an older version is done after a newer one, or a replacement that a kill
    cut off leaves chunks of two versions.
    """
    words = ["--documents", "30", "--replace", "--seed", "5", "--longest", LONGEST[provider]]
    told = kill(tmp_path, provider, *words)
    assert (told["kills"], told["documents"]) == (KILLS, 30)


def test_a_write_by_hand_is_whole_or_not_there(tmp_path: Path) -> None:
    """On an engine without transactions, a call that a kill cut off is finished by the next start.

    If this fails: a document has chunks of two versions until somebody sends it again.
    """
    assert kill(tmp_path, "chroma", "--by-hand")["kills"] == KILLS
