"""Web sites as sources: the pages of their sitemaps."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from pydantic import Field

from corral.api.errors import CorralError, InvalidRequest, NotFound
from corral.api.source import Content, Listing, Source, SourceItem, SourceSpec
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.fetching import PageGone
from corral.providers.sources.file_names import globs
from corral.providers.sources.web import PoliteClient, WebConfig, local_name, parsed_xml, text_of

_MAX_DEPTH = 3
_ETAG = "etag:"
_MAX_VERSION = 200


class SiteConfig(WebConfig):
    """The site.

    Attributes:
        url: Address of the sitemap or of the site. For a site, the sitemaps are those named in its
            robots.txt, or else `/sitemap.xml`.
        include: Globs of paths, as in .gitignore, such as `/docs/**`; default all pages.
        exclude: Globs of paths to leave out.
        max_pages: Maximum number of pages; default 10000. A site with more pages is an error.
    """

    include: list[str] = Field(default_factory=list)
    exclude: list[str] = Field(default_factory=list)
    max_pages: int = Field(default=10_000, ge=1)


class SiteSource(Source):
    """Lists the pages of sitemaps.

    The version of a page is its `lastmod` in the sitemap, or else its ETag, or else a hash of its
    content.
    """

    def __init__(self, config: SiteConfig) -> None:
        self._config = config
        self._client = PoliteClient(config)
        self._include, self._exclude = globs(config.include), globs(config.exclude)
        self.identity = f"site:{config.url}"

    async def listing(self) -> Listing:
        """Return the pages; see `Source.listing`.

        If a sitemap of an index cannot be read, the listing has a problem, so nothing is deleted.
        """
        pages: dict[str, str | None] = {}
        problems: list[str] = []
        for sitemap in await self._sitemaps():
            await self._add(sitemap, pages, problems, depth=0)
        items: list[SourceItem] = []
        skipped: list[tuple[str, str]] = []
        for url, version in pages.items():
            path = urlsplit(url).path.lstrip("/") or "index"
            if self._include and not self._include.match_file(path):
                continue
            if reason := await self._refuses(url, path):
                skipped.append((url, reason))
            else:
                items.append(SourceItem(url, version))
        return Listing(items, skipped, problems)

    async def read(self, item: SourceItem, stored_version: str | None) -> Content | None:
        """Return a page, or None if it has not changed since the stored version."""
        stored = stored_version or ""
        etag = stored.removeprefix(_ETAG) if stored.startswith(_ETAG) else None
        try:
            page = await self._client.get(item.key, etag)
        except PageGone as error:
            raise NotFound(error.message) from None
        if page.not_modified:
            return None
        digest = f"sha256:{hashlib.sha256(page.data).hexdigest()}"
        tag = f"{_ETAG}{page.etag}" if page.etag and len(page.etag) < _MAX_VERSION - 8 else digest
        version = item.version or tag
        if version == stored_version:
            return None
        return Content(page.data, version, page.content_type or "", {"source": item.key})

    async def _refuses(self, url: str, path: str) -> str | None:
        if not self._client.is_of_host(url):
            return "on another host"
        if self._exclude and self._exclude.match_file(path):
            return "excluded"
        return None if await self._client.allows(url) else "forbidden by robots.txt"

    async def _sitemaps(self) -> list[str]:
        path = urlsplit(self._config.url).path
        if path.endswith((".xml", ".xml.gz")):
            return [self._config.url]
        named = (await self._client.robots()).site_maps() or []
        default = str(httpx.URL(self._config.url).copy_with(raw_path=b"/sitemap.xml"))
        return [each for each in named if self._client.is_of_host(each)] or [default]

    async def _add(
        self, sitemap: str, pages: dict[str, str | None], problems: list[str], depth: int
    ) -> None:
        """Add the pages of a sitemap, or of the sitemaps that a sitemap index names."""
        try:
            fetched = await self._client.get(sitemap)
            data = compression.unpacked(fetched.data)
            root = parsed_xml(data, "sitemap")
        except CorralError as error:
            if depth == 0:
                raise
            problems.append(f"{sitemap}: {error.message}")
            return
        if local_name(root) not in {"urlset", "sitemapindex"}:
            raise InvalidRequest(f"{sitemap} is no sitemap.")
        for entry in root:
            url = text_of(entry, "loc")
            if not url:
                continue
            if local_name(root) == "urlset":
                changed = text_of(entry, "lastmod")
                pages[url] = f"lastmod:{changed}"[:_MAX_VERSION] if changed else None
                if len(pages) > self._config.max_pages:
                    raise InvalidRequest(
                        f"The site has more than {self._config.max_pages:,} pages.",
                        hint="Raise max_pages, or name the sitemap of a part of the site.",
                    )
            elif depth < _MAX_DEPTH:
                await self._add(url, pages, problems, depth + 1)


def create(config: SiteConfig, home: Path) -> SiteSource:
    """Return the source (its spec's factory)."""
    return SiteSource(config)


SPEC = SourceSpec(
    name="site",
    description="The pages of a web site, by its sitemap.",
    config="corral.providers.sources.site:SiteConfig",
    factory="corral.providers.sources.site:create",
)
