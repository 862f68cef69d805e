"""Every code block of the pages: commands, settings and Python that the product knows."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from corral.api.provider import Api
from corral.providers.base.config import RunConfig, substitute
from corral.providers.sources.registry import check_source
from corral.providers.stack.registry import check_config
from corral.server.cli.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "providers/**/*.md",
        "bench/**/*.md",
        "examples/**/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"
)
LANGUAGES = {"", "bash", "json", "json chunks", "json query", "json register", "python", "sh"}
LANGUAGES |= {"sql", "toml", "yaml"}

FOREIGN = {"scrape_configs": "Prometheus", "services": "Docker Compose"}
"""Top-level keys of YAML blocks that are not run.yaml's, and the programs that read them."""

_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(corral [a-z][^`]*)`")
_ENDS = {"|", "&&", "||", ";", "&", ">", ">>", "<", "(", ")"}


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: where it is, its language, and its text without the indent of a list."""

    place: str
    language: str
    text: str


@cache
def blocks(*languages: str) -> list[Block]:
    """Return the blocks of some languages on all pages."""
    made = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in _BLOCK.finditer(text):
            place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            lines = [line.removeprefix(match[1]) for line in match[3].splitlines()]
            made.append(Block(place, match[2], "\n".join(lines)))
    return [block for block in made if block.language in languages]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell, without its comment and its variables."""
    for line in text.replace("\\\n", " ").splitlines():
        reader = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        reader.whitespace_split = True
        try:
            words = list(reader)
        except ValueError:  # a line of output with one quotation mark
            continue
        while words:
            end = next((i for i, word in enumerate(words) if word in _ENDS), len(words))
            command = words[:end]
            while command and re.match(r"[A-Z_]+=", command[0]):
                command = command[1:]
            yield command
            words = words[end + 1 :]


def faults(words: list[str]) -> Iterator[str]:
    """Yield what `corral` would refuse in a command, without running it."""
    command: click.Command = main
    context = click.Context(main, info_name="corral")
    while True:
        try:
            values, words, _ = command.make_parser(context).parse_args(list(words))
        except click.UsageError as error:
            yield error.format_message()
            return
        if not isinstance(command, click.Group):
            break
        if not words or words[0] == "...":
            return
        context.params = values
        below = command.get_command(context, words[0])
        if below is None:
            yield f"no command {words[0]!r}"
            return
        command, context = below, click.Context(below, parent=context, info_name=words[0])
        words = words[1:]
    missing = [
        str(each.name)
        for each in command.params
        if isinstance(each, click.Argument) and each.required and not values.get(str(each.name))
    ]
    if missing and "help" not in values:
        yield f"no {', '.join(missing)}"
    if words and words != ["..."]:
        yield f"too many words: {words}"


def test_each_block_has_a_language_that_is_checked_here() -> None:
    """A block's language is one for which a test exists; a second word says what JSON is for.

    If this fails: correct the fence, or write the test of the new language.
    """
    for page in PAGES:
        for match in _BLOCK.finditer(page.read_text("utf-8")):
            assert match[2] in LANGUAGES, page


def test_commands_in_blocks_are_those_of_the_program() -> None:
    """Each `corral ...` in a block has the words and options that the program takes.

    If this fails: a command or an option was renamed, or the page never worked.
    """
    count, wrong = 0, []
    for block in blocks("", "sh", "bash"):
        for words in commands(block.text):
            if words and Path(words[0]).name == "corral" and words[1:]:
                count += 1
                wrong += [f"{block.place}: {shlex.join(words)}: {f}" for f in faults(words[1:])]
    assert not wrong, "\n".join(wrong)
    assert count > 80


def test_commands_in_sentences_exist() -> None:
    """`corral X --option` in a sentence names what exists; arguments may be left out."""
    wrong = []
    for page in PAGES:
        for text in _INLINE.findall(" ".join(page.read_text("utf-8").split())):
            for words in commands(re.sub(r" \|.*|…|\[.*\]", "", text)):
                for fault in faults(words[1:]) if words[:1] == ["corral"] else ():
                    if fault.lower().startswith(("no such option", "no command")):
                        wrong.append(f"{page.relative_to(ROOT)}: {text}: {fault}")
    assert not wrong, "\n".join(wrong)


def test_make_knows_the_targets() -> None:
    """Each `make X` in a block, and in a workflow of CI, is a target of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for block in blocks("", "sh", "bash"):
        for words in commands(block.text):
            if words[:1] == ["make"] and len(words) > 1:
                named = {word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)}
                assert named <= targets, block.place
    for path in ROOT.glob(".github/workflows/*.yml"):
        jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
        steps = [str(step.get("run", "")) for job in jobs.values() for step in job["steps"]]
        assert set(re.findall(r"^make ([\w-]+)", "\n".join(steps), re.MULTILINE)) <= targets, path


def test_pip_knows_the_extras() -> None:
    """Each `corral-rag[...]` on a page names extras of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {*project["optional-dependencies"], "..."}
    for page in PAGES:
        for named in re.findall(r"corral-rag\[([^\]]+)\]", page.read_text("utf-8")):
            assert set(re.split(r", *", named)) <= extras, page


def settings(block: Block) -> Any:
    """Return a block as the run.yaml, or the part of it, that it shows; None if it is foreign."""
    shown = yaml.safe_load(block.text.replace("COMMIT", "a" * 40))
    if isinstance(shown, list):
        return {"providers": {"vector_io": shown}}
    if shown.keys() & FOREIGN.keys():
        return None
    if shown.keys() <= set(Api):
        return {"providers": shown}
    if shown.keys() == {"attach"}:
        entry = {"provider_id": "a", "provider_type": "remote::pgvector", "config": shown}
        return {"providers": {"vector_io": [entry]}}
    return shown


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.place)
def test_settings_in_blocks_are_accepted(block: Block) -> None:
    """Each block of YAML is a valid run.yaml, with the settings of its providers and sources.

    If this fails: the server would not start with what the page shows.
    """
    shown = settings(block)
    if shown is None:
        return
    names = re.findall(r"\$\{env\.(\w+)\}", block.text)
    config = RunConfig.model_validate(
        substitute(shown, dict.fromkeys(names, "postgresql://db/corral"))
    )
    for api in Api:
        for entry in config.providers.of(api):
            if entry.provider_type != "inline::dict":  # the example, which its own test installs
                check_config(api, entry)
    for sync in config.sync:
        check_source(sync.source, sync.name)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_python_in_blocks_compiles_and_imports_what_exists(block: Block) -> None:
    """Each block of Python compiles, and what it imports from an installed package exists.

    If this fails: a reader who pastes it gets a SyntaxError or an ImportError.
    """
    for node in ast.walk(ast.parse(textwrap.dedent(block.text))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_installed(alias.name):
                    import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and _is_installed(str(node.module)):
            module = import_module(str(node.module))
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                assert hasattr(module, alias.name) or importlib.util.find_spec(submodule), submodule


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.place)
def test_entry_points_in_blocks_are_of_groups_that_are_read(block: Block) -> None:
    """Each block of TOML parses, and its entry points are in a group in which Corral looks."""
    groups = tomllib.loads(block.text)["project"]["entry-points"]
    ours = {each.group for each in metadata.distribution("corral-rag").entry_points}
    assert set(groups) <= ours


def _is_installed(module: str) -> bool:
    """Return True if the package is in this environment; an application's own one is not."""
    return importlib.util.find_spec(module.split(".", maxsplit=1)[0]) is not None
