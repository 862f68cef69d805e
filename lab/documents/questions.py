"""Questions about the generated PDFs with their answers, to compare plain text and Corral."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import corral.providers.library as corral
from lab.documents.content import MadePdf
from lab.documents.readers import plain

K = 3
MODES = ("keyword", "hybrid")
MODEL = "all-MiniLM-L6-v2"
SIZES = (32, 64, 256)
EXPANDS: tuple[int | str, ...] = (0, 1, "section")
BUDGETS = (500, 1500)


@dataclass(frozen=True, slots=True)
class Question:
    """A question.

    Attributes:
        text: The question.
        answer: Texts that must all be in a chunk that answers it.
    """

    text: str
    answer: tuple[str, ...]


def questions(pdfs: Sequence[MadePdf], seed: int = 4, each: int = 4) -> list[Question]:
    """Return questions about cells, and about sentences across line ends.

    A chunk answers a question about a cell if it has the row's name, the column's name and the
    value.

    A cell is answered by a chunk with the row's name, the column's name and the value.
    """
    rng = random.Random(seed)
    count = Counter(row[0] for made in pdfs for grid in made.grids for row in grid.rows[1:])
    asked: list[Question] = []
    for made in pdfs:
        for grid in made.grids:
            header, *rows = grid.rows
            own = [row for row in rows if count[row[0]] == 1]
            for row in rng.sample(own, min(each, len(own))):
                column = rng.randrange(1, len(header))
                text = f"What is the {header[column]} of {row[0]}?"
                asked.append(Question(text, (row[0], header[column], row[column])))
    return asked


async def answered(pdfs: Sequence[MadePdf], asked: Sequence[Question]) -> dict[str, float]:
    """Return the share of questions that one of three chunks answers: plain text, Corral."""
    shares: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = _written(pdfs, Path(folder) / "files")
        async with corral.open(Path(folder) / "home") as herd:
            for name in ("plain", "corral"):
                await herd.register(name, embedding_model=MODEL)
            texts = {path.stem: plain(path.read_bytes()).text for path in paths}
            await herd.insert("plain", texts)
            await herd.insert_files("corral", *paths)
            for mode in MODES:
                for name in ("plain", "corral"):
                    right = 0
                    for question in asked:
                        found = await herd.query(question.text, name, k=K, mode=mode)
                        right += any(_answers(hit.content, question) for hit in found.chunks)
                    shares[f"{mode}, {name}"] = right / len(asked)
    return shares


async def in_context(
    pdfs: Sequence[MadePdf], asked: Sequence[Question]
) -> dict[tuple[int, int | str, int], float]:
    """Return the share of questions that a context answers, by chunk size, `expand` and budget.

    A context has at most three passages; the budget is in tokens.
    """
    shares: dict[tuple[int, int | str, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = _written(pdfs, Path(folder) / "files")
        async with corral.open(Path(folder) / "home") as herd:
            for size in SIZES:
                chunking = {"chunk_size_in_tokens": size, "overlap_in_tokens": size // 8}
                await herd.register(f"of-{size}", embedding_model=MODEL, chunking=chunking)
                await herd.insert_files(f"of-{size}", *paths)
                for expand in EXPANDS:
                    for budget in BUDGETS:
                        right = 0
                        for question in asked:
                            result = await herd.ask(
                                question.text, f"of-{size}", max_tokens=budget, max_chunks=K,
                                expand=expand,
                            )  # fmt: skip
                            right += any(
                                _answers(text, question) for text in result.metadata["chunks"]
                            )
                        shares[size, expand, budget] = right / len(asked)
    return shares


def _written(pdfs: Sequence[MadePdf], folder: Path) -> list[Path]:
    """Write PDFs into a new folder and return their paths."""
    folder.mkdir()
    for number, made in enumerate(pdfs):
        (folder / f"{number:03d}.pdf").write_bytes(made.data)
    return sorted(folder.iterdir())


def _answers(text: str, question: Question) -> bool:
    """Return True if a chunk has the row, the column, and the value in that column."""
    folded = " ".join(text.split())
    row, column, value = question.answer
    if not all(each in folded for each in question.answer):
        return False
    return value in folded.partition(row)[2] and column in folded
