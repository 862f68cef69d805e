"""The collections of the stand-in: the objects, their indexes, and what a search finds in them.

Searches are computed: vectors with numpy in single precision, words by a BM25 as Weaviate's
documentation describes it, filters as sets.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from weaviate.proto.v1 import base_pb2, batch_pb2, properties_pb2, search_get_pb2

Json = dict[str, Any]

HNSW: Json = {
    "cleanupIntervalSeconds": 300,
    "dynamicEfFactor": 8,
    "dynamicEfMax": 500,
    "dynamicEfMin": 100,
    "filterStrategy": "sweeping",
    "flatSearchCutoff": 40_000,
    "maxConnections": 32,
    "skip": False,
    "vectorCacheMaxObjects": 10**12,
}
FLAT: Json = {"vectorCacheMaxObjects": 10**12}
"""What a server adds to the settings of a vector index (1.33)."""


@dataclass
class Stored:
    """One object, and its properties as they were read so far: most are read again and again."""

    properties: Json
    vectors: dict[str, NDArray[np.float32]]
    read: dict[tuple[str, ...], properties_pb2.Properties] = field(default_factory=dict)


@dataclass
class Class:
    """One collection: what it was made with, its objects by id, and what searches derive."""

    config: Json
    objects: dict[str, Stored] = field(default_factory=dict)
    matrices: dict[str, tuple[list[str], NDArray[np.float32]]] = field(default_factory=dict)
    tokens: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    words: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    queue: dict[str, float] = field(default_factory=dict)
    """When objects come into the vector index that are not in it yet."""
    unflushed: set[str] = field(default_factory=set)
    """Objects whose vectors a crash would lose: they are kept by the next request that writes."""
    lost: set[str] = field(default_factory=set)
    """Objects that a crash has left out of the vector index, until they get another vector."""

    def changed(self) -> None:
        """Forget what was derived."""
        self.matrices.clear()
        self.tokens.clear()
        self.words.clear()

    def put(self, i: str, one: Stored) -> None:
        """Store an object; one with the vector that it has leaves the vector index alone (1.33)."""
        before = self.objects.get(i)
        if before is None or any(
            not np.array_equal(row, before.vectors.get(name, ()))
            for name, row in one.vectors.items()
        ):
            self.lost.discard(i)
        self.objects[i] = one

    def waiting(self) -> set[str]:
        """Return the ids of the objects that are not in the vector index yet."""
        now = time.monotonic()
        if any(due <= now for due in self.queue.values()):
            self.queue = {i: due for i, due in self.queue.items() if due > now}
            self.matrices.clear()
        return set(self.queue) | self.lost

    def property(self, name: str) -> Json:
        """Return the schema of a property."""
        for one in self.config.get("properties", []):
            if one["name"] == name:
                found: Json = one
                return found
        raise Refused(f"no such prop with name '{name}' found")

    def matrix(self, name: str) -> tuple[list[str], NDArray[np.float32]]:
        """Return the ids and the vectors of a name, of the objects in its index."""
        late = self.waiting()
        if name not in self.matrices:
            if name not in self.config.get("vectorConfig", {}):
                raise Refused(f"vector {name} is not configured")
            pairs = [
                (i, o.vectors[name])
                for i, o in self.objects.items()
                if name in o.vectors and i not in late
            ]
            rows = np.array([row for _, row in pairs], dtype=np.float32)
            self.matrices[name] = [i for i, _ in pairs], rows
        return self.matrices[name]

    def index(self, name: str) -> dict[str, set[str]]:
        """Return the filterable index of a property: ids by token."""
        if name not in self.tokens:
            schema = self.property(name)
            if not schema.get("indexFilterable", True):
                raise Refused(f"property {name} has no filterable index")
            found: dict[str, set[str]] = {}
            for i, one in self.objects.items():
                for token in tokens_of(one.properties.get(name), schema["tokenization"]):
                    found.setdefault(token, set()).add(i)
            self.tokens[name] = found
        return self.tokens[name]

    def counts(self, name: str) -> dict[str, Counter[str]]:
        """Return the searchable index of a property: how often each object holds a token."""
        if name not in self.words:
            schema = self.property(name)
            if not schema.get("indexSearchable", True):
                raise Refused(f"property {name} has no searchable index")
            self.words[name] = {
                i: Counter(tokens_of(one.properties.get(name), schema["tokenization"]))
                for i, one in self.objects.items()
            }
        return self.words[name]


class Refused(Exception):
    """What a server would answer with an error."""


def complete(config: Json) -> Json:
    """Return a collection's settings with what a server adds to them (1.33)."""
    for one in config.get("properties") or []:
        is_text = one["dataType"][0].startswith("text")
        one.setdefault("indexFilterable", True)
        one.setdefault("indexSearchable", is_text)
        if is_text:
            one.setdefault("tokenization", "word")
    inverted = config.setdefault("invertedIndexConfig", {})
    inverted["cleanupIntervalSeconds"] = 60
    inverted["stopwords"] = {"preset": "en", "additions": None, "removals": None} | inverted.get(
        "stopwords", {}
    )
    for vector in config.get("vectorConfig", {}).values():
        defaults = HNSW if vector["vectorIndexType"] == "hnsw" else FLAT
        vector["vectorIndexConfig"] = defaults | vector["vectorIndexConfig"]
    return config


def made_up(name: str) -> Json:
    """Return the settings of a collection that a server makes up for an object (1.33)."""
    said = "This property was generated by Weaviate's auto-schema feature on Sun Nov 22 2026"
    vectors: Json = {"vectorizer": "none", "vectorIndexType": "hnsw"}
    vectors["vectorIndexConfig"] = HNSW | {"distance": "cosine", "ef": -1, "efConstruction": 128}
    return complete({"class": name, "description": said, "properties": [], **vectors})


