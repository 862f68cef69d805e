"""Settings of remote::unstructured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corral.providers.reader.service import ServiceReaderConfig


class UnstructuredConfig(ServiceReaderConfig):
    """The service, and what it is told.

    Attributes:
        api_key: Sent as `unstructured-api-key`. Default: none.
        strategy: Of the partition; `auto` is the service's default, `hi_res` reads tables and
            scans by models.
        languages: Of the text in scans, as Tesseract names them, such as `eng`. Default: the
            service's.
    """

    strategy: Literal["auto", "fast", "hi_res", "ocr_only", "vlm"] = "auto"
    languages: list[str] = Field(default_factory=list)
