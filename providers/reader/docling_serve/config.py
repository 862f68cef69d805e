"""Settings of remote::docling-serve."""

from __future__ import annotations

from pydantic import Field

from corral.providers.reader.service import ServiceReaderConfig


class DoclingServeConfig(ServiceReaderConfig):
    """The service and its options.

    Attributes:
        api_key: Sent as `X-Api-Key`. Default: none.
        options: Form fields of Docling Serve, such as `{do_ocr: true, ocr_lang: [de, en]}`.
    """

    options: dict[str, str | bool | int | float | list[str]] = Field(default_factory=dict)
