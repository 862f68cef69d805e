"""Vector DBs: registrations, and the settings that a query may override.

Precedence is request > registration > default. A setting that cannot be honored is rejected, never
replaced.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, model_validator

from corral.api.chunks import Acl
from corral.api.errors import UnsupportedMode
from corral.api.filters import AutoFilters
from corral.api.principal import ACL_KEY, EVERYONE
from corral.api.rankers import DEFAULT_RANKER, Ranker
from corral.api.recency import Recency
from corral.api.reranker import Rerank
from corral.api.scoring import Metric
from corral.api.wire import Identifier, NullsAreDefaults, Strict, strip_nul


class SearchMode(StrEnum):
    """Search by embedding, by words, or by both with fusion."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    HYBRID = "hybrid"

    @classmethod
    def parse(cls, mode: object) -> SearchMode:
        """Return the search mode with this name.

        Raises:
            UnsupportedMode: The name is unknown; the message lists the valid modes.
        """
        modes = {member.value: member for member in cls}
        if not isinstance(mode, str) or mode not in modes:
            raise UnsupportedMode(mode, list(modes))
        return modes[mode]


Cutoff: TypeAlias = Literal["none", "gap"]
"""`gap` removes the chunks after the largest drop in score."""

QuerySyntax: TypeAlias = Literal["plain", "web"]
"""`web`: a chunk must contain "quoted phrases" and must not contain words after a minus."""


Expand: TypeAlias = Annotated[int, Field(ge=0, le=5)] | Literal["section"]
"""Neighbors to include on each side of a chunk in a context (0-5), or those of its section."""

ChunksPerDocument: TypeAlias = Annotated[int, Field(ge=1, le=1000)]
"""Maximum chunks of one document in a context."""

