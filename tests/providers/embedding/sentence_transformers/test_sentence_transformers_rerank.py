"""inline::sentence-transformers-rerank: the library's numbers become scores; clear errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from corral.api.chunks import Chunk
from corral.api.errors import ConfigError
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.api.reranker import Reranker
from corral.providers.rerank.sentence_transformers.config import CrossEncoderConfig
from corral.providers.rerank.sentence_transformers.reranker import create

from .saved_models import cross_encoder_folder, library

TEXTS = ["the red barn", "a hill", "the barn on the hill", "nothing", "red\ud800"]


@pytest.fixture(scope="module", autouse=True)
def _library() -> Iterator[None]:
    with library():
        yield


async def load(home: Path, batch_size: int = 16, **settings: Any) -> Reranker:
    """Load one model with these settings."""
    given = {"models": [{"model": "ce", **settings}], "threads": 1, "batch_size": batch_size}
    return await create("l", CrossEncoderConfig.model_validate(given), home).reranker("ce")


async def scores(reranker: Reranker, texts: list[str]) -> dict[str, tuple[float, float]]:
    """Return number and score by chunk_id, best first."""
    hits = [
        Hit(Chunk(chunk_id=f"{i}", content=t), 0.5, Explanation({})) for i, t in enumerate(texts)
    ]
    found = await reranker.rerank("where is the red barn", hits, len(hits))
    return {h.chunk.chunk_id: (float(h.explanation.rerank["model_score"]), h.score) for h in found}


async def test_it_orders_by_the_models_number(tmp_path: Path) -> None:
    """Best first; the score is the logit's sigmoid; batches of two give what one batch gives.

    If this fails: rows are mixed up, padding counts, or the library's own activation came before.
    """
    path = cross_encoder_folder(tmp_path / "ce")
    found = await scores(await load(tmp_path, path=path), TEXTS)
    raws = [raw for raw, _ in found.values()]
    assert raws == sorted(raws, reverse=True)
    assert len({round(raw, 3) for raw in raws}) >= 3
    assert max(raws) > 1 or min(raws) < 0, "logits, no scores"
    for raw, score in found.values():
        assert score == pytest.approx(1 / (1 + math.exp(-raw)))
    in_twos = await scores(await load(tmp_path, batch_size=2, path=path), TEXTS)
    assert list(in_twos) == list(found)
    for chunk_id, (raw, _) in found.items():
        assert in_twos[chunk_id][0] == pytest.approx(raw, abs=1e-4)


async def test_what_is_no_cross_encoder_is_refused(tmp_path: Path) -> None:
    """Two numbers for a text, a folder without a file, another digest: refused at once."""
    with pytest.raises(ConfigError, match="gives 2 numbers"):
        await load(tmp_path, path=cross_encoder_folder(tmp_path / "two", labels=2))
    path = cross_encoder_folder(tmp_path / "ce")
    with pytest.raises(ConfigError, match="expected " + "0" * 64):
        await load(tmp_path, path=path, sha256={"config.json": "0" * 64})
    (path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"has no file 'tokenizer\.json'"):
        await load(tmp_path, path=path)


async def test_a_missing_folder_shows_in_the_health(tmp_path: Path) -> None:
    """Seen before a query asks for the model."""
    given = {"models": [{"model": "ce", "path": str(tmp_path / "none")}]}
    provider = create("l", CrossEncoderConfig.model_validate(given), tmp_path)
    assert (await provider.health()).status == "Error"
    with pytest.raises(ValidationError, match="give either path, or revision"):
        CrossEncoderConfig.model_validate({"models": [{"model": "ce"}]})
