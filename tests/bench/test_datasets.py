"""Judged sets are read as they are, and refused with file and line where they are broken."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from corral.api.errors import InvalidRequest, MissingDependency, Unavailable
from corral.bench.data.datasets import read_sets
from corral.bench.data.judged import JudgedSet, language_of

from .judged_files import CORPUS, QRELS, QUERIES, write_beir


def read(folder: Path, **options: Any) -> JudgedSet:
    """Return the one set of a folder."""
    return read_sets([str(folder)], **options)[0]


def test_a_beir_folder(tmp_path: Path) -> None:
    """Title and text are joined, graded judgements kept, unjudged queries left out."""
    judged = read(write_beir(tmp_path / "farm"))
    assert judged.documents["d1"] == "Sheep graze on the hill"
    assert judged.documents["d3"] == "an engine needs oil"
    assert judged.queries == {"q1": "who eats sheep", "q3": "what does an engine need"}
    assert judged.qrels == {"q1": {"d2": 2, "d1": 1}, "q3": {"d3": 1}}
    row = judged.row()
    assert (row.name, row.kind, row.judgements, row.language) == ("farm", "beir", 3, "english")
    assert set(row.sha256) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}
    assert row.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.*sv")) + sum(
        path.stat().st_size for path in tmp_path.rglob("*.jsonl")
    )


def test_judgements_without_header(tmp_path: Path) -> None:
    """A qrels file whose first line is a judgement loses none."""
    assert len(read(write_beir(tmp_path, qrels=QRELS[1:])).qrels["q1"]) == 2


def test_the_only_split_is_taken_and_another_chosen(tmp_path: Path) -> None:
    """`test` is the default where there are several; an unknown split lists what there is."""
    write_beir(tmp_path, split="dev")
    assert read(tmp_path).qrels
    write_beir(tmp_path, split="test", qrels=["q1\td1\t1"])
    assert list(read(tmp_path).qrels) == ["q1"]
    assert len(read(tmp_path, split="dev").qrels) == 2
    with pytest.raises(InvalidRequest, match=r"no train\.tsv.*dev, test"):
        read(tmp_path, split="train")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"corpus": [CORPUS[0], "{"]}, r"corpus\.jsonl:2: not JSON"),
        ({"corpus": [CORPUS[0], "[]"]}, r"corpus\.jsonl:2: list, not an object"),
        ({"corpus": [{"_id": "d1"}]}, r"corpus\.jsonl:1: 'text' is missing"),
        ({"corpus": [{"_id": "d1", "text": ["a"]}]}, r"corpus\.jsonl:1: text is list"),
        ({"corpus": [{"_id": "d1", "text": "a", "title": [1]}]}, r"corpus\.jsonl:1: title is list"),
        ({"corpus": [{"text": "a"}]}, r"corpus\.jsonl:1: '_id' is missing"),
        ({"corpus": [{"_id": "d 1", "text": "a"}]}, r"corpus\.jsonl:1: the id 'd 1'.*white space"),
        ({"corpus": [{"_id": " d1", "text": "a"}]}, r"corpus\.jsonl:1: the id ' d1'.*white space"),
        ({"corpus": [{"_id": "", "text": "a"}]}, r"corpus\.jsonl:1: the id ''"),
        ({"corpus": [*CORPUS, CORPUS[1]]}, r"corpus\.jsonl:4: the id 'd2' .*corpus\.jsonl:2\)"),
        ({"queries": [*QUERIES, QUERIES[0]]}, r"queries\.jsonl:4: the id 'q1' appears already"),
        ({"corpus": []}, "has no documents"),
        ({"qrels": []}, "has no judgements"),
        ({"qrels": QRELS[:1]}, "has no judgements"),
        ({"qrels": ["q1\td1\t0"]}, "no judgement is above 0"),
        ({"qrels": [*QRELS, "q1\td3"]}, r"test\.tsv:5: expected query id, document id"),
        ({"qrels": [*QRELS, "q1\td3\tyes"]}, r"test\.tsv:5: expected query id, document id"),
        ({"qrels": [*QRELS, "q1\td3\t--1"]}, r"test\.tsv:5: expected query id, document id"),
        (
            {"qrels": [*QRELS, "q1\td3\t" + "9" * 5000]},
            r"test\.tsv:5: expected query id, document id",
        ),
        ({"qrels": [*QRELS, "q1\td3\t\u0662"]}, r"test\.tsv:5: expected query id, document id"),
        ({"corpus": [{"_id": "\ud800", "text": "a"}]}, r"corpus\.jsonl:1: the id .* not UTF-8"),
        (
            {"queries": [{"_id": "q1", "text": " "}, *QUERIES[1:]]},
            r"test\.tsv:2: query 'q1' is judged but blank",
        ),
        ({"qrels": [*QRELS, "q1\td2\t1"]}, r"test\.tsv:5: .*'d2' were judged 2 before"),
        (
            {"qrels": [*QRELS, "q1\tnone\t1", "q1\tnone2\t1"]},
            r"2 of 5 judgements name an unknown document id, the first 'none' \(.*test\.tsv:5\)",
        ),
        (
            {"qrels": [*QRELS, "q9\td1\t1"]},
            r"1 of 4 judgements name an unknown query id, the first 'q9' \(.*test\.tsv:5\)",
        ),
    ],
)
def test_a_broken_folder_is_refused(tmp_path: Path, broken: dict[str, Any], message: str) -> None:
    """Each defect has its own message with file and line."""
    with pytest.raises(InvalidRequest, match=message):
        read(write_beir(tmp_path, **broken))


def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    """A missing folder, an empty one, one without queries, text that is not UTF-8, equal names."""
    with pytest.raises(InvalidRequest, match="There is no folder"):
        read(tmp_path / "none")
    with pytest.raises(InvalidRequest, match="neither BEIR files nor TREC files"):
        read(tmp_path)
    write_beir(tmp_path / "a" / "farm")
    write_beir(tmp_path / "b" / "farm")
    with pytest.raises(InvalidRequest, match="Two data sets are named 'farm'"):
        read_sets([str(tmp_path / "a" / "farm"), str(tmp_path / "b" / "farm")])
    (tmp_path / "a" / "farm" / "queries.jsonl").unlink()
    with pytest.raises(InvalidRequest, match=r"queries\.jsonl does not exist"):
        read(tmp_path / "a" / "farm")
    (tmp_path / "b" / "farm" / "corpus.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(InvalidRequest, match="is not UTF-8"):
        read(tmp_path / "b" / "farm")


TREC_DOCS = """<DOC>
<DOCNO> d1 </DOCNO>
<TITLE>Sheep</TITLE> <TEXT>graze &amp; rest
on the hill</TEXT>
</DOC>
<DOC><DOCNO>d2</DOCNO><TEXT>oil</TEXT></DOC>
"""
TREC_TOPICS = """<top>
<num> Number: 301
<title> grazing animals
<desc> Description: which animals graze
</top>
<top><num>302</num><title>engines</title></top>
"""


def write_trec(folder: Path, documents: tuple[str, str], topics: tuple[str, str]) -> Path:
    """Write a TREC folder with these (file name, text)."""
    folder.mkdir(exist_ok=True)
    for name, text in (documents, topics, ("qrels.txt", "301 0 d1 1\n302 0 d2 2\n301 Q0 d2 0\n")):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("documents", "topics"),
    [
        (("documents.trec", TREC_DOCS), ("topics.txt", TREC_TOPICS)),
        (
            ("docs.jsonl", '{"docno": "d1", "title": "Sheep", "contents": "graze & rest on the '
             'hill"}\n{"id": "d2", "text": "oil"}\n'),
            ("queries.tsv", "301\tgrazing animals\n302\tengines\n"),
        ),
        (
            ("documents.xml", TREC_DOCS),
            ("topics.jsonl", '{"id": 301, "text": "grazing animals"}\n'
             '{"id": "302", "title": "engines"}\n'),
        ),
    ],
)  # fmt: skip
def test_trec_files(tmp_path: Path, documents: tuple[str, str], topics: tuple[str, str]) -> None:
    """TREC text and JSON lines, SGML topics, tables and JSON lines: all say the same."""
    judged = read(write_trec(tmp_path / "old", documents, topics))
    assert judged.documents == {"d1": "Sheep graze & rest on the hill", "d2": "oil"}
    assert judged.queries == {"301": "grazing animals", "302": "engines"}
    assert judged.qrels == {"301": {"d1": 1, "d2": 0}, "302": {"d2": 2}}
    assert judged.kind == "trec"


def test_broken_trec_documents_are_refused(tmp_path: Path) -> None:
    """A title that is no text stops the reading, as in BEIR's files; it was read as its repr."""
    text = '{"id": "d1", "text": "a", "title": ["b"]}'
    documents = ("docs.jsonl", text)
    write_trec(tmp_path, documents, ("topics.txt", TREC_TOPICS))
    with pytest.raises(InvalidRequest, match=r"docs\.jsonl:1: title is list, not text"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("documents.trec", "<DOC><TEXT>a</TEXT></DOC>", r"document 1: <DOCNO> is missing"),
        ("documents.trec", TREC_DOCS + TREC_DOCS, r"document 3: the id 'd1' appears already"),
        ("topics.txt", "<top><num>1</num></top>", "topic 1: <num> or <title> is missing"),
        ("topics.txt", "301 no tab\n", r"topics\.txt:1: expected an id, a tab and a query"),
        ("qrels.txt", "301 0 d1 --1\n", r"qrels\.txt:1: expected query id, an unused column"),
        (
            "qrels.txt",
            "301 0 d1 " + "9" * 5000,
            r"qrels\.txt:1: expected query id, an unused column",
        ),
        ("documents.trec", TREC_DOCS + "\n<doc>", r"documents\.trec:8: <DOC> is not closed"),
        ("documents.trec", "<DOC>\n" + TREC_DOCS, r"documents\.trec:2: .* or the one before"),
        ("documents.trec", TREC_DOCS * 2, r"documents\.trec:7, document 3: the id 'd1'"),
        ("topics.txt", TREC_TOPICS + "<top>", r"topics\.txt:7: <top> is not closed"),
        ("topics.txt", "301\t \n302\tengines", r"query '301' is judged but blank"),
        ("qrels.txt", "301 0 d1\n", r"qrels\.txt:1: expected query id, an unused column"),
        ("docs.trec", "", r"expected one file documents\.\* or docs\.\*; found: doc"),
    ],
)
def test_broken_trec_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    """Each defect has its own message with its place."""
    write_trec(tmp_path, ("documents.trec", TREC_DOCS), ("topics.txt", TREC_TOPICS))
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "given", "language"),
    [
        ("scifact", {}, "english"),
        ("xquad-de", {}, "german"),
        ("xquad-zh", {"": "english"}, "english"),
        ("xquad-zh", {"": "english", "xquad-zh": "zh"}, "chinese"),
        ("my-xx", {}, "english"),
        ("de", {}, "english"),
    ],
)
def test_the_language_of_a_set(name: str, given: dict[str, str], language: str) -> None:
    """What was given for it, for all, or a known code at the end of its name; else English."""
    assert language_of(name, given) == language


