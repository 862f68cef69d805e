"""RSS and Atom feeds as sources; each entry is a document."""

from __future__ import annotations

import hashlib
from html import escape
from pathlib import Path
from urllib.parse import urljoin
from xml.etree import ElementTree

from corral.api.errors import InvalidRequest, NotFound
from corral.api.source import Content, Listing, Source, SourceItem, SourceSpec
from corral.providers.ingestion.read.fetching import PageGone
from corral.providers.sources.web import PoliteClient, WebConfig, local_name, parsed_xml, text_of


class FeedConfig(WebConfig):
    """The feed.

    Attributes:
        pages: True to read the page that an entry links to, in place of the entry's own content;
            the page must be on the feed's host. Default false.
    """

    pages: bool = False


class FeedSource(Source):
    """Lists the entries of a feed. Entries that have left the feed stay stored."""

    deletes = False

    def __init__(self, config: FeedConfig) -> None:
        self._config = config
        self._client = PoliteClient(config)
        self._entries: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.identity = f"feed:{config.url}"

    async def listing(self) -> Listing:
        """Return the entries; see `Source.listing`."""
        root = parsed_xml((await self._client.get(self._config.url)).data, "feed")
        if local_name(root) not in {"rss", "feed", "RDF"}:
            raise InvalidRequest(f"{self._config.url} is no RSS or Atom feed.")
        items = {}
        for entry in root.iter():
            if local_name(entry) not in {"item", "entry"}:
                continue
            link = _link(entry)
            link = urljoin(self._config.url, link) if link else ""
            key = link or text_of(entry, "guid", "id")
            if key and key not in items:
                data, metadata = _document(entry, link or key)
                self._entries[key] = data, metadata
                items[key] = SourceItem(key, hashlib.sha256(data).hexdigest())
        return Listing(list(items.values()))

    async def read(self, item: SourceItem, stored_version: str | None) -> Content:
        """Return an entry, or the page that it links to."""
        data, metadata = self._entries[item.key]
        kind = "text/html; charset=utf-8"
        if self._config.pages:
            try:
                page = await self._client.get(item.key)
            except PageGone as error:
                raise NotFound(error.message) from None
            data, kind = page.data, page.content_type or ""
        return Content(data, str(item.version), kind, metadata)


def _link(entry: ElementTree.Element) -> str:
    """Return the link of an entry; "" if it has none."""
    for child in entry:
        if local_name(child) == "link":
            if child.get("rel", "alternate") == "alternate" and child.get("href"):
                return str(child.get("href"))
            if child.text and child.text.strip():
                return child.text.strip()
    return ""


def _document(entry: ElementTree.Element, source: str) -> tuple[bytes, dict[str, str]]:
    """Return an entry as an HTML page, and its metadata."""
    title = text_of(entry, "title")
    published = text_of(entry, "published", "pubDate", "date", "updated")
    content = _content(entry)
    page = f"<html><head><title>{escape(title)}</title></head><body><main><h1>{escape(title)}</h1>"
    data = f"{page}{content}</main></body></html>".encode("utf-8", "replace")
    metadata = {"source": source, "title": title, "published": published}
    return data, {name: value for name, value in metadata.items() if value}


def _content(entry: ElementTree.Element) -> str:
    """Return the most complete form of an entry's text, as HTML."""
    for name in ("encoded", "content", "description", "summary"):
        for child in entry:
            if local_name(child) != name:
                continue
            if child.get("type") == "xhtml":
                return "".join(ElementTree.tostring(each, "unicode") for each in child)
            text = "".join(child.itertext())
            if text.strip():
                is_text = child.get("type") == "text" or (name == "summary" and "<" not in text)
                return f"<p>{escape(text)}</p>" if is_text else text
    return ""


def create(config: FeedConfig, home: Path) -> FeedSource:
    """Return the source (its spec's factory)."""
    return FeedSource(config)


SPEC = SourceSpec(
    name="feed",
    description="The entries of an RSS or Atom feed.",
    config="corral.providers.sources.feed:FeedConfig",
    factory="corral.providers.sources.feed:create",
)
