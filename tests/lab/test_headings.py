"""The comparison of headings runs, and sections of docs/ answer its questions."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from corral.api.vector_dbs import VectorDBRegistration
from corral.bench.scratch import scratch_stack
from corral.providers.base.config import RunConfig
from lab.headings import MODEL, QUESTIONS, VARIANTS, documents, main

from ..bench.judged_files import write_beir

ROOT = Path(__file__).parents[2]


def test_titles_are_read_only_where_a_variant_has_them(tmp_path: Path) -> None:
    """A question of the title's words alone finds its document where keywords read the title.

    If this fails: the figures of docs/benchmarks.md compare something else than they say.
    """
    corpus = [
        {"_id": "d1", "title": "Sheep", "text": "they graze on the hill"},
        {"_id": "d2", "title": "Engines", "text": "they need oil"},
    ]
    folder = write_beir(
        tmp_path,
        corpus=corpus,
        queries=[{"_id": "q1", "text": "sheep"}],
        qrels=["query-id\tcorpus-id\tscore", "q1\td1\t1"],
    )
    done = CliRunner().invoke(main, [str(folder)])
    assert done.exit_code == 0, done.output
    rows = [re.split(r"\s*\|\s*", line)[2:-1] for line in done.stdout.splitlines()[2:]]
    keyword = {name: float(keyword) for name, _vector, keyword, _hybrid in rows}
    assert keyword == {"neither": 0.0, "keywords": 1.0, "embedded": 0.0, "both": 1.0}
    assert list(keyword) == list(VARIANTS)


async def test_a_section_answers_each_question() -> None:
    """Each question about these documents names a heading that is there.

    If this fails: a heading of docs/ has another name now; give it to its question too.
    """
    async with scratch_stack(RunConfig()) as stack:
        db = await stack.register(VectorDBRegistration(vector_db_id="own", embedding_model=MODEL))
        judged = documents(ROOT, db, await stack.embedder(MODEL))
    assert len(judged.relevant) == len(QUESTIONS)
    assert all(judged.relevant.values())
