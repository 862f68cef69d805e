"""remote::tika: sends a file to `PUT /tika` and reads XHTML back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from corral.api.reader import Readable
from corral.providers.ingestion.read.formats.common import declared_title
from corral.providers.reader.html_pages import read_html
from corral.providers.reader.service import ServiceReader
from corral.providers.reader.tika.config import TikaConfig

_NO_TITLE = "\ufffd"
"""Stands for `&#0;`, which Tika writes if a file has no title."""


class TikaReader(ServiceReader):
    """Reads files with Apache Tika Server, version 2 or later."""

    def __init__(self, provider_id: str, config: TikaConfig) -> None:
        super().__init__(provider_id, "remote::tika", config, health_path="/version")
        self._options = config.options

    async def read(self, data: bytes, mime_type: str) -> Readable:
        """Return the text of a file; see `ReaderProvider.read`."""
        kind = mime_type or "application/octet-stream"
        headers = {**self._options, "accept": "text/html", "content-type": kind}
        body = await self._send("PUT", "/tika", content=data, headers=headers)
        return await asyncio.to_thread(_readable, body)


def create(provider_id: str, config: TikaConfig, home: Path) -> TikaReader:
    """Return the reader, which connects on first use."""
    return TikaReader(provider_id, config)


def _readable(body: bytes) -> Readable:
    html = read_html(body.decode("utf-8", "replace"))
    title = declared_title(html.title.replace(_NO_TITLE, ""))
    return Readable(html.pages, paged=html.paged, title=title)
