"""The roads of a question and of a document: each module is entered once on the way down."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from .server.harness import InProcess, wait_until
from .text_path import TextPath

MAX_ROOMS = 9
"""Modules that a question enters before its engine; the aim is 9. Lower it, never raise it."""


def test_a_question_enters_each_module_once(tmp_path: Path) -> None:
    """POST /v1/tool-runtime/rag-tool/query leads through at most `MAX_ROOMS` modules of ours.

    `TextPath` says what counts: coroutine functions with the question among their arguments,
    called by another module, from the body of the request to the engine of `inline::sqlite`.

    If this fails: two modules call each other; merge them, or let one return a value.
    """
    path = TextPath("barnacle")
    with InProcess(tmp_path) as app:
        app.register("db")
        app.insert("a barn", "a fence", db="db")
        app.rag_query("a barn", "db")  # loads what is loaded once
        with path.recording():
            app.rag_query("a barn with a barnacle", "db")
    assert {"corral.server.bodies", "corral.api.engine_index"} <= set(path.modules)
    assert len(path.modules) == len(set(path.modules)), path.modules
    assert len(path.modules) <= MAX_ROOMS, path.modules


MAX_DOCUMENT_ROOMS = 12
"""Modules that a document enters before its engine; lower it, never raise it."""


def test_a_document_enters_each_module_once(tmp_path: Path) -> None:
    """POST /v1/tool-runtime/rag-tool/insert leads through at most `MAX_DOCUMENT_ROOMS` modules.

    `TextPath` says what counts, from the body of the request to the engine of `inline::sqlite`.

    If this fails: two modules call each other; merge them, or let one return a value.
    """
    path = TextPath("barnacle")
    with InProcess(tmp_path) as app:
        app.register("db")
        app.rag_insert({"document_id": "a", "content": "a barn"})  # loads what is loaded once
        with path.recording():
            app.rag_insert({"document_id": "b", "content": "a barn with a barnacle"})
    ends = {"corral.server.bodies", "corral.providers.ingestion.ingest", "corral.api.engine_index"}
    assert ends <= set(path.modules)
    assert len(path.modules) == len(set(path.modules)), path.modules
    assert len(path.modules) <= MAX_DOCUMENT_ROOMS, path.modules


def test_a_job_takes_the_road_of_an_insert(tmp_path: Path) -> None:
    """A document of POST /v1/jobs is read, split, embedded and stored by the modules of an insert.

    Calls of one module in a row count once: the route prepares the documents, then submits them.

    If this fails: jobs have a second implementation of a step, or two modules call each other.
    """
    path = TextPath("barnacle")
    with InProcess(tmp_path) as app:
        app.register("db")
        app.rag_insert({"document_id": "a", "content": "a barn"})  # loads what is loaded once
        document = {"document_id": "b", "content": "a barn with a barnacle"}
        with path.recording():
            app.ok("POST", "/v1/jobs", {"vector_db_id": "db", "documents": [document]})
            wait_until(lambda: "completed" in app.send("GET", "/v1/jobs?vector_db_id=db").text)
    modules = [module for module, _ in groupby(path.modules)]
    assert {"corral.providers.ingestion.ingest", "corral.providers.ingestion.storing"} <= {*modules}
    assert len(modules) == len(set(modules)), modules
    assert len(modules) <= MAX_DOCUMENT_ROOMS, modules
