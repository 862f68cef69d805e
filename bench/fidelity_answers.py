"""What a system answered, as it is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

_FOLDER = "cells"
Key = tuple[str, float | None, int, bool]


class Asked(BaseModel):
    """One round of questions and what was found for each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: str
    selectivity: float | None
    k: int
    after_deletion: bool = False
    found: list[list[tuple[str, float]]] = []

    @property
    def key(self) -> Key:
        """What tells it from other rounds of the same system."""
        return (self.mode, self.selectivity, self.k, self.after_deletion)


class Answers(BaseModel):
    """Everything that one system answered.

    Attributes:
        contract: Whether its scores are those of Corral's contract.
        own: The answers to stored embeddings, by the id of their chunk.
        deleted: The chunks that were deleted before the rounds `after_deletion`.
    """

    model_config = ConfigDict(extra="forbid")

    system: str
    contract: bool = False
    own_fusion: bool = False
    answers: list[Asked] = []
    own: dict[str, list[tuple[str, float]]] = {}
    deleted: list[str] = []

    def by_key(self) -> dict[Key, Asked]:
        """Return the rounds by what tells them apart."""
        return {asked.key: asked for asked in self.answers}


class Kept:
    """A system's answers in the folder of a run.

    Args:
        out: The folder.
        key: A hash of what decides the answers.
        resume: Whether those of an interrupted run are taken over.
    """

    def __init__(self, out: Path, key: str, *, resume: bool) -> None:
        self._path = out / _FOLDER / f"answers-{key}.json"
        self._resume = resume

    def find(self) -> Answers | None:
        """Return them; None where there are none that this Corral can read."""
        if not self._resume:
            return None
        try:
            return Answers.model_validate_json(self._path.read_text("utf-8"))
        except (FileNotFoundError, ValidationError):  # of another version, or never finished
            return None

    def keep(self, answers: Answers) -> None:
        """Write them, whole or not at all."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_suffix(f".{os.getpid()}")
        scratch.write_text(answers.model_dump_json(), encoding="utf-8")
        scratch.replace(self._path)
