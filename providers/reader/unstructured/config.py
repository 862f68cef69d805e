"""Settings of remote::unstructured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corral.providers.reader.service import ServiceReaderConfig


class UnstructuredConfig(ServiceReaderConfig):
    """The service and its options.

    Attributes:
        api_key: Sent as `unstructured-api-key`. Default: none.
        strategy: Partitioning strategy, default `auto`; `hi_res` reads tables and scans with
            models.
        languages: Languages of scanned text, as Tesseract names them, such as `eng`. Default:
            the service's.
    """

    strategy: Literal["auto", "fast", "hi_res", "ocr_only", "vlm"] = "auto"
    languages: list[str] = Field(default_factory=list)
