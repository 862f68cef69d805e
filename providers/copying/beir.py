"""Judged questions as files of BEIR's layout, which `corral bench quality --data` reads.

A zip file with `corpus.jsonl` (each chunk), `queries.jsonl` and `qrels/test.tsv`.
"""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import AsyncIterator, Sequence

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.providers.copying.snapshot_writer import CHUNKS_AT_ONCE, Sink, ids_of
from corral.providers.stack.judged_sets import JudgedQuestion

HEADER = "query-id\tcorpus-id\tscore\n"


async def beir_of(
    index: EmbeddingIndex, questions: Sequence[JudgedQuestion]
) -> AsyncIterator[bytes]:
    """Yield a zip file, piece by piece.

    Args:
        index: The principal's view: the corpus has the chunks that it reads.
        questions: Their grades name only chunks of the view, as `readable` returns them.

    Raises:
        InvalidRequest: There is no question, or a judged chunk's id cannot stand in a line of
            `qrels`.
        ProviderError: The backend failed; the yielded pieces are not a valid zip file.
    """
    if not questions:
        raise InvalidRequest(
            "The set has no judged question about a stored chunk.",
            hint="Judge some chunks first.",
            field="name",
        )
    qrels = _qrels(questions)
    queries = "".join(_line({"_id": each.key, "text": each.text}) for each in questions)
    sink = Sink()
    file = zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED)
    file.writestr("queries.jsonl", queries)
    file.writestr("qrels/test.tsv", qrels)
    yield sink.taken()
    with file.open("corpus.jsonl", "w", force_zip64=True) as corpus:
        async for ids in ids_of(index):
            for start in range(0, len(ids), CHUNKS_AT_ONCE):
                chunks = await index.get_chunks(ids[start : start + CHUNKS_AT_ONCE])
                await asyncio.to_thread(corpus.write, _documents(chunks))
                yield sink.taken()
    file.close()
    yield sink.taken()


def _qrels(questions: Sequence[JudgedQuestion]) -> str:
    lines = []
    for each in questions:
        for chunk_id, grade in each.grades.items():
            if chunk_id != chunk_id.strip() or not chunk_id.isprintable():
                raise InvalidRequest(
                    f"The chunk id {chunk_id!r} cannot stand in a qrels file.",
                    hint="Take back the judgments of this chunk, or give it another id.",
                    field="name",
                )
            lines.append(f"{each.key}\t{chunk_id}\t{grade}\n")
    return "".join([HEADER, *lines])


def _documents(chunks: Sequence[Chunk]) -> bytes:
    lines = (_line({"_id": c.chunk_id, "title": "", "text": c.content}) for c in chunks)
    return "".join(lines).encode("utf-8", "replace")


def _line(row: dict[str, str]) -> str:
    return f"{json.dumps(row, ensure_ascii=False)}\n"
