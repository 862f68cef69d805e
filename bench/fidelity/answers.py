"""What a system answered, as it is kept between runs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Key = tuple[str, float | None, int, bool]


class Round(BaseModel):
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
    answers: list[Round] = []
    own: dict[str, list[tuple[str, float]]] = {}
    deleted: list[str] = []

    def by_key(self) -> dict[Key, Round]:
        """Return the rounds by what tells them apart."""
        return {asked.key: asked for asked in self.answers}
