"""Scans: pages of known text, rendered and degraded as by scanners and cameras."""

from __future__ import annotations

import io
import random
import textwrap
from dataclasses import dataclass

import numpy as np
import pypdfium2
from PIL import Image, ImageFilter
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

FONTS = ("Helvetica", "Times-Roman", "Courier")
_SENTENCES = (
    "The flock of {n} ewes left the lower pasture on {d} May, because of rain.",
    "Hay costs {n}.50 a ton (delivered); straw costs {d} % less.",
    "\u201eDie Sch\u00e4fer z\u00e4hlen {n} L\u00e4mmer\u201c, schrieb M\u00fcller am {d}. April.",
    "L'\u00e9leveur a vendu {n} agneaux \u00e0 Besan\u00e7on, c'est-\u00e0-dire {d} de plus.",
    "Section {d}.{n}: fences must be checked twice a year; gates weekly.",
    "El pastor cont\u00f3 {n} ovejas y {d} corderos en la ma\u00f1ana.",
    "Wool was graded A-{d} by J. Smith & Sons, Ltd., at 12:{d} o'clock.",
)


@dataclass(frozen=True, slots=True)
class Scan:
    """A scanned page.

    Attributes:
        dpi: Dots per inch.
        text: Its text.
        data: A PDF with the page as a picture.
    """

    dpi: int
    text: str
    data: bytes


def scan(rng: random.Random, dpi: int, lines: int = 24) -> Scan:
    """Return a page with noise, a slight rotation and JPEG artifacts."""
    text = " ".join(
        rng.choice(_SENTENCES).format(n=rng.randint(100, 900), d=rng.randint(10, 28))
        for _ in range(lines)
    )
    size = rng.choice([9, 10, 11, 12])
    wrapped = textwrap.wrap(text, int(820 / size), break_on_hyphens=False)[:lines]
    picture = _drawn(wrapped, rng.choice(FONTS), size, dpi)
    return Scan(dpi, " ".join(wrapped), _pdf(_spoiled(picture, rng), rng, dpi))


def _drawn(lines: list[str], font: str, size: int, dpi: int) -> Image.Image:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    canvas.setFont(font, size)
    for number, line in enumerate(lines):
        canvas.drawString(60, 770 - 1.4 * size * number, line)
    canvas.save()
    page = pypdfium2.PdfDocument(out.getvalue())[0]
    drawn: Image.Image = page.render(scale=dpi / 72).to_pil().convert("L")
    return drawn


def _spoiled(picture: Image.Image, rng: random.Random) -> Image.Image:
    turned = picture.rotate(
        rng.uniform(-2, 2), resample=Image.Resampling.BICUBIC, expand=True, fillcolor=250
    )
    soft = turned.filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8)))
    noise = np.random.default_rng(rng.randrange(1 << 30)).normal(0, 12, (soft.height, soft.width))
    gray = np.asarray(soft, dtype=np.float32) * rng.uniform(0.85, 1) + noise
    return Image.fromarray(np.clip(gray, 0, 255).astype(np.uint8))


def _pdf(picture: Image.Image, rng: random.Random, dpi: int) -> bytes:
    jpeg = io.BytesIO()
    picture.save(jpeg, "JPEG", quality=rng.randint(35, 75))
    out = io.BytesIO()
    Image.open(jpeg).save(out, "PDF", resolution=dpi)
    return out.getvalue()


def scans(seed: int = 3, count: int = 30) -> list[Scan]:
    """Return scans, half of them at 150 and half at 300 dots per inch."""
    rng = random.Random(seed)
    return [scan(rng, 300 if number % 2 else 150) for number in range(count)]
