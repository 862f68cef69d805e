"""What Milvus's errors and logs show, and settings that cannot work."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from corral.api.engine_index import EngineIndex
from corral.api.errors import ProviderError
from corral.providers.vector_io.milvus.config import RemoteMilvusConfig

from ..engines import engine_of
from .helpers import lite, registered, words


async def test_errors_and_logs_hold_no_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milvus refuses a row: the error names the provider and the code, neither it nor the log the
    text. If this fails: the driver logs whole requests where they fail."""

    index = await lite(tmp_path).open_index(registered(), create=True)
    monkeypatch.setattr(engine_of(index).collection.maker, "blank", spoiled(index))
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError, match="lite") as caught:
        await index.add_chunks(words({"a": "secret zebra"}, key="secret lion"), [[1, 0]])
    assert "secret" not in str(caught.value)
    assert "secret" not in caplog.text
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] in ("pymilvus", "milvus_lite"):
            assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL), name
    monkeypatch.undo()
    await index.add_chunks(words({"a": "zebra"}), [[1, 0]])
    assert await index.count() == 1
    await index.close()


async def test_what_milvus_lite_cannot_do_is_an_error_of_the_provider(tmp_path: Path) -> None:
    """A request that Milvus Lite fails at, and does not answer, is a ProviderError with its name.

    If this fails: an exception of the engine, which may hold data, comes out as it is.
    """
    index = await lite(tmp_path).open_index(registered(), create=True)
    with pytest.raises(ProviderError, match="lite: Milvus answered error"):
        engine_of(index).collection.connection.call("list_roles")
    await index.close()


def spoiled(index: EngineIndex) -> Any:
    """Return a maker of rows that Milvus cannot take, the text in the place of a number."""
    real = engine_of(index).collection.maker.blank

    def blank(*arguments: Any) -> dict[str, Any]:
        row: dict[str, Any] = real(*arguments)
        return row | {"kind": "secret zebra"}

    return blank


@pytest.mark.parametrize(
    "options",
    [
        {"uri": "milvus.db"},
        {"uri": "http://user:pass@host:19530"},
        {"collection_prefix": "a-b"},
        {"index": "IVF"},
        {"timeout_seconds": 0},
        {"host": "x"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    """Settings that cannot work, and secrets where they would be shown, are refused by name."""
    with pytest.raises(ValidationError, match=next(iter(options))):
        RemoteMilvusConfig.model_validate(options)
    assert "secret" not in repr(RemoteMilvusConfig.model_validate({"token": "root:secret"}))
