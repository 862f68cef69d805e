"""Settings of text recognition: the part of the configuration that each reading process needs.

As in `document_limits.py`, nothing heavy is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

T = TypeVar("T")


def _setting(default: T, description: str, **bound: float) -> T:
    made: T = field(default=default, metadata={"description": description, **bound})
    return made


@dataclass(frozen=True, slots=True)
class OcrSettings:
    """Text recognition of scanned pages and pictures."""

    engine: Literal["auto", "rapidocr", "tesseract", "none"] = _setting(
        "auto",
        "auto: rapidocr if it is installed. tesseract: the program of that name. none: pages "
        "without text stay empty.",
    )
    languages: str = _setting("eng", "Languages of tesseract, such as deu+eng.")
    office_pictures: bool = _setting(
        False, "Whether to recognize text in the pictures of Word and PowerPoint files."
    )
    dpi: int = _setting(200, "Dots per inch to which a page is drawn.", ge=72, le=600)
    min_confidence: float = _setting(
        0.8, "A page that is recognized with less is reported as read badly.", ge=0, le=1
    )
    max_pages: int = _setting(200, "Pages to recognize in one document.", ge=1)
    max_pixels: int = _setting(40_000_000, "Pixels of a picture or of a drawn page.", ge=10_000)
    max_seconds: float = _setting(
        600, "Time to recognize the pages of one document, in addition to the time to read it.",
        gt=0,
    )  # fmt: skip
    max_memory_mib: int = _setting(
        2048, "Memory of a process that recognizes text, on systems that can limit it (Linux).",
        ge=256,
    )  # fmt: skip
    threads: int = _setting(1, "Threads that recognize one document.", ge=1, le=64)

    # As in `Section`: an unknown key is rejected, and no error quotes a value.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid", "allow_inf_nan": False, "hide_input_in_errors": True,
    }  # fmt: skip
