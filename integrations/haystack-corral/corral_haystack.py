"""Corral in Haystack: a document store and a retriever.

Corral embeds texts and questions itself, with the model of the vector DB: embeddings of documents
are not stored. Metadata is stored as it is; `id`, `content` and `score` are Corral's own.
"""

from __future__ import annotations

from typing import Any

from corral_client import CorralClient, FoundChunk
from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.utils import Secret, deserialize_secrets_inplace
from haystack.utils.filters import document_matches_filter

Filters = dict[str, Any]


class CorralDocumentStore:
    """A vector DB of Corral.

    Args:
        vector_db_id: Which vector DB; it is registered if it is new.
        url: A server's address; None takes the default.
        api_key: The server's API key.
        home: A data folder to work on in this process, instead of a server.
        registration: Fields of its registration, such as search_mode or language.
        client: An open client, instead of the three above; it cannot be serialized.
    """

    def __init__(
        self,
        vector_db_id: str,
        *,
        url: str | None = None,
        api_key: Secret | None = None,
        home: str | None = None,
        registration: dict[str, Any] | None = None,
        client: CorralClient | None = None,
    ) -> None:
        self.vector_db_id = vector_db_id
        self._settings = {"url": url, "home": home, "registration": registration}
        self._api_key = api_key
        key = api_key.resolve_value() if api_key else None
        self.client = client or CorralClient(url, api_key=key, home=home)
        if registration or not self.client.is_registered(vector_db_id):
            self.client.register(vector_db_id, **(registration or {}))

    def to_dict(self) -> dict[str, Any]:
        """Return the store as JSON."""
        key = self._api_key.to_dict() if self._api_key else None
        settings = {"vector_db_id": self.vector_db_id, "api_key": key, **self._settings}
        made: dict[str, Any] = default_to_dict(self, **settings)
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CorralDocumentStore:
        """Return the store that JSON says."""
        deserialize_secrets_inplace(data["init_parameters"], ["api_key"])
        made: CorralDocumentStore = default_from_dict(cls, data)
        return made

    def count_documents(self) -> int:
        """Return the number of documents."""
        return sum(1 for _ in self.client.all(self.vector_db_id))

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Return the documents that pass, by id; every one of the store is looked at.

        Raises:
            FilterError: The filter is malformed.
        """
        _check(filters)
        found = [document_of(each) for each in self.client.all(self.vector_db_id)]
        return [each for each in found if not filters or document_matches_filter(filters, each)]

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Store documents and return how many were written.

        Raises:
            ValueError: What is given is no document, or has no text.
            DuplicateDocumentError: One is stored already; only where the policy says neither
                SKIP nor OVERWRITE.
        """
        if not all(isinstance(each, Document) for each in documents):
            raise ValueError("write_documents takes a list of Document objects")
        if not all(each.content for each in documents):
            raise ValueError("Corral stores texts; a document without content cannot be found")
        wanted = {each.id: each for each in documents}
        if policy is not DuplicatePolicy.OVERWRITE:
            known = [each.chunk_id for each in self.client.get(self.vector_db_id, list(wanted))]
            if known and policy is not DuplicatePolicy.SKIP:
                raise DuplicateDocumentError(f"ID '{known[0]}' already exists.")
            for name in known:
                del wanted[name]
        chunks = [
            {"chunk_id": each.id, "content": each.content, "metadata": each.meta}
            for each in wanted.values()
        ]
        self.client.insert(self.vector_db_id, chunks)
        return len(chunks)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id; unknown ids are passed over."""
        self.client.delete(self.vector_db_id, document_ids)

    def search(
        self, query: str, *, filters: Filters | None = None, top_k: int = 10, **options: Any
    ) -> list[Document]:
        """Return the best documents with their scores, in [0, 1].

        Raises:
            FilterError: The filter is malformed, or cannot be searched by.
        """
        asked = as_corral(filters) if filters else None
        found = self.client.query(self.vector_db_id, query, k=top_k, filters=asked, **options)
        return [document_of(each) for each in found]


@component
class CorralRetriever:
    """Retrieves from a `CorralDocumentStore`.

    Args:
        document_store: Where.
        filters: Used unless a run brings its own.
        top_k: Most documents.
        options: Other fields of Corral's query, such as mode or rerank.
    """

    def __init__(
        self,
        document_store: CorralDocumentStore,
        *,
        filters: Filters | None = None,
        top_k: int = 10,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k
        self.options = options or {}

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: Filters | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the best documents for a question."""
        chosen = self.filters if filters is None else filters
        wanted = self.top_k if top_k is None else top_k
        found = self.document_store.search(query, filters=chosen, top_k=wanted, **self.options)
        return {"documents": found}

    def to_dict(self) -> dict[str, Any]:
        """Return the component as JSON."""
        made: dict[str, Any] = default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            options=self.options,
        )
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CorralRetriever:
        """Return the component that JSON says."""
        parameters = data["init_parameters"]
        store = CorralDocumentStore.from_dict(parameters["document_store"])
        parameters["document_store"] = store
        made: CorralRetriever = default_from_dict(cls, data)
        return made


def document_of(chunk: FoundChunk) -> Document:
    """Return a chunk as a document."""
    return Document(
        id=chunk.chunk_id, content=chunk.content, meta=chunk.metadata, score=chunk.score
    )


_TYPES = {
    "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "in": "in",
    "not in": "nin",
}  # fmt: skip
_NEGATED = {"==": "!=", "!=": "==", "in": "not in", "not in": "in"}


def as_corral(filters: Filters) -> Filters:
    """Return a filter of Haystack as one of Corral, which searches by it.

    Raises:
        FilterError: It is malformed, asks for `id` or `content`, compares with null, or negates an
            order.
    """
    if "field" in filters:
        return _comparison(filters)
    operator, conditions = filters.get("operator"), filters.get("conditions")
    if operator not in ("AND", "OR", "NOT") or not isinstance(conditions, list):
        raise FilterError("a filter has a field, or AND, OR or NOT and a list of conditions")
    if operator == "NOT":
        return as_corral({"operator": "OR", "conditions": [_not(each) for each in conditions]})
    return {"type": operator.lower(), "filters": [as_corral(each) for each in conditions]}


def _comparison(filters: Filters) -> Filters:
    key, sign = str(filters["field"]).removeprefix("meta."), filters.get("operator")
    if sign not in _TYPES or "value" not in filters:
        raise FilterError(f"a comparison has a value and one of {', '.join(_TYPES)}")
    if key in ("id", "content") or filters["value"] is None:
        raise FilterError("Corral searches by metadata, and by values that are not null")
    if "." in key:
        raise FilterError(f"Corral searches by the keys of meta, not within their values: {key}")
    return {"type": _TYPES[sign], "key": key, "value": filters["value"]}


def _not(filters: Filters) -> Filters:
    """Return the opposite of a filter."""
    if "field" in filters:
        sign = filters.get("operator")
        if sign not in _NEGATED:
            raise FilterError(f"NOT of {sign} also means documents without the field; name them")
        return {**filters, "operator": _NEGATED[sign]}
    conditions = filters.get("conditions", [])
    if filters.get("operator") == "NOT":
        return {"operator": "AND", "conditions": conditions}
    other = "OR" if filters.get("operator") == "AND" else "AND"
    return {"operator": other, "conditions": [_not(each) for each in conditions]}


def _check(filters: Filters | None) -> None:
    if filters and "operator" not in filters and "conditions" not in filters:
        raise FilterError("a filter has an operator, and conditions or a field")