Confidence: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""Probability that the hits contain an answer; see `corral.api.confidence`."""

Cosine: TypeAlias = Annotated[float, Field(ge=-0.99, le=0.99, allow_inf_nan=False)]

LANGUAGES: dict[str, str] = {
    "ar": "arabic", "hy": "armenian", "eu": "basque", "ca": "catalan", "da": "danish",
    "nl": "dutch", "en": "english", "eo": "esperanto", "et": "estonian", "fi": "finnish",
    "fr": "french", "de": "german", "el": "greek", "hi": "hindi", "hu": "hungarian",
    "id": "indonesian", "ga": "irish", "it": "italian", "lt": "lithuanian", "ne": "nepali",
    "no": "norwegian", "nb": "norwegian", "nn": "norwegian", "pt": "portuguese", "ro": "romanian",
    "ru": "russian", "sr": "serbian", "es": "spanish", "sv": "swedish", "ta": "tamil",
    "tr": "turkish", "yi": "yiddish", "zh": "chinese", "ja": "japanese", "ko": "korean",
    "th": "thai", "lo": "lao", "km": "khmer", "my": "burmese", "simple": "simple",
}  # fmt: skip
"""ISO 639-1 code -> English name, as accepted for `language`. `simple` has no stemming and no stop
words. Every language segments every script; the name only selects stemming and stop words."""


def language_name(language: str) -> str:
    """Return the English lower-case name of a language given by ISO 639-1 code or English name.

    Raises:
        ValueError: It is not one of `LANGUAGES`.
    """
    name = language.strip().casefold().replace("_", "-").split("-")[0]
    name = LANGUAGES.get(name, name)
    if name not in LANGUAGES.values():
        names = ", ".join(sorted({*LANGUAGES, *LANGUAGES.values()}))
        raise ValueError(f"unknown language {language!r}; known: {names}")
    return name


def _check_weights(weights: dict[str, float]) -> dict[str, float]:
    for field, weight in weights.items():
        if not 0 < weight <= 100 or not field or len(field) > 255 or "\0" in field:
            raise ValueError(f"{field!r} needs a name and a weight in (0, 100] (got {weight})")
    if ACL_KEY in weights:
        raise ValueError(f"the key {ACL_KEY!r} is reserved; it cannot be a field")
    if "content" not in weights:
        raise ValueError("the field 'content' is missing; give it a weight, usually 1.0")
    if len(weights) > 16:
        raise ValueError(f"field_weights must name <= 16 fields (got {len(weights)})")
    return weights


DEFAULT_FIELD_WEIGHTS = {"content": 1.0, "title": 2.0}


DEFAULT_CHUNK_SIZE = 256


MAX_SPLIT_ON = 100
"""Maximum length of a text at which chunks end, in characters."""

SplitOn: TypeAlias = (
    Annotated[str, Field(max_length=MAX_SPLIT_ON), AfterValidator(strip_nul)]
    | Annotated[int, Field(ge=1, le=6)]
)
"""A text at which chunks end, empty for none; or a level of headings before which chunks end."""


class ChunkingConfig(Strict):
    """How documents are split unless an insert overrides it: sizes in tokens, and a text."""

    chunk_size_in_tokens: int = Field(
        default=DEFAULT_CHUNK_SIZE,
        ge=1,
        le=8192,
        description="Maximum number of cl100k tokens per chunk. The default 256 is also limited "
        "to the embedding model's window, by its own tokenizer; any other size is "
        "used as it is.",
    )
    overlap_in_tokens: int = Field(default=32, ge=0, le=4096)
    split_on: SplitOn | None = Field(
        default=None,
        exclude_if=lambda text: text is None,
        description="Text at which chunks end, such as `======`; it is in no chunk. Or a level "
        "(1-6): chunks end before each heading of this level and above. A part between two of them "
        "that fits is one chunk; a longer one is split by itself. Empty or null: none.",
    )
    context_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        exclude_if=lambda model: model is None,
        description="Language model that writes a sentence about each chunk, which is embedded and "
        "indexed before the text; null: none. Only at registration.",
    )

    @model_validator(mode="after")
    def _overlap(self) -> ChunkingConfig:
        if self.overlap_in_tokens * 2 > self.chunk_size_in_tokens:
            raise ValueError("overlap_in_tokens must be at most half of chunk_size_in_tokens")
        return self


class SearchDefaults(NullsAreDefaults):
    """Options of a search that a vector DB registers and a request overrides.

    An option is declared here and in `SearchOverrides`. Routes, plans, the command line, the page
    and the comparison of vector DBs take all options from these two classes.
    """

    cutoff: Cutoff = Field(
        default="none",
        description="gap: remove the hits after the largest drop in score.",
    )
    query_syntax: QuerySyntax = Field(
        default="plain",
        description='web: a chunk must contain "quoted phrases" and must not contain words after '
        "a minus; plain: no syntax.",
    )
    min_confidence: Confidence = Field(
        default=0.0,
        description="Minimum confidence (0-1); below it there are no hits and `reason` is "
        "nothing_relevant.",
    )
    fuzzy: bool = Field(
        default=False,
        description="Also match misspelled words in keyword search, on providers with that "
        "capability.",
    )
    recency: Recency | None = Field(
        default=None,
        description="Prefer newer chunks: `{field, half_life, weight}`, the metadata key with "
        "their time, days, and the largest share of a score that age takes (default: none).",
    )
    auto_filters: AutoFilters | Literal["none"] = Field(
        default="none",
        description="Filters that a language model proposes from the question, besides `filters`: "
        "`{model, keys}`, a configured model and the metadata keys to compare; none: no proposals.",
    )


class ContextDefaults(NullsAreDefaults):
    """Options of a context that a vector DB registers and a request overrides."""

    expand: Expand = Field(
        default=0,
        description="Neighboring chunks to include on each side of a hit (0-5, default 0), or "
        "`section`: those under the same headings; overlapping text is printed once.",
    )
    max_chunks_per_document: ChunksPerDocument | None = Field(
        default=None,
        description="Maximum number of hits from one document (1-1000), not counting neighbors "
        "(default: no limit).",
    )


def _as_registered(defaults: type[BaseModel], name: str) -> Any:
    """Return a request's field for an option; null, the default, takes the registered value."""
    description = str(defaults.model_fields[name].description).removesuffix(".")
    return Field(default=None, description=f"{description}; null: as registered.")


class SearchOverrides(Strict):
    """The options of `SearchDefaults` in a request."""

    cutoff: Cutoff | None = _as_registered(SearchDefaults, "cutoff")
    query_syntax: QuerySyntax | None = _as_registered(SearchDefaults, "query_syntax")
    min_confidence: Confidence | None = _as_registered(SearchDefaults, "min_confidence")
    fuzzy: bool | None = _as_registered(SearchDefaults, "fuzzy")
    recency: Recency | None = _as_registered(SearchDefaults, "recency")
    auto_filters: AutoFilters | Literal["none"] | None = _as_registered(
        SearchDefaults, "auto_filters"
    )


