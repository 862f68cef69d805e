"""Standard tests: for a principal, hidden chunks do not exist, whatever the query.

A provider has no code for this: an acl is metadata under a reserved key, and the scope of a
principal is a filter. A failure here also occurs with any list in metadata and any such filter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.documents import DocumentOrder, DocumentQuery
from corral.api.errors import Conflict, Forbidden, InvalidFilter, InvalidRequest
from corral.api.principal import ACL_KEY, MAX_ACL, Principal, Role
from corral.api.testing.indexes import Handle, Indexes, chunk, ids
from corral.api.testing.suite import Suite, needs

ANN = Principal("acme", "ann", frozenset({"sales"}), Role.WRITER)
BOB = Principal("acme", "bob", frozenset({"sales", "it's", "天气"}), Role.WRITER)
EVE = Principal("other", "eve", frozenset(), Role.READER)
PEOPLE = (ANN, BOB, EVE)

ACLS: dict[str, list[str] | None] = {
    "all": ["tenant:*"],
    "ann": ["user:ann"],
    "both": ["user:ann", "user:bob"],
    "default": None,
    "hostile": ["group:it's", "group:天气"],
    "nobody": [],
    "sales": ["group:sales"],
    "tenant": ["tenant:acme"],
    "unlike": ["user:an", "user:annn", "group:ann", "user:Ann", "group:sale"],
}
"""The acl of a chunk by its id."""
SEEN = {
    "ann": {"all", "ann", "both", "default", "sales", "tenant"},
    "bob": {"all", "both", "default", "hostile", "sales", "tenant"},
    "eve": {"all", "default"},
}
"""By user, the visible chunks of `ACLS` if the default acl is `tenant:*`."""
EVERY = {"type": "ne", "key": "never", "value": 0}
"""A filter that every chunk passes."""


def secret(chunk_id: str, acl: Sequence[str] | None, content: str = "", **metadata: Any) -> Chunk:
    """Return a chunk with an acl."""
    made = chunk(chunk_id, content or f"zebra {chunk_id}", **metadata)
    return made.model_copy(update={"acl": None if acl is None else sorted(acl)})


def filled(indexes: Indexes, **settings: Any) -> Handle:
    """Return an index with a chunk for each of `ACLS`, each in a document with the same id."""
    index = indexes.open(**settings)
    index.add([secret(name, acl, document_id=name) for name, acl in ACLS.items()])
    return index


class AclTests(Suite):
    """Acls, and the scope of a principal."""

    def found(self, index: Handle, k: int = 100, **options: Any) -> list[set[str]]:
        """Return the ids of the hits for the word zebra in each mode."""
        return [
            set(ids(index.search(mode, [1, 0], "zebra", k, **options)))
            for mode in self.capabilities.modes
        ]

    def finds(self, index: Handle, expected: Collection[str], **options: Any) -> bool:
        """Return True if every mode finds exactly these chunks."""
        return all(ids_of_mode == set(expected) for ids_of_mode in self.found(index, **options))

    def test_each_finds_what_its_tokens_open(self, indexes: Indexes) -> None:
        """A principal that holds a token of the acl finds the chunk; a similar token is no match.

        If this fails: `in` does not match the elements of a list in metadata.
        """
        index = filled(indexes)
        for who in PEOPLE:
            assert self.finds(index.scoped_to(who), SEEN[who.user]), who.user
        assert self.finds(index, ACLS)
        assert self.finds(index.scoped_to(Principal(role=Role.ADMIN)), ACLS)

    def test_chunks_without_an_acl_have_the_default(self, indexes: Indexes) -> None:
        """Only principals with a token of `default_acl` see them.

        If this fails: `ne` does not match chunks that lack the key.
        """
        index = filled(indexes, default_acl=["group:staff", "user:eve"])
        assert self.finds(index.scoped_to(ANN), SEEN["ann"] - {"default"})
        assert self.finds(index.scoped_to(EVE), {"all", "default"})

    def test_what_is_hidden_takes_no_place_among_the_best(self, indexes: Indexes) -> None:
        """60 hidden chunks with better scores leave no gap in the answer.

        If this fails: the engine filters the k best instead of taking the k best that pass.
        """
        index = indexes.open()
        hidden = [secret(f"h{n:02}", ["user:bob"], "zebra zebra") for n in range(60)]
        index.add(hidden)
        open_ = [secret(f"o{n}", ["user:ann"], "zebra in a long text") for n in range(4)]
        index.add(open_, [[1, 0.5]] * 4)
        for mode in self.capabilities.modes:
            response = index.scoped_to(ANN).search(mode, [1, 0], "zebra", 3)
            assert ids(response) == ["o0", "o1", "o2"], mode
            legs = [leg for hit in response.hits for leg in hit.explanation.legs.values()]
            assert {leg.rank for leg in legs} == {1}

    def test_a_word_that_only_hidden_chunks_hold_tells_nothing(self, indexes: Indexes) -> None:
        """Hits, scores and confidence are the same if a hidden chunk has another word instead.

        If this fails: a value in the answer depends on the word's frequency in hidden chunks.
        """
        answers = []
        for name, word in (("one", "okapi"), ("other", "quagga")):
            index = indexes.open(name)
            index.add([secret("h", ["user:bob"], f"{word} {word}")])
            index.add([secret(f"o{n}", None, "zebra in the grass") for n in range(3)])
            for mode in self.capabilities.modes:
                response = index.scoped_to(ANN).search(mode, [1, 0], "zebra okapi")
                answers.append((name, mode, ids(response), response.scores, response.confidence))
        half = len(answers) // 2
        assert [each[1:] for each in answers[:half]] == [each[1:] for each in answers[half:]]

    def test_a_filter_never_widens_the_scope(self, indexes: Indexes) -> None:
        """A user's filter only narrows the scope, even if it negates or has alternatives."""
        index = indexes.open()
        index.add([secret(f"{name}{n}", acl, n=n) for name, acl in ACLS.items() for n in (1, 2)])
        view = index.scoped_to(BOB)
        ones = {f"{name}1" for name in SEEN["bob"]}
        twos = {f"{name}2" for name in SEEN["bob"]}
        one = {"type": "eq", "key": "n", "value": 1}
        two = {"type": "ne", "key": "n", "value": 1}
        assert self.finds(view, ones, filters=one)
        assert self.finds(view, twos, filters=two)
        assert self.finds(view, ones | twos, filters={"type": "or", "filters": [one, two]})
        assert self.finds(view, (), filters={"type": "and", "filters": [one, two]})

    def test_what_is_hidden_is_as_what_is_missing(self, indexes: Indexes) -> None:
        """Ids, counts and documents cover exactly the scope, also over several pages.

        If this fails: an engine method that counts or lists with a filter ignores the filter.
        """
        index = filled(indexes)
        for who in PEOPLE:
            view, names = index.scoped_to(who), sorted(SEEN[who.user])
            assert [one.chunk_id for one in view.get(*ACLS)] == [n for n in ACLS if n in names]
            assert view.count() == len(names)
            assert view.chunk_ids() == names
            assert view.chunk_ids(names[0], 2) == names[1:3]
            assert view.chunk_ids(names[0], 2, EVERY) == names[1:3]
            assert view.documents() == dict.fromkeys(names, 1)
            page = view.document_page(DocumentQuery(order_by=DocumentOrder.ID, offset=1, limit=2))
            assert [one.document_id for one in page.items] == names[1:3]
            assert page.total == len(names)
            assert list(view.documents(names[0], 2)) == names[1:3]
            assert [view.chunk_ids_of(name) for name in ACLS] == [
                [name] if name in names else [] for name in ACLS
            ]
        assert index.count() == len(ACLS)

    def test_a_document_is_seen_as_far_as_its_chunks_are(self, indexes: Indexes) -> None:
        """A document with visible and hidden chunks counts and lists only the visible chunks."""
        index = indexes.open()
        parts = {"a": ["user:ann"], "b": ["user:bob"], "c": None}
        index.add([secret(name, acl, document_id="d") for name, acl in parts.items()])
        assert index.scoped_to(ANN).documents() == {"d": 2}
        for who, count in ((ANN, 2), (EVE, 1)):
            page = index.scoped_to(who).document_page(DocumentQuery())
            size = count * len("zebra a")
            assert [(one.chunks, one.size) for one in page.items] == [(count, size)]
        assert index.scoped_to(ANN).chunk_ids_of("d") == ["a", "c"]
        assert index.scoped_to(EVE).chunk_ids_of("d") == ["c"]
        assert index.chunk_ids_of("d") == ["a", "b", "c"]

    def test_no_name_of_a_hidden_chunk_is_listed_or_found(self, indexes: Indexes) -> None:
        """A document with a hidden chunk is not found by the title in that chunk.

        If this fails: the list of documents takes its names from chunks that the caller cannot see.
        """
        index = indexes.open()
        for name, acl in (("a", ["user:ann"]), ("b", ["user:bob"])):
            index.add([secret(name, acl, document_id="d", title=f"Title {name}")])
            index.add([secret(f"{name}2", acl, document_id=name, title=f"Title {name}")])
        for who, own, other in ((ANN, "a", "b"), (BOB, "b", "a")):
            view = index.scoped_to(who)
            assert view.document_page(DocumentQuery(f"title {other}")).total == 0
            names = [one.name for one in view.document_page(DocumentQuery()).items]
            assert f"Title {own}" in names
            assert f"Title {other}" not in names

    def test_an_acl_comes_back_as_a_field_and_metadata_as_it_was(self, indexes: Indexes) -> None:
        """Writers see acls, readers do not; metadata never contains the reserved key."""
        index = indexes.open()
        long = [f"user:{number}" for number in range(MAX_ACL - 1)]
        given = [secret("a", ["tenant:*", *long], x=1), secret("b", None), secret("c", [])]
        index.add(given)
        assert index.get("a", "b", "c") == given
        assert index.scoped_to(ANN).get("a", "b", "c") == given[:2]
        plain = [one.model_copy(update={"acl": None}) for one in given[:2]]
        assert index.scoped_to(EVE).get("a", "b", "c") == plain
        for mode in self.capabilities.modes:
            hits = index.scoped_to(EVE).search(mode, [1, 0], "zebra").hits
            assert sorted((h.chunk for h in hits), key=lambda c: c.chunk_id) == plain

    def test_nobody_names_the_place_of_the_acl(self, indexes: Indexes) -> None:
        """Metadata and filters with the reserved key are rejected, and nothing is stored."""
        index = filled(indexes)
        forged = chunk("x").model_copy(update={"metadata": {ACL_KEY: ["given", "user:eve"]}})
        by_key = {"type": "eq", "key": ACL_KEY, "value": "user:ann"}
        for who in (index, index.scoped_to(ANN)):
            with pytest.raises(InvalidRequest):
                who.add([forged])
            for filters in (by_key, {"type": "or", "filters": [by_key]}):
                with pytest.raises(InvalidFilter):
                    who.search(self.capabilities.modes[0], [1, 0], "zebra", filters=filters)
        assert index.count() == len(ACLS)

    def test_a_writer_gives_only_what_it_holds(self, indexes: Indexes) -> None:
        """Foreign tokens, an empty acl, and a default acl that hides the chunk are rejected."""
        index = indexes.open(default_acl=["user:bob"])
        mine = index.scoped_to(ANN)
        for acl in (["user:bob"], ["user:ann", "user:bob"], [], None, ["tenant:other"]):
            with pytest.raises(Forbidden):
                mine.add([secret("x", acl)])
            with pytest.raises(Forbidden):
                mine.set_acl(["x"], acl)
        mine.add([secret("a", ["user:ann", "group:sales"]), secret("b", ["tenant:*"])])
        index.scoped_to(BOB).add([secret("c", None)])
        assert index.chunk_ids() == ["a", "b", "c"]

    def test_a_reader_does_not_write(self, indexes: Indexes) -> None:
        """Adding, deleting and changing acls need the role writer; nothing changes."""
        index = filled(indexes)
        view = index.scoped_to(EVE)
        for refused in (
            lambda: view.add([secret("all", ["tenant:*"], "changed")]),
            lambda: view.add([], replace_documents=["all"]),
            lambda: view.remove("all"),
            lambda: view.set_acl(["all"], None),
        ):
            with pytest.raises(Forbidden):
                refused()
        assert index.get("all") == [secret("all", ["tenant:*"], document_id="all")]

    def test_what_is_hidden_is_not_overwritten(self, indexes: Indexes) -> None:
        """A hidden chunk's or document's id is rejected; the error does not say which it is."""
        index = filled(indexes)
        mine = index.scoped_to(BOB)
        before = index.get(*ACLS)
        for new, replaced in (
            ([secret("ann", None), secret("new", None)], []),
            ([secret("new", None, document_id="ann")], []),
            ([secret("new", None, document_id="ann")], ["ann"]),
            ([secret("new", None)], ["ann"]),
        ):
            with pytest.raises(Conflict) as caught:
                mine.add(new, replace_documents=replaced)
            assert "ann" not in str(caught.value)
        assert index.get(*ACLS, "new") == before
        mine.add([secret("new", None, document_id="both")], replace_documents=["both"])
        assert index.get("both", "new") == [secret("new", None, document_id="both")]

    def test_deleting_reaches_what_is_seen(self, indexes: Indexes) -> None:
        """Hidden chunks survive the deletion of their ids and of their document."""
        index = filled(indexes)
        index.add([secret("ann2", ["user:bob"], document_id="ann")])
        mine = index.scoped_to(BOB)
        mine.remove(*ACLS)
        assert index.chunk_ids() == sorted({*ACLS, "ann2"} - SEEN["bob"])
        mine.add([], replace_documents=["ann", "nobody", "unknown"])
        assert index.chunk_ids() == sorted(set(ACLS) - SEEN["bob"])

    def test_another_acl_changes_who_sees_and_nothing_else(self, indexes: Indexes) -> None:
        """Text, metadata and embedding stay bit for bit; hidden and unknown ids are not counted.

        If this fails: writing a chunk again with its stored embedding changes the chunk.
        """
        index = indexes.open(metric="l2", normalize=False)
        acls = {"a": ["user:ann"], "b": None, "c": ["user:bob"]}
        vectors = [[0.1, 0.7], [3.0, 1e-3], [0.3, -0.2]]
        index.add([secret(i, acl, x=[1, "1"]) for i, acl in acls.items()], vectors)
        before = index.get(*acls, include_embeddings=True)
        assert index.scoped_to(ANN).set_acl(["a", "b", "c", "unknown", "a"], ["group:sales"]) == 2
        sales = [one.model_copy(update={"acl": ["group:sales"]}) for one in before[:2]]
        assert index.get(*acls, include_embeddings=True) == [*sales, before[2]]
        assert self.finds(index.scoped_to(BOB), "abc")
        assert self.finds(index.scoped_to(EVE), ())
        assert index.set_acl(["a", "c"], None) == 2
        assert [one.acl for one in index.get(*acls)] == [None, ["group:sales"], None]
        assert self.finds(index.scoped_to(EVE), "ac")
        assert index.set_acl(["a", "b", "c"], []) == 3
        assert self.finds(index.scoped_to(ANN), ())

    def test_a_chunk_that_is_stored_again_has_the_new_acl(self, indexes: Indexes) -> None:
        """An upsert replaces the acl as it replaces the text; an upsert without acl removes it."""
        index = filled(indexes)
        index.add([secret("ann", None), secret("all", ["user:bob"])])
        assert self.finds(index.scoped_to(EVE), {"ann", "default"})
        assert index.get("ann")[0].acl is None

    @needs(lambda can: can.persistent)
    def test_an_acl_outlives_a_restart(self, indexes: Indexes) -> None:
        """Hidden chunks stay hidden after the index is closed and opened again.

        If this fails: the engine keeps an acl in memory, or an index of it is not rebuilt.
        """
        index = indexes.restart(filled(indexes))
        for who in PEOPLE:
            assert self.finds(index.scoped_to(who), SEEN[who.user])
            assert index.scoped_to(who).chunk_ids() == sorted(SEEN[who.user])
