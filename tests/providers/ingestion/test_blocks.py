"""What belongs together stays in one chunk where it fits: lists, code, tables, functions."""

from __future__ import annotations

import random

import pytest

from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.split.chunking import chunks_of
from corral.providers.ingestion.split.splitting import LEAST_BODY, Piece, split
from corral.providers.text.tokens import tokenizer

SIZE = 64
WORDS = ["sheep", "wool", "fence", "hay", "cow"]


KINDS = ["paragraph", "paragraph", "heading", "quote", "list", "steps", "code", "table"]


def words(rng: random.Random, count: int) -> str:
    """Return so many words."""
    return " ".join(rng.choice(WORDS) for _ in range(count))


def block(kind: str, rng: random.Random) -> str:
    """Return a block of Markdown."""
    count = rng.randint(2, 6)
    lines = [words(rng, rng.randint(2, 9)) for _ in range(count)]
    made = {
        "paragraph": words(rng, rng.randint(5, 40)) + ".",
        "quote": "\n".join(f"> {line}" for line in lines),
        "heading": f"## {words(rng, 3)}",
        "list": "\n".join(f"- {line}" for line in lines),
        "steps": "\n".join(f"{n}. {line}" for n, line in enumerate(lines, 1)),
        "code": "\n".join(["```", *lines, "", "- x = 1", "```"]),
        "table": "\n".join(["| a | b |", "| --- | --- |", *(f"| {line} | x |" for line in lines)]),
    }
    return made[kind]


@pytest.mark.parametrize("overlap", [0, 8])
def test_blocks_that_fit_are_not_cut(overlap: int) -> None:
    """Lists, numbered ones too, code and tables are in one chunk each, with a heading above them.

    If this fails: the third of five steps is cited without the first two.
    """
    rng = random.Random(1)
    for _ in range(60):
        kinds = ["heading"]
        while len(kinds) < 9:  # two lists of one kind in a row are one
            kinds.append(rng.choice([kind for kind in KINDS if kind != kinds[-1]]))
        blocks = [block(kind, rng) for kind in kinds]
        text = "\n\n".join(blocks)
        pieces = split(text, chunk_size=SIZE, overlap=overlap, markdown=True)
        assert all(piece.tokens <= SIZE for piece in pieces)
        position = 0
        for above, made in zip(["", *blocks], blocks, strict=False):
            start = text.index(made, position)
            position = start + len(made)
            whole = any(each.start <= start and position <= each.end for each in pieces)
            led = f"{above}\n\n{made}" if above.startswith("#") else made
            fits = tokenizer().count(f"\n{led}\n\n") <= SIZE  # with its line breaks
            assert whole or not fits or made[0] not in "-1`|", made
        covered = {at for each in pieces for at in range(each.start, each.end)}
        assert all(text[at].isspace() or at in covered for at in range(len(text)))


@pytest.mark.parametrize("before", [0, 10, 40])
@pytest.mark.parametrize("kind", ["code", "table", "list", "steps"])
def test_a_heading_does_not_cut_the_block_below_it(kind: str, before: int) -> None:
    """A block that fits without its heading is whole, however large the heading is.

    The heading ends the chunk before; it is a chunk where that has no room, or there is none.

    If this fails: the last line of a block of code is in another chunk than its beginning.
    """
    rng = random.Random(2)
    count, size, tight = tokenizer().count, 48, 0
    while tight < 20:
        made, heading = block(kind, rng), f"## {words(rng, rng.randint(1, 12))}"
        above = f"{words(rng, before)}.\n\n" if before else ""
        text = f"{above}{heading}\n\n{made}\n\n{words(rng, 30)}."
        if count(f"{made}\n\n") > size or count(f"{heading}\n\n{made}") <= size:
            continue
        tight += 1
        pieces = split(text, chunk_size=size, overlap=0, markdown=True)
        assert any(made in piece.text for piece in pieces), text
        assert all(piece.tokens <= size for piece in pieces)
        short = count(heading) * LEAST_BODY <= size
        room = before and short and count(f"{above}{heading}") <= size
        assert pieces[0].text.endswith(heading) or not room
        covered = {at for each in pieces for at in range(each.start, each.end)}
        assert all(text[at].isspace() or at in covered for at in range(len(text)))


CODE = '''\
"""A module."""

import math

LIMIT = 3


class Fence:
    """Keeps sheep in."""

    def __init__(self, length: float) -> None:
        self.length = length
        self.posts = math.ceil(length / 3) + 1

    # How much wood.
    @property
    def wood(self) -> float:
        """Return cubic meters."""
        return self.posts * 0.02 + self.length * 0.004


def mend(fence: Fence) -> str:
    """Return what to buy."""
    return f"{fence.wood} of wood and {fence.posts * 4} nails"


print(mend(Fence(12)))
'''


