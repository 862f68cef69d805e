"""Measures how well Corral and other readers read documents with known contents.

python -m lab.documents             layouts and tables of 40 PDFs, questions about them, 30 scans
python -m lab.documents layouts     one part: layouts, questions, sections, scans or speed
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from corral.providers.ingestion.read.detecting import PDF
from corral.providers.ingestion.read.parsing import parse
from lab.documents import fpdf2_pdfs, measures, reportlab_pdfs
from lab.documents.content import MadePdf
from lab.documents.questions import answered, in_context, questions
from lab.documents.readers import OPTIONAL, READERS
from lab.documents.scans import Scan, scans

PARTS = ("layouts", "questions", "sections", "speed", "scans")


def layouts(pdfs: Sequence[MadePdf], details: bool = False) -> dict[str, dict[str, float]]:
    """Return each reader's figures over all PDFs, each from 0 to 1."""
    return {name: _figures(name, pdfs, details) for name in READERS}


def _figures(name: str, pdfs: Sequence[MadePdf], details: bool) -> dict[str, float]:
    shares: defaultdict[str, list[float]] = defaultdict(list)
    cells: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for made in pdfs:
        reading = READERS[name](made.data)
        own = {
            "order": measures.order(made, reading),
            "whole words": measures.words(made, reading),
            "running lines dropped": measures.running(made, reading),
        }
        for what, share in own.items():
            shares[what] += [] if share is None else [share]
        for grid in made.grids:
            what = "ruled cells" if grid.ruled else "unruled cells"
            cells[what].append(measures.cells(grid, reading.tables))
            own[what] = cells[what][-1][0] / cells[what][-1][1]
        if details:
            print(f"  {name}: {made.library}, {made.kind}: {_shown(own)}")
    figures = {what: statistics.fmean(each) for what, each in shares.items() if each}
    for what, pairs in cells.items():
        figures[what] = sum(right for right, _ in pairs) / sum(count for _, count in pairs)
    return figures


def _shown(figures: dict[str, float] | dict[str, float | None]) -> str:
    return ", ".join(f"{k} {100 * v:.1f} %" for k, v in sorted(figures.items()) if v is not None)


def scan_errors(made: Sequence[Scan]) -> Iterator[tuple[Scan, float, float]]:
    """Yield scans, each with its character error rate and processor time in seconds."""
    for scan in made:
        started = time.process_time()
        text = parse(scan.data, PDF).text
        yield scan, measures.character_errors(scan.text, text), time.process_time() - started


def speed(pdfs: Sequence[MadePdf], rounds: int = 3) -> dict[str, float]:
    """Return each reader's minimum processor time per page in milliseconds, interleaved."""
    least: dict[str, float] = {}
    pages = sum(len(parse(made.data, PDF).page_starts) for made in pdfs)
    for _ in range(rounds):
        for name, read in READERS.items():
            started = time.process_time()
            for made in pdfs:
                read(made.data)
            took = (time.process_time() - started) * 1000 / pages
            least[name] = min(took, least.get(name, took))
    return least


def _print_scans() -> None:
    errors: defaultdict[int, list[float]] = defaultdict(list)
    seconds: list[float] = []
    for scan, error, took in scan_errors(scans()):
        errors[scan.dpi].append(error)
        seconds.append(took)
    for dpi, each in sorted(errors.items()):
        mean, worst = 100 * statistics.fmean(each), 100 * max(each)
        print(f"{dpi} dpi: {len(each)} scans, character errors {mean:.2f} % (worst {worst:.2f} %)")
    print(f"{statistics.fmean(seconds):.1f} s of the processor a scan; other readers: 100 % errors")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all.")
    parser.add_argument("--details", action="store_true", help="Figures of each PDF.")
    options = parser.parse_args(arguments)
    parts = options.parts or PARTS
    if set(parts) - set(PARTS):
        parser.error(f"The parts are {', '.join(PARTS)}.")
    if OPTIONAL not in READERS and {"layouts", "speed"} & set(parts):
        print(f"{OPTIONAL} is not installed, so it is not compared: pip install '{OPTIONAL}<2'")
    pdfs = [*reportlab_pdfs.pdfs(), *fpdf2_pdfs.pdfs()]
    if "layouts" in parts:
        for name, figures in layouts(pdfs, options.details).items():
            print(f"{name}: {_shown(figures)}")
    if "questions" in parts:
        asked = questions(pdfs)
        shares = asyncio.run(answered(pdfs, asked))
        print(f"{len(asked)} questions, answered by one of three chunks: {_shown(shares)}")
    if "sections" in parts:
        for (size, expand, budget), share in asyncio.run(in_context(pdfs, questions(pdfs))).items():
            what = f"Chunks of {size} tokens, expand {expand}, context of {budget} tokens"
            print(f"{what}: {100 * share:.1f} %")
    if "speed" in parts:
        took = (f"{name} {each:.1f} ms" for name, each in speed(pdfs).items())
        print(f"A page of these takes: {', '.join(took)}")
    if "scans" in parts:
        _print_scans()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
