"""Texts with structure, notebooks, subtitles and containers, made from the same sections."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from .made_containers import msg, zipped
from .made_files import WORDS, WORLD, Made, Section, made_of, sections


def _marked(
    rng: random.Random, heading: Callable[[Section], str], block: str = "", **more: Any
) -> Made:
    """Return sections below the headings of a format, with a block that holds none."""
    found = sections(rng, WORLD)
    parts = []
    for each in found:
        parts += [heading(each), *each.paragraphs, *([block] if block else [])]
    return made_of("\n\n".join(parts).encode(), found, **more)


def rst(rng: random.Random) -> Made:
    """Return reStructuredText; the order of the underlines gives the levels."""
    return _marked(
        rng, lambda each: f"{each.title}\n{'=-~'[each.level - 1] * (len(each.title) + 2)}"
    )


def asciidoc(rng: random.Random) -> Made:
    """Return AsciiDoc with listings that look like headings."""
    return _marked(
        rng, lambda each: f"{'=' * each.level} {each.title}", "----\n== no heading\n----"
    )


def org(rng: random.Random) -> Made:
    """Return an Org file with states, tags and source blocks."""

    def heading(each: Section) -> str:
        return f"{'*' * each.level} {rng.choice(['', 'TODO ', 'DONE '])}{each.title}  :farm:"

    return _marked(rng, heading, "#+BEGIN_SRC\n* no heading\n#+END_SRC")


def latex(rng: random.Random) -> Made:
    """Return LaTeX: parts, chapters and sections, some without numbers."""
    names = ["part", "chapter", "section"]
    found = sections(rng, WORDS)
    parts = []
    for each in found:
        star = rng.choice(["", "*"])
        parts += [f"\\{names[each.level - 1]}{star}{{{each.title}}}", *each.paragraphs]
    return made_of("\n\n".join(parts).encode(), found)


def front_matter(rng: random.Random) -> Made:
    """Return Markdown below front matter, whose values are metadata."""
    found = sections(rng, WORLD)
    year, tag = rng.randint(2000, 2030), rng.choice(WORLD)
    parts = [f"---\ntitle: The {tag}\nyear: {year}\ndate: {year}-03-01\ntags: [a, {tag}]\n---"]
    for each in found:
        parts += [f"{'#' * each.level} {each.title}", *each.paragraphs]
    metadata = {"year": year, "date": f"{year}-03-01", "tags": ["a", tag]}
    data = "\n\n".join(parts).encode()
    return made_of(data, found, title=f"The {tag}", metadata=metadata)


def notebook(rng: random.Random) -> Made:
    """Return a notebook: the sections as Markdown, code and its outputs, and a picture."""
    found = sections(rng, WORLD)
    cells: list[dict[str, Any]] = []
    texts: list[str] = []
    for number, each in enumerate(found):
        source = "\n\n".join([f"{'#' * each.level} {each.title}", *each.paragraphs])
        lines = source.splitlines(keepends=True)
        cells.append({"cell_type": "markdown", "metadata": {}, "source": lines})
        printed = {"output_type": "stream", "name": "stdout", "text": [f"OUT{number}\n"]}
        drawn = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "aGF5"}}
        cells.append({
            "cell_type": "code", "metadata": {}, "execution_count": number,
            "outputs": [printed, drawn], "source": f"count_{number} = {number}",
        })  # fmt: skip
        texts += [each.title, *each.paragraphs, f"count_{number} = {number}", f"OUT{number}"]
    about = {"kernelspec": {"language": "python", "name": "python3", "display_name": "P"}}
    data = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    made = made_of(json.dumps(data).encode(), found, absent=("aGF5",))
    return Made(**{**vars(made), "texts": tuple(texts)})


def _cues(rng: random.Random) -> tuple[list[tuple[int, str]], Made]:
    """Return the second and the words of cues, 70 seconds apart, and what they give."""
    words = [f"S{n} {' '.join(rng.choice(WORLD) for _ in range(8))}." for n in range(12)]
    cues = [(70 * number + rng.randint(0, 4), each) for number, each in enumerate(words)]
    times = tuple((1, f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}") for s, _ in cues)
    return cues, Made(b"", tuple(words), times, absent=("-->",))


def _time(second: int, point: str) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}{point}000"


def vtt(rng: random.Random) -> Made:
    """Return subtitles with voices, notes and settings of cues."""
    cues, made = _cues(rng)
    parts = ["WEBVTT", "NOTE not said"]
    parts += [f"{_time(s, '.')} --> {_time(s + 5, '.')} line:0\n<i>{text}</i>" for s, text in cues]
    return Made(
        **{**vars(made), "data": "\n\n".join(parts).encode(), "absent": ("not said", "<i>")}
    )


def srt(rng: random.Random) -> Made:
    """Return numbered subtitles."""
    cues, made = _cues(rng)
    parts = [
        f"{number}\n{_time(second, ',')} --> {_time(second + 5, ',')}\n{text}"
        for number, (second, text) in enumerate(cues, 1)
    ]
    return Made(**{**vars(made), "data": "\n\n".join(parts).encode()})


def outlook(rng: random.Random) -> Made:
    """Return a mail of Outlook, some with attachments."""
    subject = f"Schafe {rng.choice(WORLD)} für alle"
    said = [f"M{n} {' '.join(rng.choice(WORLD) for _ in range(9))}." for n in range(3)]
    attached = {f"hay {n}.txt": b"ATTACHED" for n in range(rng.randint(0, 2))}
    texts = {
        "001A": "IPM.Note",
        "0037": subject,
        "0C1F": "ada@example.org",
        "1000": "\n".join(said),
    }
    return Made(
        msg(texts, attached), (subject, *said), ((1, subject),), title=subject,
        absent=("ATTACHED",), parts=tuple(attached),
    )  # fmt: skip


def archive(rng: random.Random) -> Made:
    """Return an archive: its text has the names, its files are documents."""
    names = [f"{rng.choice(WORDS)}/{rng.choice(WORDS)} {number}.md" for number in range(5)]
    data = zipped({name: f"# Inside\n\n{rng.choice(WORDS)}" for name in names})
    return Made(data, tuple(names), absent=("Inside",), parts=tuple(names))


def config(rng: random.Random) -> Made:
    """Return the settings of a program; comments with number signs are no headings."""
    lines = [f"{rng.choice(WORDS)}_{n} = {rng.choice(WORLD)}" for n in range(12)]
    return Made("\n".join(["# Farm", "[barn]", *lines]).encode(), ("# Farm", "[barn]", *lines))


def log(rng: random.Random) -> Made:
    """Return a log; its lines end as on Windows."""
    lines = [f"2026-03-{n + 1:02}T06:00:00Z INFO {rng.choice(WORLD)} {n}" for n in range(20)]
    return Made("\r\n".join(lines).encode(), tuple(lines))


TEXTS: dict[str, tuple[str, Callable[[random.Random], Made]]] = {
    "rst": ("a.rst", rst),
    "asciidoc": ("a.adoc", asciidoc),
    "org": ("a.org", org),
    "latex": ("a.tex", latex),
    "front matter": ("a.md", front_matter),
    "notebook": ("a.ipynb", notebook),
    "vtt": ("a.vtt", vtt),
    "srt": ("a.srt", srt),
    "msg": ("a.msg", outlook),
    "zip": ("a.zip", archive),
    "conf": ("app.conf", config),
    "ini": ("app.ini", config),
    "toml": ("app.toml", config),
    "log": ("build.log", log),
    "dockerfile": ("Dockerfile", config),
}
"""By format, a file's name and what makes one; beside those of `made_files`."""
