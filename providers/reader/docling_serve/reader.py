"""remote::docling-serve: sends a file to `POST /v1/convert/file` and reads Markdown back."""

from __future__ import annotations

import re
from pathlib import Path

from corral.api.errors import InvalidRequest
from corral.api.reader import Readable
from corral.providers.reader.docling_serve.config import DoclingServeConfig
from corral.providers.reader.service import ServiceReader, file_name

PAGE_BREAK = "<!-- corral: next page -->"
"""Separator that Docling writes between pages."""

_PICTURE = re.compile(r"^<!-- image -->\n*", re.MULTILINE)


class DoclingServeReader(ServiceReader):
    """Reads files with Docling Serve, version 1 or later."""

    def __init__(self, provider_id: str, config: DoclingServeConfig) -> None:
        kind = "remote::docling-serve"
        super().__init__(provider_id, kind, config, health_path="/health", key_header="x-api-key")
        self._options = {name: _field(value) for name, value in config.options.items()}

    async def read(self, data: bytes, mime_type: str) -> Readable:
        """Return the text of a file; see `ReaderProvider.read`."""
        form = {
            **self._options,
            "to_formats": "md",
            "image_export_mode": "placeholder",
            "md_page_break_placeholder": PAGE_BREAK,
        }
        files = {"files": (file_name(mime_type), data, mime_type or "application/octet-stream")}
        body = await self._send("POST", "/v1/convert/file", data=form, files=files)
        return self._readable(self._json(body))

    def _readable(self, answer: object) -> Readable:
        """Return the text of an answer.

        Raises:
            InvalidRequest: Docling could not convert the file.
            ProviderError: The answer is not in the expected format.
        """
        document = answer.get("document") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(document, dict):
            raise self._malformed()
        if answer.get("status") in {"failure", "skipped"}:
            raise InvalidRequest(
                f"{self._service.name} could not convert the file.",
                hint="It may be damaged, locked, or of a format that Docling does not read.",
                field="content",
            )
        text = document.get("md_content")
        errors = answer.get("errors") or []
        if not isinstance(text, str) or not isinstance(errors, list):
            raise self._malformed()
        text, pictures = _PICTURE.subn("", text)
        unread = [f"{pictures} picture{'s' * (pictures != 1)}"] if pictures else []
        if answer.get("status") == "partial_success":
            unread.append(f"parts that Docling could not convert ({len(errors)} errors)")
        pages = text.split(PAGE_BREAK)
        return Readable(pages, paged=len(pages) > 1, unread=tuple(unread))


def create(provider_id: str, config: DoclingServeConfig, home: Path) -> DoclingServeReader:
    """Return the reader, which connects on first use."""
    return DoclingServeReader(provider_id, config)


def _field(value: str | float | list[str]) -> str | list[str]:
    """Return an option as a form value; a list becomes several fields."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, list) else str(value)
