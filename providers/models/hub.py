"""Fetch model files from a hub once, at a pinned revision, and check their sha256.

    hub_folder(home, HubFiles("BAAI/bge-small-en-v1.5", revision, ("onnx/model.onnx", ...)))

The files are stored in `home/models/hub/<repository>/<revision>/`, with their digests in
`sha256.json`. Later calls work offline. A file is renamed into place once its digest is known.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated
from urllib.parse import quote

from pydantic import StringConstraints

from corral.api.errors import ConfigError, Unavailable
from corral.providers.base.disk import whole_file

if TYPE_CHECKING:
    import httpx

HUB = "https://huggingface.co"
"""The default hub; settings can name a mirror."""
CONNECT_SECONDS = 5.0
"""Time limit for connecting, so that a missing network is reported soon."""
READ_SECONDS = 60.0
RECORD = "sha256.json"

Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""A sha256 in settings: 64 lower-case hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class HubFiles:
    """The files to fetch from a repository.

    Attributes:
        repository: The repository, as `owner/name`.
        revision: A commit, 40 hexadecimal digits; its files never change.
        names: Files that must exist.
        optional: Files that are fetched if they exist.
        sha256: Required digests by file name. The digests of other files are recorded when they are
            first fetched.
        hub: Address of the hub or a mirror.
    """

    repository: str
    revision: str
    names: Sequence[str]
    optional: Sequence[str] = ()
    sha256: Mapping[str, str] = field(default_factory=dict)
    hub: str = HUB


def folder_of(home: Path, files: HubFiles) -> Path:
    """Return the folder for the files of a revision."""
    return home / "models" / "hub" / files.repository.replace("/", "--") / files.revision


def is_fetched(home: Path, files: HubFiles) -> bool:
    """Return True if all required files exist; only `hub_folder` checks their digests."""
    return all((folder_of(home, files) / name).is_file() for name in files.names)


def hub_folder(home: Path, files: HubFiles) -> Path:
    """Return the folder with the files, after fetching the missing ones. Blocking.

    Raises:
        Unavailable: A file is missing, and the hub cannot be reached.
        ConfigError: The hub has no such file, or a file has the wrong sha256.
    """
    folder = folder_of(home, files)
    record = folder / RECORD
    known: dict[str, str] = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    absent = [name for name in (*files.names, *files.optional) if name not in known]
    # The user has put the files there; optional ones may be missing without a network.
    by_hand = not known and is_fetched(home, files)
    if absent:
        import httpx  # noqa: PLC0415 - takes 0.1 s, and servers with all files do not need it

        folder.mkdir(parents=True, exist_ok=True)
        with httpx.Client(
            follow_redirects=True, timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        ) as client:
            for name in absent:
                try:
                    known[name] = _fetch(client, files, name, folder)
                except Unavailable:
                    if not (by_hand and name in files.optional):
                        raise
                    known[name] = ""
        with whole_file(record) as file:
            file.write(json.dumps(known, indent=1, sort_keys=True).encode())
    for name, digest in known.items():
        if digest:
            check_digest(folder / name, files.sha256.get(name, digest), files.repository)
    return folder


def check_digest(path: Path, expected: str, what: str, hint: str = "") -> None:
    """Check the sha256 of a file.

    Args:
        expected: The required sha256.
        what: Name of the model, for the error message.
        hint: Hint of the error. Default: fetch the file again.

    Raises:
        ConfigError: The file is missing or has another sha256; the message names both digests.
    """
    found = digest_of(path) if path.is_file() else "no file"
    if found != expected:
        raise ConfigError(
            f"{what}: {path.name} has sha256 {found}, expected {expected}.",
            hint=hint or f"Delete the folder {path.parent} to fetch it again.",
        )


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(client: httpx.Client, files: HubFiles, name: str, folder: Path) -> str:
    """Fetch one file and return its sha256; "" for an optional file that the hub does not have.

    A file that is already in the folder, put there by the user, is used unchanged.
    """
    import httpx  # noqa: PLC0415 - as above

    if (folder / name).is_file():
        return digest_of(folder / name)
    address = f"{files.hub.rstrip('/')}/{files.repository}/resolve/{files.revision}/{quote(name)}"
    try:
        with client.stream("GET", address) as response:
            if response.status_code == httpx.codes.NOT_FOUND and name in files.optional:
                return ""
            if response.is_error:
                raise ConfigError(
                    f"{files.repository} has no file {name!r} at revision {files.revision} "
                    f"(the hub answered {response.status_code}).",
                    hint="Compare repository, revision and file with the hub.",
                )
            return _keep(response, files, name, folder)
    except httpx.HTTPError as error:
        raise Unavailable(
            f"{files.repository}: {name} cannot be fetched ({type(error).__name__}).",
            hint=f"Put the files into {folder}, or set `path` to a folder that has them.",
        ) from error


def _keep(response: httpx.Response, files: HubFiles, name: str, folder: Path) -> str:
    digest = hashlib.sha256()
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as file:
        _copy(response, file, digest, name)
        found, wanted = digest.hexdigest(), files.sha256.get(name)
        if wanted is not None and found != wanted:
            raise ConfigError(
                f"{files.repository}: {name} has sha256 {found}, expected {wanted}.",
                hint="The hub or the network served another file; nothing was kept.",
            )
    return found


def _copy(response: httpx.Response, file: IO[bytes], digest: hashlib._Hash, name: str) -> None:
    from rich.console import Console  # noqa: PLC0415 - only downloads show a bar
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415

    total = int(response.headers.get("content-length", 0)) or None
    columns = (TextColumn("Fetching {task.description}"), BarColumn(), DownloadColumn())
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(name, total=total)
        for block in response.iter_bytes(1 << 20):
            digest.update(block)
            file.write(block)
            progress.advance(task, len(block))
