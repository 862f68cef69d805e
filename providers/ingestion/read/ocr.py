"""Text recognition engines: RapidOCR in this process, and the program Tesseract."""

from __future__ import annotations

import csv
import importlib
import io
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from corral.api.errors import InvalidRequest, MissingDependency
from corral.providers.base.ocr_settings import OcrSettings

INSTALL = "pip install 'corral-rag[ocr]'"

MAX_SIDE = 3000
"""Maximum length, in pixels, of the longer side of a picture; larger ones are scaled down."""

_DETECTED_SIDE = 1600
"""Length of the longer side at which lines are detected; more takes longer and finds no more."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Piece:
    """A recognized line or word.

    Attributes:
        text: The text.
        confidence: Confidence of the engine, from 0 to 1.
        left: The middle of the left edge, in pixels from the upper left corner of the picture.
        right: The middle of the right edge.
        height: Height in pixels.
    """

    text: str
    confidence: float
    left: Point
    right: Point
    height: float


class Engine(Protocol):
    """Recognizes the text of a picture."""

    def recognize(self, picture: Any, seconds: float) -> list[Piece]:
        """Return the lines or words of a Pillow image in RGB.

        Engines that can be interrupted stop after `seconds`.

        Raises:
            InvalidRequest: The engine failed or took too long.
        """


@lru_cache(maxsize=1)
def engine(settings: OcrSettings) -> Engine | None:
    """Return the configured engine; None if recognition is off or no engine is installed.

    Raises:
        MissingDependency: The engine that the settings name is not installed.
    """
    if settings.engine == "none":
        return None
    if settings.engine == "tesseract":
        program = shutil.which("tesseract")
        if not program:
            raise MissingDependency(
                "Text recognition", "the program tesseract", "apt install tesseract-ocr"
            )
        return Tesseract(program, settings)
    try:
        return RapidOcr(settings)
    except ImportError:
        if settings.engine == "rapidocr":
            raise MissingDependency("Text recognition", "rapidocr", INSTALL) from None
        return None


class RapidOcr:
    """PaddleOCR's models on onnxruntime; the wheel of `rapidocr` contains the models."""

    def __init__(self, settings: OcrSettings) -> None:
        _allow_memory()
        rapidocr = importlib.import_module("rapidocr")
        self._numpy = importlib.import_module("numpy")
        importlib.import_module("cv2").setNumThreads(settings.threads)
        onnxruntime = "EngineConfig.onnxruntime"
        self._engine = rapidocr.RapidOCR(
            params={
                f"{onnxruntime}.intra_op_num_threads": settings.threads,
                f"{onnxruntime}.inter_op_num_threads": 1,
                "Global.log_level": "critical",
                "Global.max_side_len": MAX_SIDE,
                "Global.use_cls": False,
                "Det.limit_type": "max",
                "Det.limit_side_len": _DETECTED_SIDE,
                "Rec.rec_batch_num": 1,  # Larger batches take more memory and the same time.
            }
        )

    def recognize(self, picture: Any, seconds: float) -> list[Piece]:
        """Return the lines of a picture."""
        result = self._engine(self._numpy.asarray(picture)[:, :, ::-1])  # OpenCV uses BGR.
        if not result.txts:
            return []
        return [
            _piece(text, float(score), [(float(x), float(y)) for x, y in box])
            for text, score, box in zip(result.txts, result.scores, result.boxes, strict=True)
            if text.strip()
        ]


def _allow_memory() -> None:
    """Raise the memory limit of this process to that for text recognition."""
    try:
        import resource  # noqa: PLC0415 - not available on every system
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _piece(text: str, confidence: float, corners: Sequence[Point]) -> Piece:
    """Return a line with the given corners, clockwise from the upper left corner."""
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = corners
    height = (abs(ax - dx) + abs(ay - dy) + abs(bx - cx) + abs(by - cy)) / 2
    left, right = ((ax + dx) / 2, (ay + dy) / 2), ((bx + cx) / 2, (by + cy) / 2)
    return Piece(text, confidence, left, right, height)


class Tesseract:
    """The program `tesseract`, in the languages that are installed with it."""

    def __init__(self, program: str, settings: OcrSettings) -> None:
        self._command = [program, "stdin", "stdout", "-l", settings.languages, "tsv"]
        self._environment = {**os.environ, "OMP_THREAD_LIMIT": str(settings.threads)}

    def recognize(self, picture: Any, seconds: float) -> list[Piece]:
        """Return the words of a picture.

        Raises:
            InvalidRequest: The program fails, or takes too long.
        """
        data = io.BytesIO()
        picture.save(data, "PNG", compress_level=1)
        try:
            done = subprocess.run(  # noqa: S603 - the program of the settings, and no shell
                self._command, input=data.getvalue(), capture_output=True, timeout=seconds,
                check=True, env=self._environment,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise InvalidRequest(
                f"tesseract cannot read the page ({type(error).__name__}).",
                hint="Check rag.ocr.languages against `tesseract --list-langs`.",
                field="content",
            ) from None
        table = io.StringIO(done.stdout.decode("utf-8", "replace"))
        rows = csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        words = (row for row in rows if row.get("level") == "5")  # Others are lines and blocks.
        return [_word(row) for row in words if (row["text"] or "").strip()]


def _word(row: dict[str, str]) -> Piece:
    left, top, width, height = (float(row[name]) for name in ("left", "top", "width", "height"))
    middle = top + height / 2
    confidence = min(max(float(row["conf"]) / 100, 0.0), 1.0)
    return Piece(row["text"].strip(), confidence, (left, middle), (left + width, middle), height)
