"""One voice: README, docs, RFCs and help texts say things in plain English."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from corral.server.cli.cli import main

from .pages import PAGES, ROOT

BETTER = {
    r"(?:is|are|was|were) to be": "must be, or say who does it",
    r"(?:has|have|had) to be": "must be",
    r"stands? (?:in|there|beside)": "is in, appears in",
    r"(?:goes|go|went) (?:before|first)": "wins",
    r"where there (?:is|are)": "if there is, if ... has",
    r"there where": "where",
    r"(?:of )?one's own": "your own",
    r"who would rather": "to get ... instead, ask for it",
    r"anew": "again; rebuild, recompute",
    r"(?:nobody|somebody|anybody|whoever)": "name the user, client, process or engine",
    r"meanwhile": "during that time, in between, since then",
    r"at work": "running; name the step",
    r"(?:take|takes|taking|took) turns|rounds in turn": "one at a time, interleaved",
    r"of which": "two sentences, or name the thing again",
    r"(?:that|those) of": "name the thing again, or a possessive",
    r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|better|worse)": "is not a",
}
"""What we do not write, as a regular expression, and what we write instead."""

DIALECT = (
    r"Return (?:what|how|which|whether|who|those)",
    r"(?:nobody|somebody|whoever|anybody)",
    r"(?:anew|meanwhile|at work)",
    r"(?:of which|whose|that of)",
    r"(?:Whether|How (?:many|much|often|long|far))",
    r"What (?:is|the|a)",
    r"where (?:there (?:is|are)|none (?:is|are)|nothing)",
)
"""Phrases of docstrings and comments that a native engineer would not write."""

PARTICIPLES = {"found", "asked", "said", "told", "gone", "kept", "seen", "known", "wanted"}
"""Names that do not say what they hold: hits, question, message, ids ..."""

LIMITS = re.compile(r"_?(?:MOST|FEW|LEAST)_\w+|\w+_AT_ONCE")
"""Names of constants that are `MAX_...`, `MIN_...` or `..._LIMIT`."""

CEILINGS = {
    "api": (0, 2),
    "providers/base": (1, 10),
    "providers/copying": (0, 15),
    "providers/embedding": (5, 24),
    "providers/ingestion": (0, 59),
    "providers/rag": (0, 0),
    "providers/rerank": (0, 0),
    "providers/stack": (0, 46),
    "providers/text": (0, 0),
    "providers/vector_io/kit": (0, 0),
    "providers/vector_io/store": (1, 48),
    "providers/vector_io": (6, 214),
    "server": (12, 42),
    "bench": (8, 206),
}
"""The number of dialect phrases, and of such names, in each room. They may only fall."""

ITEM = re.compile(r" *(?:[*-]|\d+\.) ")
"""How an item of a list begins."""


def faults(text: str) -> list[str]:
    """Return each phrase of `BETTER` in a text, with what to write instead."""
    flat = " ".join(text.split())
    return [
        f"...{flat[max(0, at.start() - 30) : at.end() + 30]}...: for {at[0]!r} write {better}"
        for phrase, better in BETTER.items()
        for at in re.finditer(rf"\b{phrase}\b", flat, re.IGNORECASE)
    ]


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yield the help of a command, its options and its subcommands, each with its name."""
    yield name, command.help or ""
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{name} {option.opts[-1]}", option.help or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                yield from helps(found, f"{name} {each}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_speaks_plainly(page: Path) -> None:
    """No page holds a phrase that only a translation would.

    If this fails: the message quotes the phrase and says what to write instead.
    """
    found = faults(page.read_text("utf-8"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_list_begins_after_a_blank_line(page: Path) -> None:
    """A list after a line of text is a list for a forge; the site's parser needs a blank line.

    If this fails: put a blank line before the item, or the site shows the list as one paragraph.
    """
    in_code, before = False, ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        in_code ^= line.lstrip().startswith("```")
        begins = not in_code and ITEM.match(line) and not before.startswith(" ")
        assert not (begins and before.strip() and not ITEM.match(before)), f"{page}:{number}"
        before = line


def test_help_texts_speak_plainly() -> None:
    """No help text of `corral`, its commands and their options holds such a phrase either."""
    found = [f"{name}: {fault}" for name, text in helps(main, "corral") for fault in faults(text)]
    assert not found, "\n".join(found)


def test_the_phrases_are_found_over_line_breaks() -> None:
    """A phrase counts in any case and over a line break; a stand-in and a longer word do not."""
    assert len(faults("Such a value Stands\n in the file and has to be text.")) == 2
    assert not faults("A stand-in answers; understand inner joins.")


def test_the_changelog_says_each_change_once() -> None:
    """Under a version each heading appears once, in the usual order, and no entry twice.

    If this fails: a merge kept both sides of a rewritten section; keep the newer one.
    """
    for version in (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1:]:
        headings = re.findall(r"^### (\w+)$", version, re.MULTILINE)
        assert headings == sorted(set(headings)), headings  # Added, Changed, Fixed, Removed
        entries = [" ".join(entry.split()) for entry in re.split(r"\n- |\n\n", version)]
        begins = [" ".join(entry.split()[:8]) for entry in entries]
        assert len(begins) == len(set(begins)), {one for one in begins if begins.count(one) > 1}


def prose(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def odd_names(source: str) -> Iterator[str]:
    """Yield the assigned names and arguments that are participles, or limits by another name."""
    for node in ast.walk(ast.parse(source)):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name in PARTICIPLES or LIMITS.fullmatch(name):
            yield name


@pytest.mark.parametrize("room", CEILINGS)
def test_code_speaks_more_plainly_each_time(room: str) -> None:
    """A room has no more dialect phrases and odd names than before.

    If this fails: say it in the field's words. Write a smaller number into `CEILINGS`.
    """
    phrases = names = 0
    for path in sorted((ROOT / room).rglob("*.py")):
        source = path.read_text("utf-8")
        for text in prose(source):
            phrases += sum(len(re.findall(rf"\b{phrase}\b", text)) for phrase in DIALECT)
        names += len(list(odd_names(source)))
    most_phrases, most_names = CEILINGS[room]
    assert phrases <= most_phrases
    assert names <= most_names
