"""What `fuzzy` adds to keyword search for questions with typos.

    python -m lab.typos data/scifact data/hotpotqa-100 data/xquad-de

A typo replaces, drops or adds a letter, or swaps two adjacent ones, in a word of four or more
letters.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.data.embedded import contents_of
from corral.bench.data.judged import JudgedSet, language_of
from corral.bench.data.readers import read_beir
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.scratch import HASHING, hashing, scratch_stack, store
from corral.providers.base.config import Providers, RunConfig

K = 10
SHARES = {"no word": 0.0, "a third of the words": 1 / 3, "every word": 1.0}
_WORD = re.compile(r"[^\W\d_]{4,}")


def mistyped(text: str, share: float, chance: random.Random) -> str:
    """Return a text with a typo in this share of its words of four or more letters."""

    def typo(match: re.Match[str]) -> str:
        word = match[0]
        if chance.random() >= share:
            return word
        at, letter = chance.randrange(len(word) - 1), chance.choice(word.lower())
        return chance.choice(
            (
                word[:at] + letter + word[at + 1 :],
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at:],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            )
        )

    return _WORD.sub(typo, text)


async def ndcg(judged: JudgedSet, seed: int) -> dict[str, tuple[float, float]]:
    """Return nDCG@10 of exact and of fuzzy keyword search, by share of words with a typo."""
    config = RunConfig(providers=Providers(embedding=[hashing(8)]), default_embedding_model=HASHING)
    async with scratch_stack(config) as stack:
        await stack.register(
            VectorDBRegistration(
                vector_db_id="db", embedding_model=HASHING, language=judged.language
            )
        )
        index = await stack.index("db")
        pairs = zip(judged.documents, contents_of(judged), strict=True)
        chunks = [Chunk(chunk_id=key, content=text) for key, text in pairs]
        await store(index, chunks, np.ones((len(chunks), 8), np.float32))
        means: dict[str, list[float]] = {}
        for name, share in SHARES.items():
            chance = random.Random(seed)
            asked = {key: mistyped(text, share, chance) for key, text in judged.queries.items()}
            for fuzzy in (False, True):
                run = {}
                for key, text in asked.items():
                    found = await index.query(None, text, K, mode=SearchMode.KEYWORD, fuzzy=fuzzy)
                    run[key] = [hit.chunk.chunk_id for hit in found.hits]
                mean = float(np.mean(list(measure(judged.qrels, run)[NDCG].values())))
                means.setdefault(name, []).append(mean)
    return {name: (exact, similar) for name, (exact, similar) in means.items()}


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--seed", default=0)
def main(folders: Sequence[Path], seed: int) -> None:
    """Print nDCG@10 of exact and fuzzy keyword search by set, as rows of a Markdown table."""
    sets = [
        asyncio.run(ndcg(read_beir(folder, language_of(folder.name, {})), seed))
        for folder in folders
    ]
    click.echo(f"| typos in | {' | | '.join(folder.name for folder in folders)} | |")
    click.echo(f"|---|{'---|' * (2 * len(folders))}")
    for name in SHARES:
        cells = " | ".join(f"{value:.3f}" for means in sets for value in means[name])
        click.echo(f"| {name} | {cells} |")


if __name__ == "__main__":
    main()
