"""docs/sources.md is true: its addresses and settings are accepted, and its connector works."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.providers.base.config import load_config
from corral.providers.sources.registry import build_source, check_source, source_specs
from corral.server.cli.sync import source_settings

from ..ingestion.jobs_stack import opened
from ..json_service import Reply
from .places import running
from .test_sync import counts, run, stored

PAGE = (Path(__file__).parents[3] / "docs" / "sources.md").read_text("utf-8")


def block(kind: str) -> str:
    """Return the page's only block in a language."""
    [text] = re.findall(rf"```{kind}\n(.+?)```", PAGE, re.DOTALL)
    return str(text)


def test_each_address_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands at the top name one source of each type, and its settings are accepted."""
    (tmp_path / "handbook").mkdir()
    monkeypatch.chdir(tmp_path)
    addresses = re.findall(r"^\$ corral sync docs (\S+)$", PAGE, re.MULTILINE)
    settings = [source_settings(address) for address in addresses]
    assert [each["type"] for each in settings] == ["folder", "git", "objects", "site", "feed"]
    for each in settings:
        check_source(each, "source")


async def test_the_run_yaml_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sync has the values of the page, and its source can be built."""
    monkeypatch.setenv("HANDBOOK_TOKEN", "secret")
    (tmp_path / "run.yaml").write_text(block("yaml"))
    [sync] = load_config(None, tmp_path).sync
    assert (sync.name, sync.vector_db_id, sync.every_minutes) == ("handbook", "docs", 60)
    assert (sync.metadata, sync.acl) == ({"team": "platform"}, ["group:staff"])
    source = build_source(sync.source, "source", tmp_path)
    assert "secret" not in source.identity
    await source.close()


def test_each_setting_has_a_row() -> None:
    """Every field of a built-in source is in the page, in its section.

    If this fails: document the new setting, or remove the row of a dropped one.
    """
    sections = dict(re.findall(r"^## (.+?)\n(.+?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
    titles = {
        "folder": "A folder", "git": "A git repository", "objects": "Object storage",
        "site": "A web site", "feed": "A feed",
    }  # fmt: skip
    places = {"folder": "path: /", "git": "url: https://x.org", "objects": "url: s3://b"}
    for name, title in titles.items():
        key, _, value = places.get(name, "url: https://x.org").partition(": ")
        _, config = check_source({"type": name, key: value}, "source")
        for setting in type(config).model_fields:
            assert f"`{setting}`" in sections[title], f"{title}: {setting}"


@pytest.fixture
def connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the page's connector as a package with its entry point."""
    points = tomllib.loads(block("toml"))["project"]["entry-points"]["corral.sources"]
    info = tmp_path / "package" / "corral_wiki-1.dist-info"
    info.mkdir(parents=True)
    (info.parent / "corral_wiki.py").write_text(block("python"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: corral-wiki\nVersion: 1\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[corral.sources]\n{lines}")
    monkeypatch.syspath_prepend(info.parent)
    source_specs.cache_clear()
    yield
    source_specs.cache_clear()


@pytest.mark.usefixtures("connector")
async def test_the_connector_keeps_a_vector_db_in_step(tmp_path: Path) -> None:
    """Pages are stored, changed pages stored again, deleted ones deleted.

    If this fails: the page's code no longer fits the contract in api/source.py.
    """
    pages = {"farm/hay": ("1", "Hay is dry."), "farm/oats": ("1", "Oats are sown.")}
    tokens = set()

    def answer(path: str, headers: dict[str, str]) -> Reply:
        tokens.add(headers.get("authorization"))
        if path == "/pages":
            listed = [{"path": key, "revision": each[0]} for key, each in pages.items()]
            return Reply(body=json.dumps(listed).encode())
        _, text = pages.get(path.removeprefix("/pages/"), (None, None))
        if text is None:
            return Reply(404)
        return Reply(body=text.encode(), headers={"content-type": "text/plain"})

    with running(answer) as url:
        source = {"type": "wiki", "url": url, "token": "secret"}
        sync = [{"name": "mine", "vector_db_id": "db", "source": source}]
        async with opened(tmp_path / "home", sync=sync) as stack:
            assert counts(await run(stack)) == (2, 0, 0, 0)
            assert await stored(stack) == {key: text for key, (_, text) in pages.items()}
            pages["farm/hay"] = ("2", "Hay is wet.")
            del pages["farm/oats"]
            assert counts(await run(stack)) == (1, 0, 1, 0)
            assert await stored(stack) == {"farm/hay": "Hay is wet."}
    assert tokens == {"Bearer secret"}
