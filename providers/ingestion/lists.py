"""Lists in Markdown: where they are, so that one is not cut where it fits whole."""

from __future__ import annotations

import re

_ITEM = re.compile(r"( {0,3})(?:([-*+])|\d{1,9}([.)]))(?:[ \t]+\S|[ \t]*$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,})$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_OTHER = re.compile(r" {0,3}(?:#{1,6}[ \t]|>|\||`{3}|~{3})")


def find_lists(text: str) -> list[tuple[int, int]]:
    """Return begin and end of each list of a Markdown text, those within it included.

    None in code. A list ends before the first line that is neither an item, nor indented, nor the
    rest of a paragraph in it, and before an item of another kind: `1.` after `-`.
    """
    found: list[tuple[int, int]] = []
    start = end = -1  # of the open list
    fence, is_blank, kind = "", False, ("", "")
    position = 0
    for line in text.split("\n"):
        opened = _FENCE.match(line)
        if fence:
            fence = "" if opened and line.strip().startswith(fence) else fence
        elif opened and start < 0:
            fence = opened[1]
        elif (item := _ITEM.match(line)) and not _RULE.match(line):
            indent, mark = item[1], item[2] or item[3]
            if start >= 0 and indent == kind[0] and mark != kind[1]:
                found.append((start, end))
                start = -1
            if start < 0:
                start, kind = position, (indent, mark)
            end = position + len(line)
        elif start >= 0 and line.strip():
            goes_on = line.startswith(("  ", "\t")) or not (is_blank or _OTHER.match(line))
            if goes_on:
                end = position + len(line)
            else:
                found.append((start, end))
                start, fence = -1, opened[1] if opened else ""
        is_blank = not line.strip()
        position += len(line) + 1
    return [*found, (start, end)] if start >= 0 else found
