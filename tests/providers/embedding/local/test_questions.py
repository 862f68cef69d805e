"""Concurrent questions to a model of this process: together, each its own row, none forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.providers.embedding._local.questions import TOKENS_APART, Questions, alike


class Slow:
    """A model that a test stops and lets go; a text's embedding is its length and its token."""

    query = passage = ""
    max_tokens = 512

    def __init__(self) -> None:
        self.traits: Mapping[str, str] = {}
        self.begun, self.go = threading.Event(), threading.Event()
        self.batches: list[int] = []

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return a token for each letter."""
        return [[ord(letter) for letter in text] for text in texts]

    def token_ends(self, text: str) -> list[int]:
        """Return the end of each letter."""
        return list(range(1, len(text) + 1))

    def embed(
        self, token_ids: Sequence[Sequence[int]], *, in_lane: bool = False
    ) -> NDArray[np.float32]:
        """Wait for the test; refuse a text that begins with an exclamation mark."""
        self.begun.set()
        assert self.go.wait(60)
        self.batches.append(len(token_ids))
        if any(ids[0] == ord("!") for ids in token_ids):
            raise ValueError("no such text")
        return np.array([[len(ids), ids[0]] for ids in token_ids], np.float32)


@pytest.fixture
def model() -> Slow:
    """A model that waits."""
    return Slow()


@pytest.fixture
async def questions(model: Slow) -> AsyncIterator[Questions]:
    """The questions to it."""
    with ThreadPoolExecutor(1) as worker:
        yield Questions(model, worker)
        model.go.set()


async def asked(
    questions: Questions, model: Slow, *texts: str
) -> list[asyncio.Task[NDArray[np.float32]]]:
    """Ask a first question, and others once the model works on it."""
    first = asyncio.create_task(questions.embed("first"))
    await asyncio.to_thread(model.begun.wait, 60)
    others = [asyncio.create_task(questions.embed(text)) for text in texts]
    await asyncio.sleep(0)
    return [first, *others]


async def test_those_that_wait_go_together(questions: Questions, model: Slow) -> None:
    """The first goes at once and alone; five that come meanwhile are one computation.

    If this fails: sixteen people wait sixteen times as long as one, or rows are mixed up.
    """
    tasks = await asked(questions, model, *"abcde")
    model.go.set()
    rows = await asyncio.gather(*tasks)
    assert [row.tolist() for row in rows[1:]] == [[1, ord(letter)] for letter in "abcde"]
    assert model.batches == [1, 5]


async def test_an_error_reaches_all_who_asked(questions: Questions, model: Slow) -> None:
    """Nobody waits forever for a computation that failed, and the next question is answered."""
    tasks = await asked(questions, model, "!", "b")
    model.go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found[1:]] == [ValueError, ValueError]
    assert (await questions.embed("next")).tolist() == [4, ord("n")]


async def test_who_left_is_not_computed(questions: Questions, model: Slow) -> None:
    """A question whose asker went away takes no time of the others."""
    tasks = await asked(questions, model, "a", "b")
    tasks[1].cancel()
    await asyncio.sleep(0)
    model.go.set()
    assert (await tasks[2]).tolist() == [1, ord("b")]
    assert model.batches == [1, 1]


async def test_the_end_of_the_worker_ends_the_waiting(model: Slow) -> None:
    """What has not begun when a provider closes is cancelled, as documents are."""
    worker = ThreadPoolExecutor(1)
    tasks = await asked(Questions(model, worker), model, "a")
    worker.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(tasks[1], 60)
    model.go.set()
    assert (await tasks[0]).tolist() == [5, ord("f")]


def test_batches_are_of_nearly_one_length() -> None:
    """Each text is in one batch, beside texts of about its length; the first comes first."""
    lengths = [int(n) for n in np.random.default_rng(5).integers(1, 400, 200)]
    found = list(alike(lengths))
    assert sorted(i for batch in found for i in batch) == list(range(200))
    assert 0 in found[0]
    for batch in found:
        each = [lengths[i] for i in batch]
        assert max(each) - min(each) < TOKENS_APART
    assert list(alike([])) == []
    assert list(alike([25, 24, 31, 23, 32])) == [[3, 1, 0], [2, 4]]
    assert list(alike([31, 23, 30, 24])) == [[0], [1, 3, 2]]
