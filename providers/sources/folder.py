"""Folders on the server's machine as sources."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pydantic import Field, field_validator

from corral.api.errors import InvalidRequest, NotFound, Unavailable
from corral.api.source import Content, Listing, Source, SourceConfig, SourceItem, SourceSpec
from corral.providers.ingestion.read.detecting import type_in, type_of
from corral.providers.sources.documents import skip_reason
from corral.providers.sources.walking import Selection, walk

MIB = 1 << 20


class SelectionConfig(SourceConfig):
    """The files to take from a tree.

    Attributes:
        include: Globs as in .gitignore, such as `docs/**/*.md`; default all files.
        exclude: Globs of files to leave out.
        hidden: True to include files and folders with names that begin with a dot; default false.
        as_text: Name patterns of files to read as plain text, whatever their suffix or content.
    """

    include: list[str] = Field(default_factory=list)
    exclude: list[str] = Field(default_factory=list)
    hidden: bool = False
    as_text: list[str] = Field(default_factory=list)

    @property
    def selection(self) -> Selection:
        """The settings in the form for `walk`."""
        names = tuple(self.include), tuple(self.exclude), self.hidden
        return Selection(*names, as_text=tuple(self.as_text))


class FolderConfig(SelectionConfig):
    """The folder.

    Attributes:
        path: An absolute path on the server.
        no_ignore: True to include files that .gitignore excludes; default false.
    """

    path: str
    no_ignore: bool = False

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if not Path(value).is_absolute():
            raise ValueError("must be an absolute path")
        return value

    @property
    def selection(self) -> Selection:
        """The settings in the form for `walk`."""
        names = tuple(self.include), tuple(self.exclude), self.hidden
        return Selection(*names, self.no_ignore, tuple(self.as_text))


class FolderSource(Source):
    """Lists the files that `corral ingest` would take.

    The version of a file is its modification time and size.
    """

    def __init__(self, config: FolderConfig) -> None:
        self._config = config
        self._folder = Path(config.path)
        self.identity = f"folder:{os.path.realpath(config.path)}"

    async def listing(self) -> Listing:
        """Return the files; see `Source.listing`."""
        return await asyncio.to_thread(self._list)

    async def read(self, item: SourceItem, stored_version: str | None) -> Content:
        """Return a file."""
        try:
            data = await asyncio.to_thread((self._folder / item.key).read_bytes)
        except FileNotFoundError:
            raise NotFound(f"{item.key} is gone.") from None
        except OSError as error:
            raise Unavailable(f"{item.key} cannot be read: {error.strerror}.") from None
        return Content(data, item.version or "")

    def _list(self) -> Listing:
        if not self._folder.is_dir():
            raise Unavailable(
                f"There is no folder {self._config.path}.", hint="Is its disk mounted?"
            )
        items: list[SourceItem] = []
        skipped: list[tuple[str, str]] = []
        problems: list[str] = []
        walked = walk(
            self._folder,
            self._config.selection,
            lambda path, reason: skipped.append((self._relative(path), reason)),
            lambda path, reason: problems.append(
                f"{self._relative(path)} cannot be read: {reason}"
            ),
        )
        for path, key in walked:
            try:
                if reason := self._refuses(path):
                    skipped.append((key, reason))
                    continue
                status = path.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{key} cannot be read: {error.strerror}")
                continue
            items.append(SourceItem(key, f"{status.st_mtime_ns}-{status.st_size}"))
        return Listing(items, skipped, problems)

    def _refuses(self, path: Path) -> str | None:
        if not path.is_file():
            return "not a regular file"
        if path.stat().st_size > self._config.max_mib * MIB:
            return f"larger than max_mib, {self._config.max_mib:g}"
        if type_of(path.name) or self._config.selection.is_text(path.name):
            return None
        try:
            type_in(path)
        except InvalidRequest as error:
            return skip_reason(error)
        return None

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._folder).encode(errors="replace").decode()


def create(config: FolderConfig, home: Path) -> FolderSource:
    """Return the source (its spec's factory)."""
    return FolderSource(config)


SPEC = SourceSpec(
    name="folder",
    description="A folder on the server's machine.",
    config="corral.providers.sources.folder:FolderConfig",
    factory="corral.providers.sources.folder:create",
)
