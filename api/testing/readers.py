"""The conformance suite of readers, shipped to the authors of reader providers.

A reader's test file is a subclass with samples:

    class TestMine(ReaderConformance):
        samples = (Sample("application/x-mine", DATA, words=("lion", "zebra"), pages=2),)

        @contextmanager
        def open_reader(self) -> Iterator[ReaderProvider]:
            yield MyReader("mine", MyConfig(mime_types=["application/x-mine"]))

Each test opens a reader and closes it. The tests need only pytest.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import pytest

from corral.api.errors import InvalidRequest, Refused
from corral.api.provider import Health, ReaderProvider
from corral.api.reader import Readable

CONCURRENT = 8
"""Files that are read at once."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sample:
    """A file that a reader can read.

    Attributes:
        mime_type: Its type.
        data: The file.
        words: Words of its text, in order; no other sample may have the first of them.
        pages: Number of its pages; None if the format has no pages.
        title: The title that it declares, or None.
    """

    mime_type: str
    data: bytes
    words: tuple[str, ...]
    pages: int | None = None
    title: str | None = None


class Reading:
    """A reader of one test, and its event loop."""

    def __init__(self, reader: ReaderProvider, runner: asyncio.Runner) -> None:
        self.reader = reader
        self._runner = runner

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a coroutine function."""

        async def done() -> T:
            return await work()

        return self._runner.run(done())

    def read(self, data: bytes, mime_type: str) -> Readable:
        """Return the reader's answer."""
        return self.run(lambda: self.reader.read(data, mime_type))


class ReaderConformance(ABC):
    """Every standard test of a reader. Subclass it under a name that begins with Test.

    Attributes:
        samples: At least one file of each format that the reader takes.
    """

    samples: ClassVar[tuple[Sample, ...]]

    @abstractmethod
    def open_reader(self) -> AbstractContextManager[ReaderProvider]:
        """Return a context with a reader; the suite closes the reader before the context ends."""

    @pytest.fixture
    def reading(self) -> Iterator[Reading]:
        """Open a reader in an event loop, and close it after the test."""
        with asyncio.Runner() as runner, self.open_reader() as reader:
            yield Reading(reader, runner)
            runner.run(reader.close())

    def test_the_words_of_a_file_come_in_order(self, reading: Reading) -> None:
        """The text has every word of the file, in the order of the file.

        If this fails: a part of the service's answer is dropped, or sorted.
        """
        for sample in self.samples:
            text = "\n".join(reading.read(sample.data, sample.mime_type).pages)
            at = [text.find(word) for word in sample.words]
            assert -1 not in at, f"{sample.mime_type}: {sample.words[at.index(-1)]} is missing"
            assert at == sorted(at), sample.mime_type

    def test_pages_are_the_files_own(self, reading: Reading) -> None:
        """A file with pages has as many texts as pages; a file without pages has one text.

        If this fails: set `paged`, and put an empty text where a page is empty.
        """
        for sample in self.samples:
            answer = reading.read(sample.data, sample.mime_type)
            if sample.pages is None or sample.pages > 1:
                assert answer.paged is (sample.pages is not None), sample.mime_type
            assert len(answer.pages) == (sample.pages or 1), sample.mime_type

    def test_the_title_is_the_one_that_the_file_declares(self, reading: Reading) -> None:
        """A declared title is returned, and no title is made up."""
        for sample in self.samples:
            answer = reading.read(sample.data, sample.mime_type)
            if sample.title is not None:
                assert answer.title == sample.title, sample.mime_type

    def test_an_answer_is_text(self, reading: Reading) -> None:
        """Pages and notes are strings that UTF-8 can encode, without NUL."""
        for sample in self.samples:
            answer = reading.read(sample.data, sample.mime_type)
            assert isinstance(answer, Readable)
            for text in (*answer.pages, *answer.unread, answer.title or ""):
                assert "\0" not in text.encode("utf-8").decode("utf-8"), sample.mime_type

    def test_the_same_file_has_the_same_text(self, reading: Reading) -> None:
        """Two readings of a file give equal answers."""
        for sample in self.samples:
            first = reading.read(sample.data, sample.mime_type)
            assert reading.read(sample.data, sample.mime_type) == first, sample.mime_type

    def test_files_that_are_read_at_once_do_not_mix(self, reading: Reading) -> None:
        """Each of several concurrent calls answers with the text of its own file.

        If this fails: the reader keeps the file or the answer of a call in an attribute.
        """
        files = [self.samples[n % len(self.samples)] for n in range(CONCURRENT)]

        async def read_all() -> list[Readable]:
            reads = (reading.reader.read(each.data, each.mime_type) for each in files)
            return await asyncio.gather(*reads)

        for sample, answer in zip(files, reading.run(read_all), strict=True):
            text = "\n".join(answer.pages)
            assert sample.words[0] in text, sample.mime_type
            others = {each.words[0] for each in self.samples} - set(sample.words)
            assert not [word for word in others if word in text], sample.mime_type

    def test_damaged_files_are_refused_or_read(self, reading: Reading) -> None:
        """Half of a file, and a file of one byte, end in an answer or a refusal that is final.

        If this fails: raise InvalidRequest, or Refused if a service refuses the file. Another
        error is a defect, or leads to useless retries.
        """
        for sample in self.samples:
            for data in (sample.data[: len(sample.data) // 2], b"\x00", sample.data[:1]):
                try:
                    answer = reading.read(data, sample.mime_type)
                except (InvalidRequest, Refused):
                    continue
                assert isinstance(answer, Readable), sample.mime_type

    def test_a_reader_reads_on_after_a_refusal(self, reading: Reading) -> None:
        """A damaged file does not affect the next file."""
        self.test_damaged_files_are_refused_or_read(reading)
        self.test_the_words_of_a_file_come_in_order(reading)

    def test_health_is_an_answer(self, reading: Reading) -> None:
        """A reader that can read is healthy."""
        health = reading.run(reading.reader.health)
        assert isinstance(health, Health)
        assert health.status == "OK", health.message
