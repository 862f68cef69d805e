"""Jupyter notebooks are read cell by cell, by what they are and not by their name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.detecting import JSON, NOTEBOOK, detected, type_of
from corral.providers.ingestion.read.parsing import parse


def cell(kind: str, source: Any, **more: Any) -> dict[str, Any]:
    """Return a cell."""
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def notebook(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a notebook of version 4."""
    about = {"language_info": {"name": "python"}}
    return {"cells": [*cells], "metadata": about, "nbformat": 4, "nbformat_minor": 5, **more}


OUTPUTS = [
    {"output_type": "stream", "name": "stdout", "text": ["10 %\r100 %\n", "\x1b[31mred\x1b[0m\n"]},
    {"output_type": "execute_result", "data": {"text/plain": ["42"], "text/html": "<b>42</b>"}},
    {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": "<Figure>"}},
    {"output_type": "error", "ename": "ValueError", "evalue": "no sheep", "traceback": ["..."]},
    {"output_type": "stream", "name": "stdout", "text": "x" * 5000},
]
WHOLE = notebook(
    cell("markdown", ["# Sheep\n", "\n", "How many are there?"]),
    cell("code", "print(6 * 7)\n# no heading", outputs=OUTPUTS, execution_count=1),
    cell("code", 'fence = """\n```\n"""', outputs=[]),
    cell("raw", "# raw"),
    cell("code", "", outputs=[]),
)


def test_a_notebook_is_its_cells_and_what_they_printed() -> None:
    """Texts stay Markdown, code and outputs are fenced, and pictures are counted.

    If this fails: look at `readers/notebook.py`. Search finds JSON instead of a sentence.
    """
    read = parse(json.dumps(WHOLE).encode(), NOTEBOOK)
    assert read.markdown
    assert read.title == "Sheep"
    assert [heading.text for heading in read.headings] == ["Sheep"]
    assert "# Sheep\n\nHow many are there?" in read.text
    assert "```python\nprint(6 * 7)\n# no heading\n```" in read.text
    assert "```\n100 %\nred\n```" in read.text
    assert "```\n42\n```" in read.text
    assert "ValueError: no sheep" in read.text
    assert '````python\nfence = """\n```\n"""\n````' in read.text
    assert "\\# raw" in read.text
    assert "x" * 2000 in read.text
    assert "x" * 2001 not in read.text
    assert read.unread == ("1 pictures", "1 ends of long outputs")
    for absent in ("cell_type", "aGk=", "<b>", "\x1b", "10 %\r"):
        assert absent not in read.text


def test_a_notebook_of_version_3_is_read() -> None:
    """Its cells stand in worksheets, with other names for source and outputs."""
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Fences"},
        {
            "cell_type": "code", "language": "python", "input": ["1 + 1"],
            "outputs": [{"output_type": "pyout", "text": ["2"]}],
        },
    ]  # fmt: skip
    old = {"metadata": {}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": cells}]}
    assert (
        parse(json.dumps(old), NOTEBOOK).text == "## Fences\n\n```python\n1 + 1\n```\n\n```\n2\n```"
    )


@pytest.mark.parametrize("named", ["", JSON, "text/plain", NOTEBOOK])
def test_a_notebook_is_known_by_its_content(named: str) -> None:
    """Whatever a browser calls it, it is a notebook; other JSON stays JSON.

    If this fails: look at `stated` in `detecting.py`. An upload as application/json is stored raw.
    """
    assert detected(json.dumps(WHOLE, indent=1).encode(), named) == NOTEBOOK
    assert type_of("Untitled.ipynb") == NOTEBOOK
    other = json.dumps({"cells": 3, "metadata": {}}).encode()
    assert detected(other, JSON) == JSON


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"cells": [', "it is not valid JSON at line 1"),
        ("[]", "it has no list of cells"),
        ("{}", "it has no list of cells"),
        ('{"cells": {}}', "it has no list of cells"),
        ('{"cells": ["x"]}', "it has no list of cells"),
        ('{"worksheets": [3]}', "it has no list of cells"),
        ('{"cells": [{"cell_type": "code", "outputs": 3}]}', "cannot be read"),
        (json.dumps(notebook()), "no text"),
    ],
)
def test_a_malformed_notebook_is_refused(content: str, said: str) -> None:
    """The error says that it is a notebook, and what is wrong; nothing is read as something else.

    If this fails: a broken notebook is stored as JSON, or is a failure of the server.
    """
    with pytest.raises(InvalidRequest, match=said):
        parse(content.encode(), NOTEBOOK)
