"""Sources: where documents come from, and how a vector DB is kept in step with them.

A package registers a `SourceSpec` under the entry-point group `corral.sources`, as the built-in
sources do. Listing specs imports no source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SOURCES_GROUP = "corral.sources"


class SourceConfig(BaseModel):
    """Base of the settings of sources: unknown keys are rejected, secrets are `SecretStr`.

    Attributes:
        max_mib: Largest document, default 64; larger ones are skipped.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    max_mib: float = Field(default=64, gt=0)


@dataclass(frozen=True, slots=True)
class SourceItem:
    """A document as a source lists it.

    Attributes:
        key: Its name within the source, the same in every listing: a path or an address.
        version: Changes if and only if the content may have changed, such as an ETag; at most 200
            characters. None if only reading the document shows a change.
    """

    key: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The documents of a source.

    Attributes:
        items: The documents, with distinct keys.
        skipped: (key, reason) of entries that are no documents; stored documents with these keys
            are deleted.
        problems: Reasons why the listing is incomplete, such as a folder that cannot be read.
            Nothing is deleted if there are any.
    """

    items: Sequence[SourceItem]
    skipped: Sequence[tuple[str, str]] = ()
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """A document that was read.

    Attributes:
        data: Its bytes.
        version: As in `SourceItem`; not None.
        mime_type: As the source states it, perhaps with a charset; "" if it does not.
        metadata: Metadata of the document, besides its source and title.
    """

    data: bytes
    version: str
    mime_type: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Source(ABC):
    """Lists and reads documents. One instance serves one run, in one task at a time.

    Attributes:
        identity: Names the place, such as by its address, and is the same in every run. Documents
            of one identity belong together; a run deletes no others.
        deletes: False if documents that the source no longer lists stay stored, as with a feed.
    """

    identity: str
    deletes: bool = True

    @abstractmethod
    async def listing(self) -> Listing:
        """Return all documents.

        Raises:
            ProviderError: The source cannot be reached. Nothing is changed then.
            InvalidRequest: It refuses, or its answer has another format.
        """

    @abstractmethod
    async def read(self, item: SourceItem, stored_version: str | None) -> Content | None:
        """Return the content of a listed document; None if the stored version is current.

        Args:
            stored_version: Version of the stored document; None if none is stored.

        Raises:
            NotFound: It has disappeared since it was listed; a stored copy is deleted.
            CorralError: It cannot be read; the stored document stays.
        """

    async def close(self) -> None:
        """Release the source's resources."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """The name, settings and factory of a type of source.

    Attributes:
        name: The `type` in run.yaml.
        description: One line for users.
        config: `package.module:Class`, a `SourceConfig`.
        factory: `package.module:function`, called with (config, home) and returning the `Source`.
            `home` is the data folder, for a mirror.
        requires: Distributions that it imports; each is checked before the factory is imported.
        install: The command that installs them.
    """

    name: str
    description: str
    config: str
    factory: str
    requires: tuple[str, ...] = ()
    install: str = ""
