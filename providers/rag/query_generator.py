"""The query of a question: the question itself, or a language model's rewriting of it.

The model's answer is data: it becomes the text of a query and nothing else. An empty answer is an
error, since silently searching the question would hide that the model does not work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corral.api.checks import MAX_QUERY_CHARACTERS, check_query_text
from corral.api.errors import InvalidRequest, ProviderError
from corral.api.rag import QUERY_TEMPLATE_FIELD, LLMQueryGenerator
from corral.providers.models.language import first_line, serving

MAX_GENERATED_CHARACTERS = 1000
"""Maximum length of a generated query; a longer one is cut between words."""

MAX_TEXTS = 1000
"""Maximum number of texts of one question."""

_FIELD = "query_config.query_generator_config.model"
_WITHOUT = 'Use query_generator_config {"type": "default"}: the question as it is.'


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the query that is searched.

    Attributes:
        text: The question; several texts are joined.
        query: The question, or a language model's rewriting of it.
    """

    text: str
    query: str

    @property
    def generated(self) -> str | None:
        """The query if it differs from the question, else None."""
        same = self.query in (self.text, self.text.strip())
        return None if same else self.query


def plain_question(content: str | Sequence[str], separator: str) -> Question:
    """Return a question that is searched unchanged.

    Raises:
        InvalidRequest: See `joined`.
    """
    question = joined([content] if isinstance(content, str) else content, separator)
    return Question(question, question)


async def generate_query(
    content: str | Sequence[str], generator: LLMQueryGenerator, library: object
) -> Question:
    """Return a question with the query that a language model writes for it.

    Args:
        content: The question; several texts are joined by line breaks. A blank question is not
            sent to the model.
        generator: The model and its template.
        library: Looks up the model if it implements `LanguageModels`, as `Stack` does.

    Raises:
        InvalidRequest: The model is not configured, or the question is too long.
        Unavailable, ProviderTimeout: The model cannot be reached, or does not answer in time.
        ProviderError: The model refused the request, or its answer has no query.
    """
    texts = [content] if isinstance(content, str) else content
    provider_id, models = serving(library, generator.model, _FIELD, _WITHOUT)
    question = check_query_text(joined(texts, "\n"))
    if not question.strip():
        return Question(question, question)
    answer = await models.complete(generator.model, fill(generator.template, question))
    query = first_line(answer, MAX_GENERATED_CHARACTERS)
    if not query:
        raise ProviderError(
            f"{provider_id}: {generator.model!r} returned no query.",
            hint="Check the template; a reasoning model needs more max_output_tokens.",
        )
    return Question(question, query)


def joined(texts: Sequence[str], separator: str) -> str:
    """Join the texts of a question. The length is checked before the texts are joined.

    Raises:
        InvalidRequest: There are more than `MAX_TEXTS` texts, or the question is longer than
            `MAX_QUERY_CHARACTERS`.
    """
    if len(texts) > MAX_TEXTS:
        raise InvalidRequest(
            f"The question has {len(texts)} texts.",
            hint=f"Send at most {MAX_TEXTS}.",
            field="content",
        )
    length = sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0)
    if length > MAX_QUERY_CHARACTERS:
        raise InvalidRequest(
            f"The question has {length} characters, separators included.",
            hint=f"Send at most {MAX_QUERY_CHARACTERS}.",
            field="content",
        )
    return separator.join(texts)


def fill(template: str, question: str) -> str:
    """Return the template with its field replaced by the question.

    There is one pass, so a field that appears in the question stays as it is.
    """
    return QUERY_TEMPLATE_FIELD.sub(lambda _: question, template)
