"""The suite of `corral conformance` for the reader in the environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corral.api.errors import ContractViolation
from corral.api.provider import Api, ReaderProvider
from corral.api.testing import ReaderConformance, Sample
from corral.providers.stack.registry import build_provider
from corral.server.cli.conformance import TARGET_VARIABLE, subject_of

_target = json.loads(os.environ[TARGET_VARIABLE])
_subject = subject_of(_target)


def _sample(path: str, mime_type: str, words: str) -> Sample:
    pages = words.split("/")
    return Sample(mime_type, Path(path).read_bytes(), tuple(" ".join(pages).split()), len(pages))


class TestConfigured(ReaderConformance):
    """The reader as it is configured."""

    samples = tuple(_sample(**each) for each in _target["samples"])

    @contextmanager
    def open_reader(self) -> Iterator[ReaderProvider]:
        """Build the reader."""
        provider = build_provider(Api.READER, _subject.entry, Path(_target["place"]))
        if not isinstance(provider, ReaderProvider):
            raise ContractViolation(f"{provider.provider_id} must be a ReaderProvider.")
        yield provider
