"""Settings of providers that use a library to load models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from corral.api.errors import ConfigError
from corral.api.provider import ProviderConfig
from corral.providers.models.hub import Digest


class LibraryFiles(ProviderConfig):
    """The location of a library's model.

    Attributes:
        model: The model's name.
        path: Absolute folder with the model's files. Default: the library fetches them at the first
            use.
        sha256: The accepted digests by file name in `path`.
    """

    model: str = Field(min_length=1, max_length=255)
    path: Path | None = None
    sha256: dict[str, Digest] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _of_a_folder(self) -> LibraryFiles:
        if self.path is not None and not self.path.is_absolute():
            raise ValueError("path must be absolute")
        if self.sha256 and self.path is None:
            raise ValueError("sha256 needs path")
        return self


def check_folder(model: LibraryFiles) -> None:
    """Raise ConfigError if a model's configured folder does not exist."""
    if model.path is not None and not model.path.is_dir():
        raise ConfigError(f"The folder of {model.model!r} is missing.", field="path")


class SavedFiles(LibraryFiles):
    """A folder saved by sentence-transformers, or a hub repository with the model's name.

    Attributes:
        revision: The hub's commit, 40 hexadecimal digits; needed if no `path` is given.
    """

    revision: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")] | None = None

    @model_validator(mode="after")
    def _from_one_place(self) -> SavedFiles:
        if (self.path is None) == (self.revision is None):
            raise ValueError(
                "give either path, or revision: the hub's commit of 40 hexadecimal digits"
            )
        return self


class LibraryModel(LibraryFiles):
    """One embedding model of a library.

    Attributes:
        dimension: Numbers in an embedding.
        unrelated_cosine: Cosine of unrelated texts, the zero point of confidence. Default 0.
    """

    dimension: int = Field(ge=1, le=16_000)
    unrelated_cosine: float = Field(default=0.0, ge=-0.99, le=0.99)


class LibraryConfig(ProviderConfig):
    """Common settings of a library's models; a provider adds `models`.

    Attributes:
        offline: Fetch nothing; a missing model is an immediate error. Default false.
        threads: Threads of one computation, 1 to 64. Default: one per processor, at most 4.
    """

    offline: bool = False
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
