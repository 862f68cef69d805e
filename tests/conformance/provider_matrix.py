"""Makes docs/conformance.json and the README's table of providers: `make matrix`.

Every provider's suite is run on its engine, as in `make test`; with provider types as arguments
(`make matrix PROVIDERS=inline::sqlite`) only theirs. What comes out is committed; the
tests fail where it, the README and the providers' capability values differ (`test_house.py`), and
where a suite no longer runs what the file claims (`test_provider_matrix.py`).

The file holds, by provider type: `capabilities`; `tested_on`, what the suite runs on; `groups`, by
name `passed`, `failed`, `not run` (it applies, but what the suite runs on cannot show it) or
`not applicable`.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corral.api.provider import ALL_FILTERS, Api, ProviderSpec
from corral.api.testing import IndexConformance
from corral.api.testing.matrix import matrix
from corral.api.testing.report import Outcome, read_outcomes
from corral.providers.stack.registry import provider_specs

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "providers" / "vector_io"
DATA = ROOT / "docs" / "conformance.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- capabilities:begin -->", "<!-- capabilities:end -->"


@dataclass(frozen=True, slots=True)
class Suite:
    """Where a provider's suite is, and what it runs on."""

    file: str
    name: str
    tested_on: str = "its engine"

    def load(self) -> type[IndexConformance]:
        """Return the class."""
        name = self.file.removesuffix(".py").replace("/", ".")
        module = importlib.import_module(f"tests.providers.vector_io.{name}")
        suite: type[IndexConformance] = getattr(module, self.name)
        return suite


SERVER, STAND_IN = "a server", "a stand-in"
SUITES = {
    "inline::chroma": Suite("chroma/test_chroma_conformance.py", "TestChroma"),
    "remote::chroma": Suite("chroma/test_chroma_conformance.py", "TestRemoteChroma", SERVER),
    "inline::faiss": Suite("faiss/test_faiss_conformance.py", "TestHnsw"),
    "inline::lancedb": Suite("lancedb/test_lancedb_conformance.py", "TestTable"),
    "inline::memory": Suite("memory/test_memory_conformance.py", "TestMemory"),
    "inline::milvus": Suite("milvus/test_milvus_conformance.py", "TestMilvus"),
    "remote::milvus": Suite("milvus/test_milvus_conformance.py", "TestRemoteMilvus", SERVER),
    "remote::opensearch": Suite(
        "opensearch/test_opensearch_conformance.py", "TestOpenSearch", SERVER
    ),
    "remote::pgvector": Suite("pgvector/test_pgvector_conformance.py", "TestPgvector", SERVER),
    "inline::qdrant": Suite("qdrant/test_qdrant_edge_conformance.py", "TestShard"),
    "remote::qdrant": Suite("qdrant/test_qdrant_server_conformance.py", "TestQdrantServer", SERVER),
    "inline::sqlite": Suite("sqlite/test_sqlite_conformance.py", "TestSqlite"),
    "remote::weaviate": Suite("weaviate/test_weaviate_conformance.py", "TestWeaviate", SERVER),
}  # fmt: skip
"""By provider type, in the order of the table."""


def own_specs() -> dict[str, ProviderSpec]:
    """Return the specs of Corral's own vector_io providers by type."""
    return {
        name: spec
        for (api, name), spec in provider_specs().items()
        if api is Api.VECTOR_IO and spec.factory.startswith("corral.")
    }


def row(provider_type: str, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return a provider's part of the file.

    An approximate provider whose suite runs on an exact setting is held to the stricter tests.
    """
    suite, spec = SUITES[provider_type], own_specs()[provider_type]
    exact = suite.load().capabilities.exact
    groups = matrix(replace(spec.capabilities, exact=exact), outcomes)
    capabilities = json.loads(json.dumps(spec.capabilities.as_dict()))
    return {
        "capabilities": capabilities,
        "tested_on": suite.tested_on,
        "groups": {group.name: group.outcome for group in groups},
    }


def promised(provider_type: str) -> list[Outcome]:
    """Return the outcomes of a run of the suite in which nothing fails."""
    suite = SUITES[provider_type]
    cls = suite.load()
    return [
        Outcome(suite.file, suite.name, test, test, "skipped" if test in cls.xfails else "passed",
                cls.xfails.get(test, ""))
        for test, choice in cls.chosen.items() if choice is not None
    ]  # fmt: skip


def table(data: Mapping[str, Any]) -> str:
    """Return the README's table, in Markdown, from what the file holds."""
    heads = ["provider", "vector", "keyword", "hybrid", "filters", "metrics", "exact", "processes"]
    heads += ["kill -9", "conformance"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for provider_type, one in data.items():
        can = one["capabilities"]
        cells = [
            f"`{provider_type}`",
            can["vector"],
            f"{can['keyword']}, fuzzy" if can["fuzzy"] else can["keyword"],
            can["hybrid"],
            "all" if set(can["filter_operators"]) >= set(ALL_FILTERS) else "some",
            ", ".join(can["metrics"]),
            "yes" if can["exact"] else "no",
            "many" if can["concurrent_processes"] else "one",
            "whole calls" if can["transactional"] else "see its README",
            conformance(one),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def conformance(one: Mapping[str, Any]) -> str:
    """Return how many of the groups that apply passed, on what, and which did not."""
    applying = {n: o for n, o in one["groups"].items() if o != "not applicable"}
    passed = sum(outcome == "passed" for outcome in applying.values())
    said = f"{passed}/{len(applying)} on {one['tested_on']}"
    for outcome, words in (("failed", "failed"), ("not run", "not run in full")):
        if names := [name for name, found in applying.items() if found == outcome]:
            said += f"; {words}: {', '.join(names)}"
    return said


def shown() -> str:
    """Return the table that stands in the README."""
    return README.read_text("utf-8").split(BEGIN)[1].split(END)[0].strip()


def run(provider_types: Sequence[str]) -> dict[str, Any]:
    """Run the suites of some providers and return what the file is to hold of them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.jsonl")
        names = [
            f"{TESTS / suite.file}::{suite.name}" for suite in (SUITES[t] for t in provider_types)
        ]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly"]
        command += ["-p", "corral.api.testing.report", f"--conformance-report={report}"]
        subprocess.run([*command, *names], cwd=ROOT, check=False)
        outcomes = read_outcomes(report.read_text("utf-8").splitlines())
    return {
        provider_type: row(
            provider_type,
            [o for o in outcomes if o.suite == suite.name and o.file.endswith(suite.file)],
        )
        for provider_type in provider_types
        for suite in [SUITES[provider_type]]
    }


def main(provider_types: Sequence[str]) -> None:
    """Run the suites, all where none is named; write the file and the table."""
    known = json.loads(DATA.read_text("utf-8")) if provider_types else {}
    known |= run(provider_types or list(SUITES))
    data = {provider_type: known[provider_type] for provider_type in SUITES}
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text = README.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{table(data)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
