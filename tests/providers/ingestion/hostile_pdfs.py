"""PDFs and pictures that are damaged or hostile; `test_hostile_files.py` reads them."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable

from PIL import Image
from reportlab.pdfgen.canvas import Canvas


def raw_pdf(*objects: str | bytes, root: int = 1) -> bytes:
    """Return a PDF of objects, numbered from 1; PDFium finds them without a table."""
    parts = [b"%PDF-1.7"]
    for number, each in enumerate(objects, 1):
        body = each.encode() if isinstance(each, str) else each
        parts.append(b"%d 0 obj\n" % number + body + b"\nendobj")
    return b"\n".join([*parts, b"trailer<</Root %d 0 R>>\n%%%%EOF" % root])


def stream(data: bytes, head: str = "") -> bytes:
    """Return an object with compressed data."""
    packed = zlib.compress(data, 9)
    return (
        f"<<{head}/Filter/FlateDecode/Length {len(packed)}>>stream\n".encode()
        + packed
        + b"\nendstream"
    )


CATALOG = "<</Type/Catalog/Pages 2 0 R>>"
PAGES = "<</Type/Pages/Kids[3 0 R]/Count 1>>"


def page(more: str = "", box: str = "0 0 600 800") -> str:
    """Return a page whose content is object 4."""
    return f"<</Type/Page/Parent 2 0 R/MediaBox[{box}]/Contents 4 0 R{more}>>"


def drawn(draw: Callable[[Canvas], None]) -> bytes:
    """Return a PDF that reportlab writes."""
    out = io.BytesIO()
    canvas = Canvas(out)
    draw(canvas)
    canvas.save()
    return out.getvalue()


def scattered(canvas: Canvas, count: int = 12_000) -> None:
    """Draw words anywhere."""
    rng = random.Random(1)
    canvas.setFont("Helvetica", 3)
    for _ in range(count):
        canvas.drawString(rng.randrange(590), rng.randrange(840), "hay")


def crossed(canvas: Canvas, count: int = 2500) -> None:
    """Draw a grid of many lines, and a word."""
    for number in range(count):
        canvas.line(0, number / 3, 590, number / 3)
        canvas.line(number / 4, 0, number / 4, 840)
    canvas.drawString(72, 700, "hay")


def stacked(canvas: Canvas) -> None:
    """Draw ten thousand letters on each other, without width or height."""
    text = canvas.beginText(72, 700)
    text.setTextTransform(0, 0, 0, 0, 72, 700)
    text.textLine("hay " * 2500)
    canvas.drawText(text)
    canvas.drawString(72, 600, "straw")


def png(width: int, height: int, data: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Return a PNG that claims a size."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), *more,
              (b"IDAT", data), (b"IEND", b"")]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def tiff(next_page: int) -> bytes:
    """Return a TIFF of one pixel whose next page stands anywhere."""
    tags = [(256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (278, 1), (279, 1)]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    head = struct.pack("<HI", 42, 10)
    return (
        b"II"
        + head
        + b"\0\0"
        + struct.pack("<H", len(tags))
        + entries
        + struct.pack("<I", next_page)
    )


def jpeg() -> bytes:
    """Return a picture without a word."""
    out = io.BytesIO()
    Image.new("L", (300, 300), 128).save(out, "JPEG")
    return out.getvalue()


IMAGE = "/Resources<</XObject<</I 5 0 R>>>>"
SHOWN = stream(b"600 0 0 800 0 0 cm /I Do")

HOSTILE_PDFS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "PDF whose pages are a circle": (
        "a.pdf", lambda: raw_pdf(CATALOG, "<</Type/Pages/Kids[2 0 R]/Count 9>>")
    ),
    "PDF that promises pages": (
        "a.pdf", lambda: raw_pdf(CATALOG, "<</Type/Pages/Kids[3 0 R]/Count 2000000000>>", page())
    ),
    "PDF whose page is a bomb": (
        "a.pdf", lambda: raw_pdf(CATALOG, PAGES, page(), stream(bytes(300_000_000)))
    ),
    "PDF whose picture is a bomb": (
        "a.pdf",
        lambda: raw_pdf(
            CATALOG, PAGES, page(IMAGE), SHOWN,
            stream(bytes(90_000_000), "/Subtype/Image/Width 60000/Height 60000/BitsPerComponent 1"
                   "/ColorSpace/DeviceGray"),
        ),
    ),
    "PDF whose picture lies about its size": (
        "a.pdf",
        lambda: raw_pdf(
            CATALOG, PAGES, page(IMAGE), SHOWN,
            stream(b"hay", "/Subtype/Image/Width 2000000000/Height 2000000000/BitsPerComponent 16"
                   "/ColorSpace/DeviceRGB"),
        ),
    ),
    "PDF whose form draws itself": (
        "a.pdf",
        lambda: raw_pdf(
            CATALOG, PAGES, page(IMAGE), SHOWN,
            stream(b"/I Do /I Do", f"/Subtype/Form/BBox[0 0 9 9]{IMAGE}"),
        ),
    ),
    "PDF of a page like a country": (
        "a.pdf",
        lambda: raw_pdf(CATALOG, PAGES, page(box="0 0 1e9 1e9"), stream(b"0 0 9e8 9e8 re f")),
    ),
    "PDF of a page without a size": (
        "a.pdf", lambda: raw_pdf(CATALOG, PAGES, page(box="0 0 0 0"), stream(b"0 0 9 9 re f"))
    ),
    "PDF whose bookmarks are a circle": (
        "a.pdf",
        lambda: raw_pdf(
            "<</Type/Catalog/Pages 2 0 R/Outlines 5 0 R>>", PAGES, page(), stream(b"0 0 9 9 re f"),
            "<</First 6 0 R/Last 6 0 R/Count 1>>", "<</Title(hay)/Parent 5 0 R/Next 6 0 R>>",
        ),
    ),
    "PDF of a million rectangles": (
        "a.pdf", lambda: raw_pdf(CATALOG, PAGES, page(), stream(b"1 1 5 5 re f\n" * 1_000_000))
    ),
    "PDF of scattered words": ("a.pdf", lambda: drawn(scattered)),
    "PDF of a thousand lines that cross": ("a.pdf", lambda: drawn(crossed)),
    "PDF of letters without a size": ("a.pdf", lambda: drawn(stacked)),
    "picture that is a bomb": (
        "a.png", lambda: png(60_000, 60_000, zlib.compress(bytes(200_000_000)))
    ),
    "picture whose comment is a bomb": (
        "a.png",
        lambda: png(9, 9, zlib.compress(bytes(90)),
                    (b"zTXt", b"a\0\0" + zlib.compress(bytes(200_000_000)))),
    ),
    "truncated picture": ("a.jpg", lambda: jpeg()[:200]),
    "picture of noise": (
        "a.webp", lambda: b"RIFF\0\0\0\0WEBPVP8 " + random.Random(1).randbytes(9000)
    ),
    "picture without a word": ("a.jpg", jpeg),
    "picture whose pages are a circle": ("a.tiff", lambda: tiff(10)),
    "animation named as a picture": ("a.png", lambda: b"GIF89a" + bytes(900)),
}  # fmt: skip
"""By what it is: the name of a file and what makes it."""

HARMLESS_PDFS = {
    "PDF of scattered words",
    "PDF of a thousand lines that cross",
    "PDF of letters without a size",
}
"""Those that may also have a text."""
