"""`corral query` and `corral ask`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from corral.server.cli import display
from corral.server.cli.failures import JSON, CommandError
from corral.server.cli.options import MODES, Target, named_option, number_or_auto, typed

if TYPE_CHECKING:
    from corral.server.cli.client import Client

NO_BUDGET = 1_000_000
"""The largest budget that the server accepts, so that no hit is dropped for lack of space."""

# Literals, because importing the enumerations would slow down the start; a test compares them.
CUTOFFS = click.Choice(["none", "gap"])
SYNTAXES = click.Choice(["plain", "web"])
SHARE = click.FloatRange(0, 1)


@click.command()
@click.argument("db")
@click.argument("text", default="")
@click.option("--mode", type=MODES, help="Search mode. [default: DB's own]")
@click.option(
    "--k",
    default="5",
    show_default=True,
    help="Number of hits, or auto: the square root of the number of chunks.",
)
@click.option("--ranker", help="Fusion: rrf, weighted, max, or JSON. [default: DB's own]")
@click.option("--rerank", help="Re-ranking: mmr, bm25, none, or JSON. [default: DB's own]")
@click.option(
    "--cutoff",
    type=CUTOFFS,
    help="Where to cut off the hits; gap: before the largest drop in score.",
)
@click.option("--query-syntax", type=SYNTAXES, help='Query syntax; web: "exact phrase", -excluded.')
@click.option("--fuzzy", is_flag=True, default=None, help="Also match misspelled words.")
@click.option(
    "--also", "queries", multiple=True, help="Another wording of the question; repeatable."
)
@click.option(
    "-o",
    "--option",
    "others",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other query_config field, such as order=edges or expand=1; repeatable.",
)
@click.option(
    "--max-tokens", type=click.IntRange(1), help="Assemble a context within this many tokens."
)
@click.option("--threshold", type=SHARE, default=0.0, show_default=True, help="Minimum score.")
@click.option("--min-confidence", type=SHARE, help="Minimum confidence. [default: DB's own]")
@click.option("--explain", is_flag=True, help="Explain the score of each hit.")
@click.option("--json", "as_json", is_flag=True, help="Print the raw reply of the RAG tool.")
@click.pass_obj
def query(
    target: Target,
    /,
    db: str,
    text: str,
    k: str,
    ranker: str | None,
    rerank: str | None,
    others: tuple[str, ...],
    max_tokens: int | None,
    threshold: float,
    explain: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Search a vector DB and show the hits.

    Without TEXT, -o filters='{...}' lists the chunks that pass the filter; -o order_by='{"key":
    "date"}' orders them by a metadata field.

    With --max-tokens, also shows the assembled context, and only the hits that fit into it. Every
    option is a field of the RAG tool's query_config; see docs/retrieval.md and docs/context.md.
    """
    config: dict[str, Any] = {n: value for n, value in options.items() if value not in (None, ())}
    config |= {"max_chunks": number_or_auto(k), "score_threshold": threshold}
    if max_tokens is not None:
        config["max_tokens_in_context"] = max_tokens
    kinds = {"ranker": ranker, "rerank": rerank}
    config |= {name: typed(value) for name, value in kinds.items() if value}
    config |= dict(map(named_option, others))
    target.run(_query, db, text, config, explain, as_json)


async def _query(
    client: Client, db: str, text: str, options: JSON, explain: bool, as_json: bool
) -> None:
    config = {"max_tokens_in_context": NO_BUDGET, **options, "explain": True}
    reply = await client.ask(db, text, config)
    if as_json:
        display.show_json(reply)
    else:
        display.show_reply(reply, with_context="max_tokens_in_context" in options, explain=explain)


@click.command()
@click.argument("db")
@click.argument("question")
@click.option("--model", help="Language model. [default: answers.model, else the first]")
@click.option("--json", "as_json", is_flag=True, help="Print the response as JSON.")
@click.pass_obj
def ask(target: Target, /, db: str, question: str, model: str | None, as_json: bool) -> None:
    """Answer a question from a vector DB, with numbered sources.

    Several vector DBs: A+B. Without a language model in run.yaml, the answer quotes the sources.
    """
    target.run(_ask, db, question, model, as_json)


async def _ask(client: Client, db: str, question: str, model: str | None, as_json: bool) -> None:
    registered = {each["identifier"] for each in await client.vector_dbs()}
    names = [db] if db in registered else db.split("+")
    for name in set(names) - registered:
        await client.vector_db(name)  # raises the error for an unknown one
    body: JSON = {"model": f"corral/{db}", "input": question, "store": False}
    if model is not None:
        tool = {"type": "file_search", "vector_store_ids": names}
        body |= {"model": model, "tools": [tool], "tool_choice": {"type": "file_search"}}
    write = (lambda _: None) if as_json else partial(click.echo, nl=False)
    response = await write_answer(client, body, write)
    if as_json:
        display.show_json(response)
    else:
        click.echo()


async def write_answer(client: Client, body: JSON, write: Callable[[str], None]) -> JSON:
    """Write an answer as it streams, with the numbers of its sources, then the sources.

    Args:
        write: Called with each piece of text.

    Returns:
        The response.

    Raises:
        CommandError: The model or the search failed.
    """
    from corral.api.document_names import shown_place

    sources: dict[tuple[str, str], JSON] = {}
    event: JSON = {}
    async for event in client.answer(body):
        if event["type"] == "response.output_text.delta":
            write("\n".join(map(display.clean, str(event["delta"]).split("\n"))))
        elif event["type"] == "response.output_text.annotation.added":
            citation = event["annotation"]
            key = citation["vector_store_id"], citation["chunk_id"]
            sources.setdefault(key, citation)
            write(f" [{list(sources).index(key) + 1}]")
    response: JSON = event.get("response") or {}
    if response.get("status") == "failed":
        raise CommandError(str((response.get("error") or {}).get("message")))
    write("\n" if sources else "")
    for number, citation in enumerate(sources.values(), 1):
        shown = ", ".join(filter(None, (citation["filename"], shown_place(citation))))
        write(f"\n[{number}] {display.clean(shown)}")
    return response
