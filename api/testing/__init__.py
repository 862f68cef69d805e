"""The conformance suite, which every vector_io provider must pass; shipped to provider authors.

A provider's test file is a subclass and nothing else:

    from pathlib import Path

    from corral.api.embedding_index import EmbeddingIndex
    from corral.api.testing import IndexConformance
    from corral.api.vector_dbs import VectorDB
    from corral_lancedb import SPEC, LanceConfig, LanceProvider

    class TestLance(IndexConformance):
        capabilities = SPEC.capabilities

        async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
            provider = LanceProvider("lance", LanceConfig(), folder)
            return await provider.open_index(vector_db, create=True)

`open_index` is called with any registration (metric, `normalize`, language, field weights, any id)
and an empty folder that belongs to the test. Called again with the same registration and folder, it
opens the stored index: that is a restart. Other registrations in the same folder are other vector
DBs. A provider without files returns a new, empty index each time, or the index in its memory. The
suite deletes every index at the end of a test, so that it leaves a service unchanged. The file must
be importable on its own, because other processes load it.

*Selection*: only `capabilities` select the tests, never names. `exact` requires equality with brute
force; without it, recall is measured. `persistent` adds the restarts, `transactional` the kill and
the readers during a write, `concurrent_processes` a second process. `metrics`, `filter_operators`,
`max_dimension` and the modes select the rest. A test that does not apply does not exist; none is
skipped.

*Known failures* are listed with a reason, and stay visible:

        xfails = {"test_equal_distances_come_in_the_order_of_ids": "the engine orders ties by row"}

These tests run as strict xfails: one that passes is a failure. Deleting or overriding a standard
test fails `test_suite_is_whole`. The class may have additional tests.

`bm25_tolerance` (1e-6) may be raised by engines that store term weights in lower precision, and
`recall_floor` (0.95) holds for approximate ones.

A provider with connections closes them in `async def close(self)`, which is called after each test.

`corral conformance PROVIDER_TYPE` runs the same tests on a provider as it is configured, in scratch
vector DBs (`live`), and shows the results by group (`matrix`). The plugin `report` writes the
outcomes of any pytest run: `pytest -p corral.api.testing.report --conformance-report FILE`.

Readers have a suite of their own, `ReaderConformance`; see `readers`. The command runs it on files
that the caller names.

The tests need only pytest: each test runs its coroutines in its own `asyncio.Runner`. All data is
seeded, in 1 to 8 dimensions; expected values are computed by hand if possible.
"""

import pkgutil

import pytest

# Register the modules before their import, so that failed assertions show the compared values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{one.name}" for one in pkgutil.iter_modules(__path__))
)

from corral.api.testing.acl import AclTests
from corral.api.testing.concurrency import ConcurrencyTests
from corral.api.testing.confidence import ConfidenceTests
from corral.api.testing.differential import DifferentialTests
from corral.api.testing.documents import DocumentTests
from corral.api.testing.enumeration import EnumerationTests
from corral.api.testing.filters import FilterTests
from corral.api.testing.fuzzy import FuzzyTests, NotFuzzyTests
from corral.api.testing.guards import GuardTests
from corral.api.testing.hostile import HostileTextTests
from corral.api.testing.hybrid import HybridTests
from corral.api.testing.isolation import IsolationTests
from corral.api.testing.keyword import KeywordTests
from corral.api.testing.lifecycle import LifecycleTests
from corral.api.testing.limits import LimitTests
from corral.api.testing.persistence import PersistenceTests, ProcessTests
from corral.api.testing.readers import ReaderConformance, Sample
from corral.api.testing.refusals import RefusalTests
from corral.api.testing.scoring import ScoreTests
from corral.api.testing.suite import Suite
from corral.api.testing.vector import VectorTests
from corral.api.testing.writes import WriteTests

__all__ = ["IndexConformance", "ReaderConformance", "Sample", "Suite"]


class IndexConformance(
    LifecycleTests,
    WriteTests,
    DocumentTests,
    EnumerationTests,
    VectorTests,
    KeywordTests,
    FuzzyTests,
    NotFuzzyTests,
    HybridTests,
    ScoreTests,
    ConfidenceTests,
    FilterTests,
    DifferentialTests,
    LimitTests,
    HostileTextTests,
    PersistenceTests,
    ProcessTests,
    ConcurrencyTests,
    RefusalTests,
    IsolationTests,
    AclTests,
    GuardTests,
    whole=True,
):
    """Every standard test. Subclass it under a name that begins with Test; see the module."""
