"""DSPy's retriever over Corral."""

from __future__ import annotations

import copy

import dspy
from corral_client import CorralClient
from dspy_corral import CorralRM


def test_passages_of_questions(client: CorralClient, vector_db_id: str) -> None:
    """A question, or several, over two vector DBs: texts best first, each once."""
    other = f"{vector_db_id}-other"
    for name in (vector_db_id, other):
        client.register(name)
    fence, hay = "A fence keeps the cattle in.", "Hay is stored in the barn."
    client.insert(vector_db_id, [{"content": fence, "chunk_id": "a"}])
    client.insert(other, [{"content": hay, "chunk_id": "b"}])
    retrieve = CorralRM(client, [vector_db_id, other], k=2)
    found = retrieve("what keeps cattle in?")
    assert found.passages == [fence, hay]
    assert found.chunk_ids == ["a", "b"]
    assert found.scores == sorted(found.scores, reverse=True)
    assert retrieve(["cattle fence", "hay barn"], k=1, mode="keyword").passages[0] in (fence, hay)


def test_as_the_retriever_of_dspy(client: CorralClient, vector_db_id: str) -> None:
    """`dspy.Retrieve` asks the configured one; equal ids of two vector DBs are two passages.

    If this fails: the documented line ends in an AttributeError, or a passage cannot be copied.
    """
    other = f"{vector_db_id}-other"
    for name, text in ((vector_db_id, "A fence keeps cattle in."), (other, "A fence is a fence.")):
        client.register(name)
        client.insert(name, [{"content": text, "chunk_id": "1"}])
    with dspy.context(rm=CorralRM(client, [vector_db_id, other])):
        found = dspy.Retrieve(k=2)("what keeps cattle in?")
    assert sorted(found.passages) == ["A fence is a fence.", "A fence keeps cattle in."]
    passages = list(CorralRM(client, [vector_db_id])("what keeps cattle in?", k=1))
    assert copy.deepcopy(passages) == passages
    assert not hasattr(passages[0], "title")


class Answer(dspy.Module):  # type: ignore[misc]  # DSPy has no types, so the base is Any
    """A module that retrieves, as programs of DSPy do."""

    def __init__(self, retrieve: CorralRM) -> None:
        super().__init__()
        self.retrieve = retrieve

    def forward(self, question: str) -> dspy.Prediction:
        """Return the passages as the answer."""
        return dspy.Prediction(answer=self.retrieve(question).passages[0])


def test_in_a_module(client: CorralClient, vector_db_id: str) -> None:
    """A program retrieves with it like with any retriever of DSPy."""
    client.register(vector_db_id)
    client.insert(vector_db_id, [{"content": "A fence keeps the cattle in.", "chunk_id": "a"}])
    program = Answer(CorralRM(client, [vector_db_id]))
    assert program("cattle?").answer == "A fence keeps the cattle in."
