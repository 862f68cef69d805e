"""Prints how well documents with known contents are read: python -m lab.documents [--scans]."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence

from lab.documents import fpdf2_pdfs, measures, reportlab_pdfs
from lab.documents.content import MadePdf
from lab.documents.readers import READERS


def layouts(pdfs: Sequence[MadePdf], details: bool = False) -> dict[str, dict[str, float]]:
    """Return for each reader its figures, from 0 to 1, over all PDFs."""
    figures: dict[str, dict[str, float]] = {}
    for name, read in READERS.items():
        shares: defaultdict[str, list[float]] = defaultdict(list)
        counts: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for made in pdfs:
            reading = read(made.data)
            found = {
                "order": measures.order(made, reading),
                "words": measures.words(made, reading),
                "running": measures.running(made, reading),
            }
            for what, share in found.items():
                if share is not None:
                    shares[what].append(share)
            for grid in made.grids:
                cells = measures.cells(grid, reading.tables)
                counts["ruled cells" if grid.ruled else "unruled cells"].append(cells)
                found["cells"] = cells[0] / cells[1]
            if details:
                print(
                    name,
                    made.library,
                    made.kind,
                    {k: round(v, 3) for k, v in found.items() if v is not None},
                )
        figures[name] = {what: sum(each) / len(each) for what, each in shares.items()}
        for what, pairs in counts.items():
            figures[name][what] = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--details", action="store_true", help="Each document's figures.")
    options = parser.parse_args(arguments)
    pdfs = [*reportlab_pdfs.pdfs(), *fpdf2_pdfs.pdfs()]
    for name, figures in layouts(pdfs, options.details).items():
        print(
            f"{name:16}",
            "  ".join(f"{what} {100 * share:5.1f} %" for what, share in sorted(figures.items())),
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
