"""The conformance suite: what every vector_io provider has to pass, shipped to provider authors.

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
opens what is stored: that is a restart. Other registrations in the same folder are other vector DBs
beside it. A provider that keeps nothing on disk returns a new, empty index each time, or the one
that it holds. The suite deletes every index at the end of a test, so that a service is left as it
was. The file must be importable on its own, since other processes load it.

*Which tests run* is decided by `capabilities` alone, never by names: `exact` means equality with
brute force, otherwise recall is measured; `persistent` brings the restarts, `transactional` the
kill and the readers during a write, `concurrent_processes` a second process; `metrics`,
`filter_operators`, `max_dimension` and the modes decide the rest. A test that does not apply does
not exist; none is skipped.

*What does not work yet* is listed with its reason, and stays visible:

        xfails = {"test_equal_distances_come_in_the_order_of_ids": "the engine orders ties by row"}

These tests run as strict xfails: one that passes is a failure. Deleting or overriding a standard
test fails `test_suite_is_whole`. Tests of the provider's own may stand in the same class.

`bm25_tolerance` (1e-6) may be raised by engines that store term weights in lower precision, and
`recall_floor` (0.95) holds for approximate ones.

A provider that holds connections gives them back in `async def close(self)`, which is called after
each test.

`corral conformance PROVIDER_TYPE` runs the same tests on a provider as it is configured, in scratch
vector DBs (`live`), and shows them by group (`matrix`). Any run of pytest writes what that is made
from with the plugin `report`: `pytest -p corral.api.testing.report --conformance-report FILE`.

The tests need pytest and nothing else: each runs its coroutines in one `asyncio.Runner` of its own.
All data is seeded, in 1 to 8 dimensions; what can be computed by hand is.
"""

import pkgutil

import pytest

# Before they are imported, so that their assertions say what was compared.
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
from corral.api.testing.refusals import RefusalTests
from corral.api.testing.scoring import ScoreTests
from corral.api.testing.suite import Suite
from corral.api.testing.vector import VectorTests
from corral.api.testing.writes import WriteTests

__all__ = ["IndexConformance", "Suite"]


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
