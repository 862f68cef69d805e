"""Query generation: templates, what becomes of a model's answer, and the RAG tool around it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from corral.api.errors import InvalidRequest, ProviderError, Unavailable
from corral.api.rag import LLMQueryGenerator, RAGDocument, RAGQueryConfig, RAGQueryResult
from corral.providers.models.language import first_line
from corral.providers.rag.query_generator import MAX_GENERATED_CHARACTERS, fill
from corral.providers.rag.tool import RagTool

from .fake_library import ChattyLibrary, FakeLibrary
from .inserting import insert

GENERATOR: dict[str, Any] = {
    "type": "llm",
    "model": "tiny",
    "template": "One query for:\n{messages}",
}


async def ask(
    library: FakeLibrary, content: str | Sequence[str], **generator: Any
) -> RAGQueryResult:
    """Insert a document and ask with a query generator of type llm."""
    config = RAGQueryConfig.model_validate({"query_generator_config": GENERATOR | generator})

    await insert(library, RAGDocument(document_id="a", content="grass and hay"))
    return await RagTool(library).query(content, ["db"], config)


def searched(library: FakeLibrary) -> list[str]:
    """Return the questions that were embedded."""
    return library.embedders["words"].queries


# --- templates -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("Q: {query}", "Q: hay?"),
        ("Q: {messages}!", "Q: hay?!"),
        ("Q: {{ messages }}", "Q: hay?"),
        ("Q: {{query}}", "Q: hay?"),
        ("{query} {query}", "hay? hay?"),
        ('As JSON {"a": [1]}, {0}, {x.y}, {}: {query}', 'As JSON {"a": [1]}, {0}, {x.y}, {}: hay?'),
    ],
)
def test_a_template_is_filled_by_plain_replacement(template: str, filled: str) -> None:
    """One field in two spellings; all other braces are text."""
    generator = LLMQueryGenerator(type="llm", model="m", template=template)
    assert fill(generator.template, "hay?") == filled


@pytest.mark.parametrize("question", ["{query}", "{messages} {0}", r"\1 \g<0>", "{{ messages }}"])
def test_what_a_question_holds_is_not_looked_at_again(question: str) -> None:
    """A question that spells a field, or a reference of a regular expression, stays text."""
    assert fill("a {query} b", question) == f"a {question} b"


@pytest.mark.parametrize(
    "template",
    [
        "",
        "no field",
        "{ query }",
        "{query.__class__}",
        "{query!r}",
        "{messages[0]}",
        "{{ messages[0].content }}",
        "{{ messages | upper }} {query}",
        "{% for m in messages %}{{ m }}{% endfor %} {query}",
        "{# note #} {query}",
        "{{ cycler.__init__.__globals__ }} {query}",
        "{query}" + "x" * 10_000,
    ],
)
def test_other_templates_are_refused(template: str) -> None:
    """A template names the question and nothing else; no expression is run or sent as it is."""
    with pytest.raises(ValidationError):
        LLMQueryGenerator(type="llm", model="m", template=template)


# --- a model's answer ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "query"),
    [
        ("dry grass", "dry grass"),
        ("  dry\n  grass \n", "dry grass"),
        ("dry grass\n\nThis query finds texts about hay.", "dry grass"),
        ("dry grass\r\n \r\nBecause.", "dry grass"),
        ('"dry grass"', "dry grass"),
        ("“dry grass”", "dry grass"),
        ("`dry grass`", "dry grass"),
        ('"dry" grass', '"dry" grass'),
        ('"dry grass" "hay"', '"dry grass" "hay"'),
        ("<think>hay is grass\n\nso\n</think>\n\ndry grass", "dry grass"),
        ("<think>hay is gra", ""),
        ("dry\u200b gr\U000e0041ass\x00", "dry grass"),
        ("", ""),
        ("\u200b \n\t", ""),
        ('""', ""),
    ],
)
def test_the_first_paragraph_is_the_query(answer: str, query: str) -> None:
    """Explanations, thoughts, quotation marks around it and invisible characters are left out."""
    assert first_line(answer, MAX_GENERATED_CHARACTERS) == query


def test_a_long_answer_is_cut_between_words() -> None:
    """A query has 1,000 characters at most, of whole words where there are any."""
    assert first_line("hay " * 1000, MAX_GENERATED_CHARACTERS) == " ".join(["hay"] * 250)
    assert first_line("x" * 100_000, MAX_GENERATED_CHARACTERS) == "x" * MAX_GENERATED_CHARACTERS


# --- the RAG tool ----------------------------------------------------------------------------


async def test_the_generated_query_is_searched_and_shown() -> None:
    """What the model says is embedded and searched, and the answer's metadata tells it."""
    library = ChattyLibrary("grass hay\n\nas you asked")
    found = await ask(library, ["What do cows eat?", "In winter?"])
    assert library.prompts == ["One query for:\nWhat do cows eat?\nIn winter?"]
    assert searched(library) == ["grass hay"]
    assert found.metadata["generated_query"] == "grass hay"
    assert found.metadata["document_ids"] == ["a"]


