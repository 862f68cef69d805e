"""Read subtitles (W3C WebVTT 1, SRT): the spoken text, with times as headings."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from corral.providers.ingestion.split.headings import Heading

SECONDS_PER_PARAGRAPH = 60
"""A paragraph ends with the first sentence that ends after this time, or after twice the time.

A minute of speech is about 150 words, which make a chunk of the default size."""

_TIMES = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,]\d{1,3}[ \t]+-->")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?[ \t]++([^<>]*+)>")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_SENTENCE_END = (".", "!", "?", "…", "。", "！", "？", '."', '?"', '!"')


def read(text: str) -> tuple[str, tuple[Heading, ...]]:
    """Return the spoken text as paragraphs, with the start time of each as its heading.

    Counters, times, markup, notes and styles are dropped, and so are lines that repeat the previous
    line, as in rolling captions. A text without times is returned unchanged.
    """
    paragraphs: list[tuple[int, list[str]]] = []
    last = ""
    for seconds, lines in _cues(text):
        for line in lines:
            if line and line != last:
                if not paragraphs or _is_over(paragraphs[-1], seconds):
                    paragraphs.append((seconds, []))
                paragraphs[-1][1].append(line)
                last = line
    if not paragraphs:
        return text, ()
    parts, headings, start = [], [], 0
    for seconds, lines in paragraphs:
        headings.append(Heading(start, start, 1, _shown(seconds)))
        parts.append(" ".join(lines))
        start += len(parts[-1]) + 2
    return "\n\n".join(parts), tuple(headings)


def _is_over(paragraph: tuple[int, list[str]], seconds: int) -> bool:
    begun, lines = paragraph
    ends = lines[-1].endswith(_SENTENCE_END)
    return seconds - begun >= SECONDS_PER_PARAGRAPH * (1 if ends else 2)


def _cues(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the start of each cue, in seconds, and its lines."""
    for block in re.split(r"\n[ \t]*\n", text):
        lines = block.strip().split("\n")
        for number, line in enumerate(lines[:2]):  # An identifier may precede the times.
            if times := _TIMES.match(line.strip()):
                hours, minutes, seconds = (int(each or 0) for each in times.groups())
                yield hours * 3600 + minutes * 60 + seconds, list(map(_said, lines[number + 1 :]))
                break


def _said(line: str) -> str:
    named = _VOICE.sub(r"\1: ", line)
    return " ".join(html.unescape(_TAG.sub("", named)).split())


def _shown(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