def test_fewer_documents_keep_every_judged_one() -> None:
    """--max-docs drops queries whose documents do not fit, and never a judged document of one."""
    judged = read_sets(["miniature"], max_documents=60, seed=1)[0]
    assert len(judged.documents) == 60
    assert judged.cut == 240
    assert 5 < len(judged.queries) <= 42
    assert judged.queries.keys() == judged.qrels.keys()
    assert all(found.keys() <= judged.documents.keys() for found in judged.qrels.values())
    again = read_sets(["miniature"], max_documents=60, seed=1)[0]
    assert again.fingerprint() == judged.fingerprint()
    assert read_sets(["miniature"], max_documents=60, seed=2)[0].queries != judged.queries


def test_too_few_documents_are_refused(tmp_path: Path) -> None:
    """A budget that holds no query with its documents, or makes any order look good, is refused."""
    with pytest.raises(InvalidRequest, match="--max-docs 19 is too small"):
        read_sets(["miniature"], max_documents=19)
    corpus = [{"_id": f"d{n}", "text": f"text {n}"} for n in range(50)]
    qrels = [f"q1\td{n}\t1" for n in range(50)]
    write_beir(tmp_path / "wide", corpus=corpus, qrels=qrels)
    with pytest.raises(InvalidRequest, match="at least 50 judged documents"):
        read(tmp_path / "wide", max_documents=30)


