"""Web sites and feeds: robots.txt, the rate, one host, the public internet, versions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import InvalidRequest, ProviderError
from corral.providers.base.documents import Page, read_document
from corral.providers.sources.registry import build_source
from corral.providers.sources.web import PoliteClient, WebConfig

from ..ingestion.jobs_stack import opened
from ..json_service import Reply
from .places import Site, site, sitemap
from .test_sync import counts, failure, run, stored


@pytest.fixture
def web() -> Iterator[Site]:
    """Run a web site with two pages."""
    with site() as made:
        made.put("a.html", "<title>A</title><p>The lion sleeps.</p>")
        made.put("b.html", "<title>B</title><p>The zebra runs.</p>")
        yield made


def entry(web: Site, **settings: Any) -> dict[str, Any]:
    """Return the sync of a site, as run.yaml has it."""
    source = {**web.settings, **settings}
    return {"name": "mine", "vector_db_id": "db", "source": source}


async def test_robots_txt_is_obeyed(web: Site, tmp_path: Path) -> None:
    """A forbidden page is not requested, and deleted if it was stored before it was forbidden."""
    async with opened(tmp_path / "home", sync=[entry(web)]) as stack:
        assert counts(await run(stack)) == (2, 0, 0, 0)
        web.robots = "User-agent: corral\nDisallow: /b.html\n"
        web.paths()
        report = await run(stack)
        assert counts(report) == (0, 1, 1, 0)
        assert [reason for _, reason in report.skips] == ["forbidden by robots.txt"]
        assert "/b.html" not in web.paths()
        web.robots = "User-agent: *\nDisallow: /\n"
        assert "robots.txt" in await failure(stack)
        assert web.paths() == ["/robots.txt"]
        assert len(await stored(stack)) == 1


async def test_robots_txt_that_fails_closes_the_site(web: Site, tmp_path: Path) -> None:
    """If robots.txt answers 5xx, nothing else is requested (RFC 9309, section 2.3.1.4)."""
    web.extra["/robots.txt"] = Reply(500)
    async with opened(tmp_path / "home", sync=[entry(web)]) as stack:
        assert await failure(stack)
    assert web.paths() == ["/robots.txt"]


async def test_the_rate_is_bounded(web: Site) -> None:
    """Requests are at least `delay_seconds` apart, or the Crawl-delay of robots.txt.

    If this fails: a request goes around `PoliteClient`.
    """
    web.robots = "User-agent: *\nCrawl-delay: 1\n"
    client = PoliteClient(
        WebConfig(url=f"{web.url}/sitemap.xml", delay_seconds=0, allow_private=True)
    )
    await client.robots()
    await client.get(f"{web.url}/a.html")
    started = time.monotonic()
    await client.get(f"{web.url}/b.html")
    assert time.monotonic() - started >= 1


async def test_other_hosts_and_private_networks_are_not_reached(web: Site, tmp_path: Path) -> None:
    """Pages elsewhere are skipped, redirects elsewhere fail, and 127.0.0.1 needs `allow_private`.

    If this fails: a sitemap can turn the server against its own network.
    """
    with site() as other:
        other.put("secret.txt", "secret")
        elsewhere = f"{other.url}/secret.txt"
        body = sitemap("", [f"{web.url}/a.html", elsewhere, f"{web.url}/go"], {})
        web.extra["/sitemap.xml"] = Reply(body=body)
        moved = elsewhere.replace("127.0.0.1", "localhost")
        web.extra["/go"] = Reply(302, headers={"location": moved})
        async with opened(tmp_path / "home", sync=[entry(web)]) as stack:
            report = await run(stack)
            assert report.skips == [(elsewhere, "on another host")]
            assert [name for name, _ in report.failures] == [f"{web.url}/go"]
            assert report.stored == 1
        assert other.requests == []
    web.paths()
    async with opened(tmp_path / "home", sync=[entry(web, allow_private=False)]) as stack:
        assert "not on the public internet" in await failure(stack)
    assert web.paths() == []


async def test_versions_of_pages(web: Site, tmp_path: Path) -> None:
    """`lastmod` saves the request, an ETag the body, and a hash of the content the ingestion."""
    web.lastmod["/a.html"] = "2026-11-01"
    async with opened(tmp_path / "home", sync=[entry(web)]) as stack:
        await run(stack)
        web.paths()
        assert counts(await run(stack)) == (0, 2, 0, 0)
        asked = dict(web.requests)
        assert "/a.html" not in asked
        assert "if-none-match" in asked["/b.html"]
        web.lastmod["/a.html"] = "2026-11-02"
        web.etags = False
        assert counts(await run(stack)) == (2, 0, 0, 0)
        assert counts(await run(stack)) == (0, 2, 0, 0)


async def test_a_page_that_is_gone_but_listed(web: Site, tmp_path: Path) -> None:
    """404 and 410 delete the page; 500 keeps it and fails it."""
    async with opened(tmp_path / "home", sync=[entry(web)]) as stack:
        await run(stack)
        web.extra |= {"/a.html": Reply(410), "/b.html": Reply(500)}
        assert counts(await run(stack)) == (0, 0, 1, 1)
        assert list(await stored(stack)) == [f"{web.url}/b.html"]


async def test_a_sitemap_index(web: Site, tmp_path: Path) -> None:
    """All its sitemaps are read; if one fails, what it listed is kept."""
    children = {
        "/one.xml": sitemap(web.url, ["/a.html"], {}),
        "/two.xml": sitemap(web.url, ["/b.html"], {}),
    }
    locations = "".join(f"<sitemap><loc>{web.url}{each}</loc></sitemap>" for each in children)
    index = f"<sitemapindex>{locations}</sitemapindex>".encode()
    web.extra |= {name: Reply(body=body) for name, body in children.items()}
    web.extra["/sitemap.xml"] = Reply(body=index)
    async with opened(tmp_path / "home", sync=[entry(web)]) as stack:
        assert counts(await run(stack)) == (2, 0, 0, 0)
        web.extra["/two.xml"] = Reply(503)
        report = await run(stack)
        assert counts(report) == (0, 1, 0, 0)
        assert "/two.xml" in report.problems[0]
        assert len(await stored(stack)) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>not a sitemap</body></html>",
        b"<urlset><url>",
        b'<!DOCTYPE x [<!ENTITY a "aaaa">]><urlset><url><loc>&a;</loc></url></urlset>',
    ],
)
async def test_what_is_no_sitemap_fails_the_run(body: bytes, web: Site, tmp_path: Path) -> None:
    """An error page with status 200 is not an empty site."""
    async with opened(tmp_path / "home", sync=[entry(web)]) as stack:
        await run(stack)
        web.extra["/sitemap.xml"] = Reply(body=body)
        assert await failure(stack)
        assert len(await stored(stack)) == 2


async def test_the_sitemap_of_a_site_is_found(web: Site, tmp_path: Path) -> None:
    """An address that is no sitemap is a site: robots.txt names its sitemaps."""
    web.extra["/pages.xml"] = Reply(body=sitemap(web.url, ["/a.html"], {}))
    web.robots = f"Sitemap: {web.url}/pages.xml\n"
    source = build_source({**web.settings, "url": f"{web.url}/docs/"}, "sync", tmp_path)
    assert [item.key for item in (await source.listing()).items] == [f"{web.url}/a.html"]
    web.robots = None
    source = build_source({**web.settings, "url": web.url}, "sync", tmp_path)
    assert len((await source.listing()).items) == 2


async def test_globs_and_the_number_of_pages(web: Site, tmp_path: Path) -> None:
    """Globs choose among the paths, and a site beyond `max_pages` is refused."""
    chosen = build_source({**web.settings, "include": ["/a*"]}, "sync", tmp_path)
    assert [item.key for item in (await chosen.listing()).items] == [f"{web.url}/a.html"]
    with pytest.raises(InvalidRequest, match="more than 1 pages"):
        await build_source({**web.settings, "max_pages": 1}, "sync", tmp_path).listing()


RSS = """<?xml version="1.0"?><rss version="2.0"
 xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel><title>News</title>