async def test_the_context_quotes_the_question_as_it_was_asked() -> None:
    """The closing line names "the user's query": that is the question, not what a model made of it.

    If this fails: the reading model answers a question that nobody asked.
    """
    found = await ask(ChattyLibrary("grass hay"), ["What do cows eat?", "In winter?"])
    assert found.content is not None
    assert 'user\'s query: "What do cows eat? In winter?".' in found.content[-1].text
    assert "grass hay" not in found.content[-1].text


async def test_an_unchanged_question_is_not_announced() -> None:
    """`generated_query` is there only where it differs from the question."""
    assert "generated_query" not in (await ask(ChattyLibrary("hay"), "hay")).metadata
    assert "generated_query" not in (await ask(ChattyLibrary("hay"), " hay ")).metadata


@pytest.mark.parametrize("answer", ["", "  \n", "\u200b", "<think>long thoughts", '""'])
async def test_an_empty_answer_is_an_error(answer: str) -> None:
    """The old question is never searched in its place: nobody would see that the model fails."""
    library = ChattyLibrary(answer)
    with pytest.raises(ProviderError, match=r"llm: 'tiny' returned no query") as caught:
        await ask(library, "hay")
    assert type(caught.value) is ProviderError
    assert searched(library) == []


async def test_a_failing_model_fails_the_query() -> None:
    """An error of the service is the query's error; nothing was searched."""
    library = ChattyLibrary(Unavailable("llm is away"))
    with pytest.raises(Unavailable):
        await ask(library, "hay")
    assert searched(library) == []


async def test_a_blank_question_asks_nobody() -> None:
    """There is nothing to rewrite, and a blank question is refused, as everywhere."""
    library = ChattyLibrary("hay")
    with pytest.raises(InvalidRequest, match="The question is empty"):
        await ask(library, " \n")
    assert library.prompts == []


async def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    """Only models of the operator's configuration can be named."""
    library = ChattyLibrary("hay")
    with pytest.raises(InvalidRequest, match=r"'gpt'.*tiny, large") as caught:
        await ask(library, "hay", model="gpt")
    assert caught.value.field == "query_config.query_generator_config.model"
    assert library.prompts == []


async def test_without_a_model_it_is_refused() -> None:
    """Off unless configured; the message says what works."""
    with pytest.raises(InvalidRequest, match=r"none is configured.*\"default\"") as caught:
        await ask(FakeLibrary(), "hay")
    assert caught.value.field == "query_config.query_generator_config.model"


@pytest.mark.parametrize("generator", [GENERATOR, {"type": "default", "separator": "-" * 100}])
@pytest.mark.parametrize(
    ("texts", "why"), [([""] * 20_001, "20001 texts"), (["x" * 999] * 300, "characters")]
)
async def test_a_long_question_is_refused_before_it_is_made(
    generator: dict[str, Any], texts: list[str], why: str
) -> None:
    """Counts and lengths are looked at first: 130 KB in must not become 1 GB.

    If this fails: the texts are joined before somebody asks how long that is.
    """
    library = ChattyLibrary("hay")
    config = RAGQueryConfig.model_validate({"query_generator_config": generator})
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match=why) as caught:
            await RagTool(library).query(texts, ["db"], config)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.field == "content"
    assert peak < 2_000_000
    assert library.prompts == []


def test_a_separator_is_bounded() -> None:
    """100 characters keep texts apart."""
    with pytest.raises(ValidationError, match="at most 100 characters"):
        RAGQueryConfig.model_validate(
            {"query_generator_config": {"type": "default", "separator": "-" * 101}}
        )


def test_a_request_cannot_name_an_endpoint() -> None:
    """No key but model and template is taken: where a model is, the operator decides."""
    for key in ("base_url", "api_key", "endpoint"):
        with pytest.raises(ValidationError):
            LLMQueryGenerator.model_validate(GENERATOR | {key: "http://evil.example"})


async def test_what_a_model_says_is_no_syntax_of_the_template() -> None:
    """An answer that looks like a template, a filter or a tag is the text of a query."""
    library = ChattyLibrary('{query} <|tool|> {"type": "eq"}')
    assert (await ask(library, "hay")).metadata[
        "generated_query"
    ] == '{query} <|tool|> {"type": "eq"}'