def tokens_of(value: Any, tokenization: str) -> list[str]:
    """Return the tokens of a text or of a list of texts."""
    texts = value if isinstance(value, list) else [value or ""]
    if tokenization == "whitespace":
        return [token for text in texts for token in text.split()]
    assert tokenization == "field"
    return [text.strip() for text in texts]


# --- objects as messages -------------------------------------------------------------------------


def as_stored(one: batch_pb2.BatchObject) -> Stored:
    """Return what a message says of an object."""
    properties: Json = {}
    for name, value in one.properties.non_ref_properties.fields.items():
        kind = value.WhichOneof("kind")
        properties[name] = value.string_value if kind == "string_value" else value.number_value
    for texts in one.properties.text_array_properties:
        properties[texts.prop_name] = list(texts.values)
    vectors = {v.name: np.frombuffer(v.vector_bytes, dtype="<f4") for v in one.vectors}
    return Stored(properties, vectors)


def as_result(
    target: Class,
    i: str,
    score: float,
    names: tuple[str, ...],
    wanted: search_get_pb2.MetadataRequest,
) -> search_get_pb2.SearchResult:
    """Return the message that tells an object, with the properties of these names."""
    stored = target.objects[i]
    if names not in stored.read:
        fields = {
            name: _value(stored.properties[name], target.property(name)["dataType"][0])
            for name in names
            if name in stored.properties
        }
        stored.read[names] = properties_pb2.Properties(fields=fields)
    vectors = [
        base_pb2.Vectors(
            name=name,
            vector_bytes=stored.vectors[name].tobytes(),
            type=base_pb2.Vectors.VECTOR_TYPE_SINGLE_FP32,
        )
        for name in wanted.vectors
    ]
    return search_get_pb2.SearchResult(
        properties=search_get_pb2.PropertiesResult(non_ref_props=stored.read[names]),
        metadata=search_get_pb2.MetadataResult(
            id_as_bytes=bytes.fromhex(i.replace("-", "")),
            vectors=vectors,
            score=score if wanted.score else 0,
            score_present=wanted.score,
            distance=score if wanted.distance else 0,
            distance_present=wanted.distance,
        ),
    )


def _value(value: Any, data_type: str) -> properties_pb2.Value:
    if data_type == "text[]":
        texts = properties_pb2.TextValues(values=value)
        return properties_pb2.Value(list_value=properties_pb2.ListValue(text_values=texts))
    if data_type == "int":
        return properties_pb2.Value(int_value=int(value))
    return properties_pb2.Value(text_value=value)


# --- searching ----------------------------------------------------------------------------------


def passing(target: Class, filters: base_pb2.Filters) -> set[str]:
    """Return the ids of the objects that pass."""
    kinds = base_pb2.Filters
    if filters.operator in (kinds.OPERATOR_AND, kinds.OPERATOR_OR, kinds.OPERATOR_NOT):
        sets = [passing(target, part) for part in filters.filters]
        if filters.operator == kinds.OPERATOR_AND:
            return set.intersection(*sets)
        if filters.operator == kinds.OPERATOR_OR:
            return set.union(*sets)
        [found] = sets
        return target.objects.keys() - found
    if filters.operator != kinds.OPERATOR_CONTAINS_ANY:
        raise Refused("operator not known here")
    values, name = filters.value_text_array.values, filters.target.property
    if not values:
        raise Refused("ContainsAny wants values")
    if name == "_id":
        return target.objects.keys() & set(values)
    index = target.index(name)
    return set().union(*(index.get(value, ()) for value in values))


def nearest(target: Class, near: Any, chosen: set[str] | None) -> list[tuple[str, float]]:
    """Return ids by ascending distance, with it; ties in no order that means anything."""
    [name] = near.targets.target_vectors
    [vector] = near.vectors
    query = np.frombuffer(vector.vector_bytes, dtype="<f4")
    ids, matrix = target.matrix(name)
    if not ids:
        return []
    kind = target.config["vectorConfig"][name]["vectorIndexConfig"]["distance"]
    if kind == "l2-squared":
        distances = ((matrix - query) ** 2).sum(axis=1)
    elif kind == "dot":
        distances = -(matrix @ query)
    else:
        unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        distances = 1 - unit @ (query / np.linalg.norm(query))
    order = sorted(range(len(ids)), key=lambda row: (float(distances[row]), ids[row]))
    found = ((ids[row], float(distances[row])) for row in order)
    return [(i, distance) for i, distance in found if chosen is None or i in chosen]


def matching(target: Class, bm25: Any, chosen: set[str] | None) -> list[tuple[str, float]]:
    """Return ids by descending BM25, with it; each search term counts as often as it is given."""
    [name] = bm25.properties
    settings = target.config["invertedIndexConfig"]
    assert settings["stopwords"]["preset"] == "none"
    k1, b = settings["bm25"]["k1"], settings["bm25"]["b"]
    counts, holders = target.counts(name), target.index(name)
    lengths = {i: sum(one.values()) for i, one in counts.items()}
    average = sum(lengths.values()) / max(1, len(lengths))
    scores: dict[str, float] = {}
    for term, times in Counter(bm25.query.split()).items():
        held = holders.get(term, set())
        idf = np.log(1 + (len(counts) - len(held) + 0.5) / (len(held) + 0.5))
        for i in held if chosen is None else held & chosen:
            f = counts[i][term]
            part = times * idf * f / (f + k1 * (1 - b + b * lengths[i] / average))
            scores[i] = scores.get(i, 0.0) + float(part)
    return sorted(scores.items(), key=lambda pair: (-np.float32(pair[1]), pair[0]))
