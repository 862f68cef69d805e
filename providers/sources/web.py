"""Shared by sites and feeds: requests at a limited rate that obey robots.txt."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser
from xml.etree import ElementTree

import httpx
from pydantic import Field, field_validator

from corral.api.errors import InvalidRequest
from corral.api.source import SourceConfig
from corral.providers.base.config import RagSettings
from corral.providers.ingestion.read.fetching import Fetched, Fetcher, is_public

AGENT = "corral"
MAX_CRAWL_DELAY_SECONDS = 60.0
"""Longest `Crawl-delay` of a robots.txt that is respected; a longer one is shortened to this."""


class WebConfig(SourceConfig):
    """The site, and the limits of requests to it.

    Attributes:
        url: An http or https address, without user or password.
        delay_seconds: Pause between two requests; default 1. A longer delay in robots.txt wins.
        timeout_seconds: Time limit of one request; default 30.
        allow_private: True to allow a host in a private network; default false.
    """

    url: str
    delay_seconds: float = Field(default=1, ge=0, le=3600)
    timeout_seconds: float = Field(default=30, gt=0, le=600)
    allow_private: bool = False

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        try:
            url = httpx.URL(value)
        except httpx.InvalidURL:
            url = httpx.URL()
        if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.fragment:
            raise ValueError("must look like https://docs.example.org/sitemap.xml")
        return value


class PoliteClient:
    """Fetches pages of one host, with pauses between requests, and obeys robots.txt.

    Every address and every redirect is checked as for users' documents (`Fetcher`). The host must
    stay the same, and must be public unless `allow_private` is set.
    """

    def __init__(self, config: WebConfig) -> None:
        self._config = config
        self._origin = _origin(config.url)
        settings = RagSettings(
            allowed_url_hosts=[httpx.URL(config.url).host],
            fetch_timeout_seconds=config.timeout_seconds,
            fetch_max_mib=config.max_mib,
        )
        allowed = (lambda _: True) if config.allow_private else is_public
        self._fetcher = Fetcher(settings, is_public=allowed)
        self._robots: RobotFileParser | None = None
        self._next = 0.0
        self._delay = config.delay_seconds

    def is_of_host(self, url: str) -> bool:
        """Return True if an address is on the host and port of the site."""
        return _origin(url) == self._origin

    async def allows(self, url: str) -> bool:
        """Return True if robots.txt allows a page.

        Raises:
            ProviderError: robots.txt cannot be read because the site is unreachable.
        """
        return (await self.robots()).can_fetch(AGENT, url)

    async def robots(self) -> RobotFileParser:
        """Return the robots.txt rules of the site; without robots.txt, all pages are allowed."""
        if self._robots is None:
            rules = RobotFileParser()
            try:
                address = httpx.URL(self._config.url).copy_with(raw_path=b"/robots.txt")
                body = (await self._fetch(str(address), None)).data
                rules.parse(body.decode("utf-8", "replace").splitlines())
            except InvalidRequest:  # A status 4xx allows every page (RFC 9309, section 2.3.1.3).
                rules.parse([])
            delay = rules.crawl_delay(AGENT)
            if delay is not None:
                self._delay = max(self._delay, min(float(delay), MAX_CRAWL_DELAY_SECONDS))
            self._robots = rules
        return self._robots

    async def get(self, url: str, etag: str | None = None) -> Fetched:
        """Return a page.

        Raises:
            PageGone: There is no such page.
            InvalidRequest: robots.txt forbids the page, it is on another host, or it is too large.
            ProviderError: The site cannot be reached, or does not answer in time.
        """
        if not self.is_of_host(url):
            raise InvalidRequest("The page is on another host.")
        if not await self.allows(url):
            raise InvalidRequest("robots.txt forbids the page.")
        return await self._fetch(url, etag)

    async def _fetch(self, url: str, etag: str | None) -> Fetched:
        pause = self._next - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        try:
            return await self._fetcher.fetch(url, etag)
        finally:
            self._next = time.monotonic() + self._delay


def parsed_xml(data: bytes, what: str) -> ElementTree.Element:
    """Return the root of an XML document. A document type is refused, so there are no entities.

    Raises:
        InvalidRequest: The data is not XML, or it has a document type.
    """
    try:
        if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
            raise ElementTree.ParseError
        return ElementTree.fromstring(data)  # noqa: S314 - without entities, nothing can expand
    except (ElementTree.ParseError, ValueError, LookupError):
        raise InvalidRequest(f"The {what} is not valid XML.") from None


def local_name(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def text_of(element: ElementTree.Element, *names: str) -> str:
    """Return the text of the first child with one of the names and a text; "" if there is none."""
    for name in names:
        for child in element:
            if local_name(child) == name and (text := "".join(child.itertext()).strip()):
                return text
    return ""


def _origin(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        port = None
    return (parts.hostname or "").lower(), port
