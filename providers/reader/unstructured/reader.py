"""remote::unstructured: sends a file to `POST /general/v0/general` and reads elements back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corral.api.reader import Readable
from corral.providers.ingestion.read.formats.common import escaped, joined
from corral.providers.reader.html_pages import read_html
from corral.providers.reader.service import ServiceReader, file_name
from corral.providers.reader.unstructured.config import UnstructuredConfig

_DROPPED = {"Header", "Footer", "PageNumber", "PageBreak"}
_MAX_LEVEL = 6


class UnstructuredReader(ServiceReader):
    """Reads files with the Unstructured API."""

    def __init__(self, provider_id: str, config: UnstructuredConfig) -> None:
        super().__init__(
            provider_id,
            "remote::unstructured",
            config,
            health_path="/healthcheck",
            key_header="unstructured-api-key",
        )
        self._form: dict[str, str | list[str]] = {"strategy": config.strategy}
        if config.languages:
            self._form["languages"] = config.languages

    async def read(self, data: bytes, mime_type: str) -> Readable:
        """Return the text of a file; see `ReaderProvider.read`."""
        form = {**self._form, "output_format": "application/json", "coordinates": "false"}
        files = {"files": (file_name(mime_type), data, mime_type or "application/octet-stream")}
        body = await self._send("POST", "/general/v0/general", data=form, files=files)
        elements = self._json(body)
        if not isinstance(elements, list) or not all(map(_is_element, elements)):
            raise self._malformed()
        return await asyncio.to_thread(_readable, elements)


def create(provider_id: str, config: UnstructuredConfig, home: Path) -> UnstructuredReader:
    """Return the reader, which connects on first use."""
    return UnstructuredReader(provider_id, config)


def _is_element(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and isinstance(value.get("text"), str)
        and isinstance(value.get("metadata", {}), dict)
    )


def _readable(elements: Sequence[dict[str, Any]]) -> Readable:
    """Return elements as Markdown; an element without a page number is on the current page."""
    blocks: dict[int, list[str]] = {}
    page, paged, pictures = 1, False, 0
    for element in elements:
        number = element.get("metadata", {}).get("page_number")
        if isinstance(number, int) and number >= page:
            page, paged = min(number, page + len(elements)), True
        pictures += element["type"] == "Image" and not element["text"].strip()
        if element["type"] not in _DROPPED:
            blocks.setdefault(page, []).append(_block(element))
    pages = [joined(blocks.get(each, [])) for each in range(1, max(blocks, default=1) + 1)]
    unread = (f"{pictures} picture{'s' * (pictures != 1)}",) if pictures else ()
    return Readable(pages, paged=paged, unread=unread)


def _block(element: dict[str, Any]) -> str:
    text, metadata = " ".join(element["text"].split()), element.get("metadata", {})
    if element["type"] == "Title" and text:
        depth = metadata.get("category_depth")
        level = depth if isinstance(depth, int) and 0 <= depth < _MAX_LEVEL else 0
        return f"{'#' * (level + 1)} {text}"
    if element["type"] == "ListItem" and text:
        return f"- {text}"
    as_html = metadata.get("text_as_html")
    if element["type"] == "Table" and isinstance(as_html, str):
        return "\n\n".join(filter(None, read_html(as_html).pages)) or text
    return escaped(text)