<item><title>Lions</title><link>{url}/lions</link><pubDate>Mon, 02 Nov 2026 10:00:00 GMT</pubDate>
<description>short</description><content:encoded><![CDATA[<p>The <b>lion</b> sleeps.</p>]]>
</content:encoded></item>{more}</channel></rss>"""
ITEM = "<item><title>Zebras</title><guid>urn:z</guid><description>They run.</description></item>"
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><entry><title>Okapi</title>
<id>urn:o</id><link rel="self" href="/self"/><link href="/okapi"/><updated>2026-11-02</updated>
<content type="html">&lt;p&gt;The okapi hides.&lt;/p&gt;</content></entry></feed>"""


async def test_a_feed(web: Site, tmp_path: Path) -> None:
    """Entries are documents with title, date and address; one that leaves the feed stays."""
    feed = {"type": "feed", "url": f"{web.url}/feed", "delay_seconds": 0, "allow_private": True}
    sync = {"name": "mine", "vector_db_id": "db", "source": feed}
    web.extra["/feed"] = Reply(body=RSS.format(url=web.url, more=ITEM).encode())
    async with opened(tmp_path / "home", sync=[sync]) as stack:
        assert counts(await run(stack)) == (2, 0, 0, 0)
        texts = await stored(stack)
        assert "sleeps" in texts[f"{web.url}/lions"]
        assert "They run." in texts["urn:z"]
        document = await read_document(await stack.index("db"), f"{web.url}/lions", Page(0, 1))
        assert document
        assert document.metadata["title"] == "Lions"
        assert document.metadata["published"].startswith("Mon, 02 Nov")
        web.extra["/feed"] = Reply(body=RSS.format(url=web.url, more="").encode())
        assert counts(await run(stack)) == (0, 1, 0, 0)
        web.extra["/feed"] = Reply(body=ATOM.encode())
        assert counts(await run(stack)) == (1, 0, 0, 0)
        assert set(await stored(stack)) == {f"{web.url}/lions", "urn:z", f"{web.url}/okapi"}


async def test_the_pages_of_a_feed(web: Site, tmp_path: Path) -> None:
    """With `pages`, an entry is the page that it links to."""
    web.put("okapi", "The page about the okapi.")
    web.extra["/feed"] = Reply(body=ATOM.encode())
    settings = {"type": "feed", "url": f"{web.url}/feed", "delay_seconds": 0, "pages": True}
    source = build_source({**settings, "allow_private": True}, "sync", tmp_path)
    [item] = (await source.listing()).items
    content = await source.read(item, None)
    assert content
    assert content.data == b"The page about the okapi."
    web.is_down = True
    with pytest.raises(ProviderError):
        await source.read(item, None)
