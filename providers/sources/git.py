"""Git repositories as sources, read with the git command.

The data folder holds a bare mirror of one commit. Nothing is checked out, so hooks, filters and
links in the repository have no effect.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from corral.api.errors import InvalidRequest, MissingDependency, ProviderTimeout, Unavailable
from corral.api.source import Content, Listing, Source, SourceItem, SourceSpec
from corral.providers.sources.folder import MIB, SelectionConfig
from corral.providers.sources.walking import NameRules

_URL = re.compile(r"(https?|ssh|file)://[^\s@]+|ssh://[\w.-]+@[^\s@]+|[\w.-]+@[\w.-]+:[^\s]+|/.*")
_BRANCH = re.compile(r"(?!-)(?!.*\.\.)[\w./-]{1,200}")
_REGULAR = {"100644", "100755"}
_LFS = b"version https://git-lfs.github.com/spec/"
_HEAD = "refs/corral/head"


def _checked_url(value: str) -> str:
    if not _URL.fullmatch(value):
        raise ValueError(
            "must be https://..., ssh://..., USER@HOST:PATH or a path, without password"
        )
    return value


def _checked_branch(value: str | None) -> str | None:
    if value is not None and not _BRANCH.fullmatch(value):
        raise ValueError("is not the name of a branch or tag")
    return value


class GitConfig(SelectionConfig):
    """The repository.

    Attributes:
        url: The address, as for `git clone`, without a password.
        branch: A branch or tag. Default: the repository's default branch.
        folder: Only files below this folder. Default: all.
        token: Password for https, such as a personal access token. Masked.
        username: Sent with the token; default `x-access-token`, which GitHub and others accept.
        timeout_seconds: Time limit for each git command; default 600.
    """

    url: Annotated[str, AfterValidator(_checked_url)]
    branch: Annotated[str | None, AfterValidator(_checked_branch)] = None
    folder: str = ""
    token: SecretStr | None = None
    username: str = "x-access-token"
    timeout_seconds: float = Field(default=600, gt=0, le=86_400)


class GitSource(Source):
    """Lists the files of one commit; the version of a file is the hash of its blob."""

    def __init__(self, config: GitConfig, home: Path) -> None:
        self._config = config
        self._folder = config.folder.strip("/")
        self._names = NameRules(config.selection)
        self.identity = f"git:{config.url}#{config.branch or ''}:{self._folder}"
        name = hashlib.sha256(config.url.encode()).hexdigest()[:32]
        self._mirror = home / "sources" / f"{name}.git"

    async def listing(self) -> Listing:
        """Fetch the newest commit, and return its files; see `Source.listing`."""
        if not (self._mirror / "HEAD").exists():
            self._mirror.mkdir(parents=True, exist_ok=True)
            await self._git("init", "--quiet", "--bare", ".")
        name = self._config.branch or "HEAD"
        await self._git(
            "fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--no-recurse-submodules",
            "--", self._config.url, f"+{name}:{_HEAD}",
        )  # fmt: skip
        tree = f"{_HEAD}:{self._folder}" if self._folder else _HEAD
        listed = await self._git("ls-tree", "-r", "-z", "-l", tree)
        items: list[SourceItem] = []
        skipped: list[tuple[str, str]] = []
        for line in filter(None, listed.split(b"\0")):
            head, _, path = line.partition(b"\t")
            mode, _, blob, size = head.decode("ascii").split()
            key = path.decode("utf-8", "replace")
            if mode not in _REGULAR or not self._names.includes(key):
                continue
            if reason := self._refuses(key, int(size)):
                skipped.append((key, reason))
            else:
                items.append(SourceItem(key, blob))
        return Listing(items, skipped)

    async def read(self, item: SourceItem, stored_version: str | None) -> Content:
        """Return a file."""
        data = await self._git("cat-file", "blob", str(item.version))
        if data.startswith(_LFS):
            raise InvalidRequest("The file is in Git LFS, which is not fetched.")
        return Content(data, str(item.version))

    def _refuses(self, key: str, size: int) -> str | None:
        if size > self._config.max_mib * MIB:
            return f"larger than max_mib, {self._config.max_mib:g}"
        return self._names.refuses_below(key)

    async def _git(self, *arguments: str) -> bytes:
        """Run a git command in the mirror and return its output.

        Raises:
            MissingDependency: git is not installed.
            ProviderTimeout, Unavailable: The command took too long, or failed.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                "git", *arguments,
                cwd=self._mirror,
                env=self._environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,  # Messages may quote the address.
            )  # fmt: skip
        except FileNotFoundError:
            raise MissingDependency("The source git", "git", "apt install git") from None
        try:
            async with asyncio.timeout(self._config.timeout_seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            seconds = self._config.timeout_seconds
            raise ProviderTimeout(f"git {arguments[0]} took more than {seconds:g} s.") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise Unavailable(
                f"git {arguments[0]} failed with {process.returncode}.",
                hint=f"Try it: git ls-remote {self._config.url} {self._config.branch or 'HEAD'}",
            )
        return output

    def _environment(self) -> dict[str, str]:
        """Return an environment without prompts, with few protocols, and with the token.

        Other users of the machine can read the arguments of a command, but not its environment.
        """
        given = {
            **os.environ,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "https:http:ssh:file",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_DIR": str(self._mirror),
        }
        given.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
        if self._config.token and self._config.url.startswith(("https://", "http://")):
            pair = f"{self._config.username}:{self._config.token.get_secret_value()}"
            header = f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}"
            given |= {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "http.extraHeader",
                "GIT_CONFIG_VALUE_0": header,
            }
        return given


def create(config: GitConfig, home: Path) -> GitSource:
    """Return the source (its spec's factory)."""
    return GitSource(config, home)


SPEC = SourceSpec(
    name="git",
    description="The files of a branch of a git repository.",
    config="corral.providers.sources.git:GitConfig",
    factory="corral.providers.sources.git:create",
)