class ContextOverrides(Strict):
    """The options of `ContextDefaults` in a request."""

    expand: Expand | None = _as_registered(ContextDefaults, "expand")
    max_chunks_per_document: ChunksPerDocument | None = _as_registered(
        ContextDefaults, "max_chunks_per_document"
    )


class SearchSettings(SearchDefaults, ContextDefaults):
    """The part of a registration that controls how chunks are indexed and searched."""

    search_mode: SearchMode = Field(
        default=SearchMode.HYBRID, description="Search mode of queries without their own."
    )
    ranker: Ranker = Field(default=DEFAULT_RANKER, description="How hybrid results are fused.")
    rerank: Rerank | None = Field(
        default=None,
        description="Re-ranking of the best chunks: mmr, bm25 or model (default: none).",
    )
    language: Annotated[str, AfterValidator(language_name)] = Field(
        default="english",
        description="ISO code or English name; sets stemming and stop words. `simple`: neither.",
    )
    metric: Metric = Metric.COSINE
    normalize: bool = Field(
        default=True,
        description="Normalize embeddings to length 1, so that all metrics rank alike.",
    )
    field_weights: Annotated[dict[str, float], AfterValidator(_check_weights)] = Field(
        default_factory=lambda: dict(DEFAULT_FIELD_WEIGHTS),
        description="Keyword weights of `content`, `title` and other metadata keys. A term's "
        "frequency in a chunk is the sum over these fields of weight times count.",
    )
    chunking: ChunkingConfig = ChunkingConfig()
    default_acl: Acl = Field(
        default_factory=lambda: [EVERYONE],
        description="Who may read a chunk without an acl; default: everyone who can use the "
        "vector DB.",
    )


class VectorDBRegistration(SearchSettings):
    """A request to register a vector DB, with Llama Stack's fields and Corral's."""

    vector_db_id: Identifier
    embedding_model: str | None = Field(
        default=None, min_length=1, max_length=255, description="null: the default model."
    )
    embedding_dimension: int | None = Field(
        default=None, ge=1, le=16_000, description="null: the model's."
    )
    provider_id: str | None = Field(
        default=None, description="null: the first vector_io provider in run.yaml."
    )
    provider_vector_db_id: str | None = Field(
        default=None,
        max_length=255,
        description="Name of an attached table of remote::pgvector. For other providers it must "
        "be the vector_db_id.",
    )
    vector_db_name: str | None = Field(default=None, max_length=255)
    unrelated_cosine: Cosine | None = Field(
        default=None,
        description="Cosine of unrelated texts under the model, the zero point of confidence; "
        "null: the model's.",
    )


class VectorDB(SearchSettings):
    """A registered vector DB."""

    identifier: Identifier
    tenant: str = Field(default="", description="Its tenant; empty: the default tenant.")
    provider_id: str
    provider_resource_id: str
    type: Literal["vector_db"] = "vector_db"
    embedding_model: str
    embedding_dimension: int = Field(ge=1, le=16_000)
    vector_db_name: str | None = None
    unrelated_cosine: Cosine = 0.0
    installation: str = Field(
        default="",
        pattern="^([0-9a-f]{32})?$",
        description="Id of the Corral installation that made its index, 32 hex digits; empty: "
        "made before installations had ids.",
    )
    host: str = Field(
        default="",
        pattern="^([0-9a-f]{32})?$",
        description="Id of the machine that holds its data; empty: every machine can read it.",
    )
    created_at: float = Field(
        default=0.0,
        ge=0,
        description="Unix seconds; distinguishes two registrations of the same id.",
    )
    rebuilt_at: float | None = Field(
        default=None,
        description="Start of the rebuild that made the current index, in Unix seconds; null: "
        "never rebuilt.",
    )
    fingerprint: str | None = Field(
        default=None,
        description="The embedder that made the embeddings, as JSON. null: registered by an older "
        "Corral and not used since; recorded at the first use.",
    )

    @property
    def key(self) -> tuple[str, str]:
        """The unique key: tenant and identifier, because tenants may use the same identifier."""
        return self.tenant, self.identifier

    @property
    def built_at(self) -> float:
        """Start of the index build, in Unix seconds; distinguishes the indexes of one key."""
        return self.created_at if self.rebuilt_at is None else self.rebuilt_at
