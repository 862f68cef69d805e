"""The reader of docs/writing-a-provider.md passes the suite for readers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corral.api.errors import InvalidRequest
from corral.api.provider import Health, ReaderProvider
from corral.api.reader import Readable
from corral.api.testing import ReaderConformance, Sample


class ShoutingReader(ReaderProvider):
    """Reads text files in capitals."""

    async def read(self, data: bytes, mime_type: str) -> Readable:
        """Return the text of a file; see the contract."""
        try:
            return Readable([data.decode().upper()], markdown=False)
        except UnicodeDecodeError:
            raise InvalidRequest("The file is not UTF-8.", field="content") from None

    async def health(self) -> Health:
        """Return that it can read."""
        return Health("OK")


class TestShouting(ReaderConformance):
    """Every standard test."""

    samples = (Sample("text/x-shout", b"lion zebra", words=("LION", "ZEBRA")),)

    @contextmanager
    def open_reader(self) -> Iterator[ReaderProvider]:
        """Return a reader."""
        yield ShoutingReader("shouting")
