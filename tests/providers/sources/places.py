"""Places with documents, on this machine: a folder, a git repository, a bucket, a web site."""

from __future__ import annotations

import hashlib
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ..json_service import Reply, served


class Place(ABC):
    """Documents that a test puts, changes and removes; `settings` are those of a source."""

    settings: dict[str, Any]

    @abstractmethod
    def put(self, key: str, text: str) -> None:
        """Write a document, new or changed."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Delete a document."""

    @abstractmethod
    def vanish(self) -> None:
        """Make the whole place unreachable."""

    def document_id(self, key: str) -> str:
        """Return the document's id in a vector DB."""
        return key


class Folder(Place):
    def __init__(self, root: Path) -> None:
        self.root = root / "folder"
        self.root.mkdir()
        self.settings = {"type": "folder", "path": str(self.root)}

    def put(self, key: str, text: str) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def remove(self, key: str) -> None:
        (self.root / key).unlink()

    def vanish(self) -> None:
        self.root.rename(self.root.with_name("elsewhere"))


class Repository(Folder):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.git("init", "--quiet", "--initial-branch=main")
        self.settings = {"type": "git", "url": str(self.root)}

    def git(self, *arguments: str) -> None:
        """Run git in the repository without the settings of the user who runs the tests."""
        who = {f"GIT_{role}_{what}": "a@example.org" for role in ("AUTHOR", "COMMITTER")
               for what in ("NAME", "EMAIL")}  # fmt: skip
        none = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        environment = {**os.environ, **who, **none}
        subprocess.run(["git", *arguments], cwd=self.root, check=True, env=environment)

    def put(self, key: str, text: str) -> None:
        super().put(key, text)
        self.commit()

    def remove(self, key: str) -> None:
        super().remove(key)
        self.commit()

    def commit(self) -> None:
        """Commit all changes."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=change")


class Bucket(Place):
    """A bucket behind the protocol of S3: GetObject, and ListObjectsV2 in pages of two.

    Attributes:
        objects: Their contents by key.
        requests: Paths of all requests.
        broken_page: The number of the page, from 0, that a listing fails on; None for none.
    """

    PAGE = 2

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.broken_page: int | None = None
        self.is_gone = False
        self.url = ""

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]  # the port is known later
        """The settings of a source."""
        keys = {"access_key_id": "test", "secret_access_key": "very-secret"}
        return {
            "type": "objects",
            "url": "s3://bucket/docs",
            "allow_http": True,
            "retries": 0,
            "options": {"endpoint": self.url, "region": "us-east-1", **keys},
        }

    def put(self, key: str, text: str) -> None:
        self.objects[f"docs/{key}"] = text.encode()

    def remove(self, key: str) -> None:
        del self.objects[f"docs/{key}"]

    def vanish(self) -> None:
        self.is_gone = True

    def answer(self, path: str, headers: dict[str, str]) -> Reply:
        """Return the reply to a request."""
        parts = urlsplit(path)
        self.requests.append(parts.path)
        key = unquote(parts.path.removeprefix("/bucket").lstrip("/"))
        if self.is_gone:
            return Reply(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        if not key:
            return self._listed({name: each[0] for name, each in parse_qs(parts.query).items()})
        if key not in self.objects:
            return Reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return Reply(body=self.objects[key], headers=_attributes(self.objects[key]))

    def _listed(self, query: dict[str, str]) -> Reply:
        start = int(query.get("continuation-token", "0"))
        if self.broken_page is not None and start // self.PAGE == self.broken_page:
            return Reply(500, b"<Error><Code>InternalError</Code></Error>")
        keys = sorted(key for key in self.objects if key.startswith(query.get("prefix", "")))
        page, rest = keys[start : start + self.PAGE], keys[start + self.PAGE :]
        entries = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-11-26T00:00:00.000Z</LastModified>"
            f"<ETag>{_attributes(self.objects[key])['etag']}</ETag>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{start + self.PAGE}</NextContinuationToken>" * bool(rest)
        truncated = f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>"
        body = f"<ListBucketResult><Name>bucket</Name>{truncated}{token}{entries}"
        return Reply(body=f"{body}</ListBucketResult>".encode())


def _attributes(content: bytes) -> dict[str, str]:
    tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return {"etag": f'"{tag}"', "last-modified": "Thu, 26 Nov 2026 00:00:00 GMT"}


@dataclass
class Site(Place):
    """A web site with a sitemap of all pages, robots.txt, and whatever `extra` answers.

    Attributes:
        url: Its address.
        pages: By path, the body of each page.
        requests: (path, headers) of each request.
        robots: The robots.txt; None for none.
        extra: By path, replies in place of pages; status 0 hangs up.
        lastmod: By path, `lastmod` in the sitemap; None leaves it out.
        etags: Whether pages have ETags.
    """

    url: str = ""
    pages: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    robots: str | None = None
    extra: dict[str, Reply] = field(default_factory=dict)
    lastmod: dict[str, str] = field(default_factory=dict)
    etags: bool = True
    is_down: bool = False

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]  # the port is known later
        """The settings of a source."""
        return {
            "type": "site",
            "url": f"{self.url}/sitemap.xml",
            "delay_seconds": 0,
            "allow_private": True,
        }

    def document_id(self, key: str) -> str:
        return f"{self.url}/{key}"

    def put(self, key: str, text: str) -> None:
        self.pages[f"/{key}"] = text

    def remove(self, key: str) -> None:
        del self.pages[f"/{key}"]

    def vanish(self) -> None:
        self.is_down = True

    def paths(self) -> list[str]:
        """Return the paths that were requested, and forget them."""
        paths = [path for path, _ in self.requests]
        self.requests.clear()
        return paths

    def answer(self, path: str, headers: dict[str, str]) -> Reply:
        """Return the reply to a request."""
        self.requests.append((path, headers))
        if self.is_down or path in self.extra:
            return Reply(503) if self.is_down else self.extra[path]
        if path == "/robots.txt" and self.robots is not None:
            return Reply(body=self.robots.encode(), headers={"content-type": "text/plain"})
        if path == "/sitemap.xml":
            return Reply(body=sitemap(self.url, self.pages, self.lastmod))
        return self._page(path, headers) if path in self.pages else Reply(404)

    def _page(self, path: str, headers: dict[str, str]) -> Reply:
        tag = f'"{hash(self.pages[path])}"'
        more = {"etag": tag} if self.etags else {"date": formatdate()}
        if self.etags and headers.get("if-none-match") == tag:
            return Reply(304, headers=more)
        kind = "text/html; charset=utf-8" if path.endswith(".html") else "text/plain"
        return Reply(body=self.pages[path].encode(), headers={"content-type": kind, **more})


def sitemap(url: str, paths: Any, lastmod: dict[str, str]) -> bytes:
    """Return a sitemap of some paths."""
    entries = "".join(
        f"<url><loc>{url}{path}</loc>"
        + (f"<lastmod>{lastmod[path]}</lastmod>" if path in lastmod else "")
        + "</url>"
        for path in paths
    )
    xmlns = "http://www.sitemaps.org/schemas/sitemap/0.9"
    return f'<?xml version="1.0"?><urlset xmlns="{xmlns}">{entries}</urlset>'.encode()


@contextmanager
def running(answer: Callable[[str, dict[str, str]], Reply]) -> Iterator[str]:
    """Run a web server that answers GET so, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the tests look at what the code under test says."""

        def do_GET(self) -> None:
            reply = answer(self.path, {name.lower(): each for name, each in self.headers.items()})
            self.close_connection = True
            self.send_response(reply.status)
            sent = {"content-length": str(len(reply.body)), "connection": "close"}
            for name, value in (sent | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

    with served(Handler) as url:
        yield url.removesuffix("/v1")


@contextmanager
def site() -> Iterator[Site]:
    """Run a web site."""
    made = Site()
    with running(made.answer) as made.url:
        yield made


@contextmanager
def folder(root: Path) -> Iterator[Place]:
    """Make a folder."""
    yield Folder(root)


@contextmanager
def repository(root: Path) -> Iterator[Place]:
    """Make a git repository."""
    yield Repository(root)


@contextmanager
def bucket(root: Path) -> Iterator[Place]:
    """Run an S3 server with a bucket."""
    made = Bucket()
    with running(made.answer) as made.url:
        yield made


@contextmanager
def web(root: Path) -> Iterator[Place]:
    """Run a web site."""
    with site() as made:
        yield made


PLACES: dict[str, Callable[[Path], Any]] = {
    "folder": folder,
    "git": repository,
    "objects": bucket,
    "site": web,
}