def public_set(**changed: Any) -> Any:
    """Return a data set as `ir_datasets.load` does."""
    text = SimpleNamespace
    parts = {
        "docs": [text(doc_id="d1", default_text=lambda: "Schafe")],
        "queries": [text(query_id="q1", default_text=lambda: "wer")],
        "qrels": [text(query_id="q1", doc_id="d1", relevance=1)],
    }  # fmt: skip
    members: dict[str, Any] = {f"has_{name}": lambda: True for name in parts}
    members |= {f"{name}_iter": lambda rows=rows: iter(rows) for name, rows in parts.items()}
    return SimpleNamespace(**{**members, "docs_lang": lambda: "de", **changed})


def offline() -> None:
    """Fail as a download without a network does."""
    raise ConnectionError("no route")


def test_a_public_set_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ir_datasets:NAME` is read through the package; its language counts unless one is given."""
    package = ModuleType("ir_datasets")
    known = {
        "a/b": public_set(),
        "off": public_set(docs_iter=offline),
        "bare": public_set(has_qrels=lambda: False),
    }
    monkeypatch.setattr(package, "load", known.__getitem__, raising=False)
    monkeypatch.setitem(sys.modules, "ir_datasets", package)
    judged = read_sets(["ir_datasets:a/b"])[0]
    assert (judged.name, judged.language, judged.kind) == ("a-b", "german", "ir_datasets")
    assert judged.documents["d1"] == "Schafe"
    assert read_sets(["ir_datasets:a/b"], languages={"": "nl"})[0].language == "dutch"
    with pytest.raises(InvalidRequest, match="has no set 'none'"):
        read_sets(["ir_datasets:none"])
    with pytest.raises(InvalidRequest, match="bare has no qrels"):
        read_sets(["ir_datasets:bare"])
    with pytest.raises(Unavailable, match="off cannot be loaded: no route"):
        read_sets(["ir_datasets:off"])


def test_a_large_trec_file_is_read_in_one_pass(tmp_path: Path) -> None:
    """The work grows with the file: 20,000 documents take .3 s of the processor, not half a minute.

    If this fails: the place of each document is counted from the beginning of the file, and a
    collection of half a million documents is never read.
    """
    text = "the sheep graze on the hill behind the fence " * 10
    documents = (f"<DOC>\n<DOCNO>d{n}</DOCNO>\n{text}\n</DOC>\n" for n in range(20_000))
    (tmp_path / "documents.trec").write_text("".join(documents), encoding="utf-8")
    (tmp_path / "topics.tsv").write_text("q1\tsheep\n", encoding="utf-8")
    (tmp_path / "qrels.txt").write_text("q1 0 d19999 1\n", encoding="utf-8")
    begun = time.process_time()
    judged = read(tmp_path)
    assert time.process_time() - begun < 10
    assert len(judged.documents) == 20_000


def test_a_public_set_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is not installed, the message is the command that installs it."""
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingDependency, match=r"pip install 'corral-rag\[ir-datasets\]'"):
        read_sets(["ir_datasets:beir/scifact/test"])
