"""`corral query`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from corral.server.cli import display
from corral.server.cli.failures import JSON
from corral.server.cli.options import MODES, Target, named_option, number_or_auto, typed

if TYPE_CHECKING:
    from corral.server.cli.client import Client

NO_BUDGET = 1_000_000
"""The largest budget that the wire takes: no hit is dropped for want of room."""

# Literals, because the enumerations behind them cost start-up time; a test holds them equal.
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
