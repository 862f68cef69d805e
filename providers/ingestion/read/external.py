"""Readers configured under `providers.reader` in run.yaml, each for certain file types."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corral.api.errors import ContractViolation, InvalidRequest, Refused, TooLarge
from corral.api.provider import ReaderConfig, ReaderProvider
from corral.api.reader import Readable, takes
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.detecting import COMPOUND_FILE, TEXT, detected, type_of
from corral.providers.ingestion.read.mime_types import split_mime_type

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ExternalReader:
    """A configured reader.

    Attributes:
        provider_id: Id of the reader in run.yaml.
        config: Settings of the reader.
        provider: Returns the reader; the first call builds it.
    """

    provider_id: str
    config: ReaderConfig
    provider: Callable[[], ReaderProvider]

    async def read(self, data: bytes, mime_type: str, limits: DocumentLimits) -> Readable:
        """Return the text of a file.

        Raises:
            InvalidRequest: The file or its text exceeds a limit, or the reader refuses the file.
            ProviderError: The reader failed.
            ContractViolation: The reader returned something other than a `Readable`.
        """
        if len(data) > self.config.max_mib * MIB:
            raise self.too_large()
        try:
            answer = await self.provider().read(data, mime_type)
        except Refused as error:
            raise InvalidRequest(error.message, hint=error.hint, field="content") from error
        self._check(answer)
        if answer.paged and len(answer.pages) > limits.max_pages:
            raise limits.exceeded("pages", "max_pages")
        if sum(map(len, answer.pages)) > limits.max_characters:
            raise limits.exceeded("characters", "max_characters")
        return answer

    def _check(self, answer: object) -> None:
        if not isinstance(answer, Readable) or not all(isinstance(p, str) for p in answer.pages):
            raise ContractViolation(f"The reader {self.provider_id!r} must return a Readable.")

    def too_large(self) -> TooLarge:
        """Return the error for a file larger than `max_mib`."""
        return TooLarge(
            f"The file has more than {self.config.max_mib:g} MiB.",
            hint=f"The operator's limit is max_mib of the reader {self.provider_id!r}.",
            field="content",
        )


@dataclass(frozen=True, slots=True)
class Chosen:
    """A file with its reader; `mime_type` is the type of the file, without parameters."""

    reader: ExternalReader
    data: bytes
    mime_type: str


def reader_for(readers: Sequence[ExternalReader], mime_type: str) -> ExternalReader | None:
    """Return the first reader for a type; None to use the built-in readers."""
    return next((each for each in readers if takes(each.config.mime_types, mime_type)), None)


def chosen(
    readers: Sequence[ExternalReader], content: str | bytes, mime_type: str | None
) -> Chosen | None:
    """Return the reader for a document; None to use the built-in readers.

    For bytes, the type is detected from the content, or else is the type that the sender declares;
    for text, it is the declared type. Blank documents go to the built-in readers, which refuse
    them.
    """
    named, charset = split_mime_type(mime_type)
    if not content.strip():
        return None
    if isinstance(content, str):
        reader = reader_for(readers, named or TEXT)
        data = content.encode("utf-8", "surrogatepass")
        return Chosen(reader, data, named or TEXT) if reader else None
    try:
        if compression.is_compressed(content):
            content = compression.unpacked(content)
            named = "" if named in compression.MIME_TYPES else named
        kind = detected(content, named, charset)
        if named and content.startswith(COMPOUND_FILE):
            kind = named  # All Office files from before 2007 begin alike.
    except InvalidRequest:
        kind = named  # The built-in readers cannot read it, but a configured reader may.
    reader = reader_for(readers, kind)
    return Chosen(reader, content, kind) if reader else None


def named_type(filename: str) -> str:
    """Return the MIME type of a file by its name, for any format; "" if unknown."""
    return type_of(filename) or mimetypes.guess_type(filename)[0] or ""
