"""Pages of stored PDFs as pictures, for those who may read the whole document."""

from __future__ import annotations

from collections.abc import Sequence

from corral.api.chunks import Chunk
from corral.api.errors import NotFound
from corral.api.principal import Principal, Role
from corral.providers.base.documents import unknown_document
from corral.providers.files.store import StoredFile
from corral.providers.ingestion.jobs.jobs import JobStatus
from corral.providers.ingestion.jobs.runner import FileLibrary
from corral.providers.ingestion.read.formats.pdf.pages import Area
from corral.providers.ingestion.service import Ingestion


class DocumentPages:
    """The pages of one document, for a principal.

    A picture shows all of a page, so the principal must be able to read every chunk of the
    document, and see the job that stored it from its file. That this file is named in a chunk is
    not enough: the writer of a chunk chooses its metadata.

    Args:
        library: The principal's view.
        ingestion: The same principal's jobs.
    """

    def __init__(
        self, library: FileLibrary, ingestion: Ingestion, vector_db_id: str, document_id: str
    ) -> None:
        self._library, self._ingestion = library, ingestion
        self._vector_db_id, self._document_id = vector_db_id, document_id

    async def file(self) -> StoredFile:
        """Return the file of the document.

        Raises:
            NotFound: There is no such document, or its pages cannot be shown to the principal.
        """
        index = await self._library.index(self._vector_db_id)
        visible = await index.document_chunk_ids(self._document_id)
        if not visible:
            raise unknown_document(self._vector_db_id, self._document_id)
        admin = self._admin()
        stored = await (await admin.index(self._vector_db_id)).document_chunk_ids(self._document_id)
        if visible != stored:
            raise self._refusal()
        try:
            job = await self._ingestion.newest(self._vector_db_id, self._document_id)
            file = await admin.files.get(self._document_id)
        except NotFound:
            raise self._refusal() from None
        is_of_job = job.document_id == self._document_id and job.status is JobStatus.COMPLETED
        if not is_of_job or job.progress.chunks != len(stored):
            raise self._refusal()
        return file

    async def picture(self, page: int, width: int) -> bytes:
        """Return a page as a PNG.

        Raises:
            NotFound, InvalidRequest, MissingDependency: As for `file`, and `Reader.page_picture`.
        """
        file = await self.file()
        async with self._admin().files.local(file) as path:
            return await self._ingestion.reader.page_picture(path, page, width)

    async def areas(self, page: int, chunks: Sequence[Chunk]) -> tuple[list[Area], int]:
        """Return the areas of chunks on a page, and the number of pages of the document.

        Raises:
            NotFound, InvalidRequest, MissingDependency: As for `picture`.
        """
        file = await self.file()
        marks: list[Area] = []
        count = 0
        async with self._admin().files.local(file) as path:
            for chunk in chunks:
                some, count = await self._ingestion.reader.page_areas(
                    path, page, _own_text(chunk), is_whole=_is_on_one_page(chunk)
                )
                marks += some
        return marks, count

    def _admin(self) -> FileLibrary:
        tenant = self._library.principal.tenant
        return self._library.for_principal(Principal.stored(tenant, role=Role.ADMIN))

    def _refusal(self) -> NotFound:
        return NotFound(
            f"There are no pages of document {self._document_id!r} to show.",
            hint="Pages are shown of an uploaded PDF that is stored as it was read, to those who "
            "may read all of it.",
            field="document_id",
        )


def _own_text(chunk: Chunk) -> str:
    """Return the text of a chunk without a table's header from an earlier page."""
    record = chunk.chunk_metadata
    return chunk.content[(record.repeated_characters or 0) if record else 0 :]


def _is_on_one_page(chunk: Chunk) -> bool:
    record = chunk.chunk_metadata
    return record is None or record.page_end in (None, record.page)