def pieces_of(size: int) -> list[Piece]:
    """Return the pieces of `CODE`."""
    parsed = parse(CODE, "text/x-python")
    return split(parsed.text, chunk_size=size, overlap=size // 8, sections=parsed.headings)


@pytest.mark.parametrize("size", [40, 60, 100, 400])
def test_code_is_cut_between_functions(size: int) -> None:
    """A function or class that fits is whole, with its comments and decorators.

    If this fails: the body of a function is found without its name.
    """
    made = pieces_of(size)
    assert all(piece.tokens <= size for piece in made)
    ends = {
        "    # How much": "\n\ndef mend",
        "def mend": "\n\nprint",
        "class Fence": "\n\ndef mend",
    }
    for begin, end in ends.items():
        part = CODE[CODE.index(begin) : CODE.index(end)].rstrip()
        if tokenizer().count(part) <= size:
            assert any(part in piece.text for piece in made), part
    for piece in made:
        assert CODE[piece.start : piece.end] == piece.text
    covered = {at for piece in made for at in range(piece.start, piece.end)}
    assert all(CODE[at].isspace() or at in covered for at in range(len(CODE.rstrip())))


def test_chunks_of_code_know_class_function_and_lines() -> None:
    """What is cited is `Fence > wood` and its lines; what follows a class is not in it."""
    vector_db = VectorDB(
        identifier="db", provider_id="p", provider_resource_id="db",
        embedding_model="m", embedding_dimension=3,
    )  # fmt: skip
    made = chunks_of(
        RAGDocument(document_id="fence.py", content=CODE),
        parse(CODE, "text/x-python"),
        ChunkingConfig(chunk_size_in_tokens=48, overlap_in_tokens=0),
        vector_db,
        lambda _: 0,
    )
    places = {
        word: next(c.chunk_metadata for c in made if word in c.content and c.chunk_metadata)
        for word in ("How much wood", "what to buy", "print(mend")
    }
    lines = CODE.split("\n")
    wood = places["How much wood"]
    assert wood.heading_path == ["Fence", "wood"]
    assert wood.line_start == lines.index("    # How much wood.") + 1
    assert places["what to buy"].heading_path == ["mend"]
    assert places["print(mend"].heading_path in (None, ["mend"])


@pytest.mark.parametrize(
    ("kind", "code", "names"),
    [
        ("text/x-go", "package a\n\n// A.\ntype Sheep struct {}\n\nfunc (s *Sheep) Bleat() {}\n",
         ["Sheep", "Bleat"]),
        ("text/x-rust", "/// D\n#[derive(Debug)]\nstruct S;\n\nimpl S {\n    fn f(&self) {}\n}\n",
         ["S", "S", "f"]),
        ("text/x-java", "class A {\n  /** m */\n  void f() { }\n}\n", ["A", "f"]),
        ("text/x-c", "/* d */\nstatic int *f(int a)\n{\n  return 0;\n}\nstruct s { int a; };\n",
         ["f", "s"]),
        ("text/x-c++", "namespace n {\nclass A { void f() {} };\nvoid A::g() {}\n}\n",
         ["n", "A", "f", "A::g"]),
        ("text/x-csharp", "namespace N { class A { void F() { } } }\n", ["N", "A", "F"]),
        ("text/x-ruby", "module M\n  class A\n    def f\n    end\n  end\nend\n", ["M", "A", "f"]),
        ("text/x-php", "<?php\nclass B { function f() { } }\nfunction g() { }\n", ["B", "f", "g"]),
        ("text/x-shellscript", "# does\nf() {\n  echo a\n}\n", ["f"]),
        ("text/javascript", "export class A { m() { } }\nconst h = () => 1;\n", ["A", "m", "h"]),
        ("text/x-typescript", "interface I { a: 'ä' }\n/** é */\nfunction z() {}\n", ["I", "z"]),
        ("text/x-tsx", "export function App() { return <p>a</p>; }\n", ["App"]),
    ],
)  # fmt: skip
def test_each_language_names_its_definitions(kind: str, code: str, names: list[str]) -> None:
    """With what is right above them: a comment, an attribute, a decorator."""
    found = [heading for heading in parse(code.encode(), kind).headings if heading.text]
    assert [heading.text for heading in found] == names
    for mark in ("// A", "/// D", "  /** m", "/* d", "# does", "/** é"):
        if mark in code:
            assert any(code.startswith(mark, heading.start) for heading in found), mark
