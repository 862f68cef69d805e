"""Settings of remote::tika."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from corral.providers.reader.service import ServiceReaderConfig

_OPTION = re.compile(r"X-Tika-[A-Za-z0-9-]{1,100}")


class TikaConfig(ServiceReaderConfig):
    """The server and its options.

    Attributes:
        options: Tika's request headers, such as `{X-Tika-OCRLanguage: deu}`.
    """

    options: dict[str, str] = Field(default_factory=dict)

    @field_validator("options")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not (_OPTION.fullmatch(name) and text.isascii() and text.isprintable()):
                raise ValueError("must have names that begin with X-Tika-, and ASCII values")
        return value
