"""The backends that can be named: Corral's own and foreign systems.

    backends = find_backends(["sqlite", "faiss", "lancedb"], config)
    async with prepared(backend, folder, Collection("scifact", 384)) as system:
        await system.add(chunks, embeddings)
        hits = await system.search(Search(SearchMode.HYBRID, "a question", embedding, k=10))

A name is looked up in the `vector_io` section of `--config`, by provider id and then by type; then
among the installed inline providers, which need no settings; then among the adapters. Remote
providers are named like inline ones, with `-remote` where both exist (`chroma-remote`), and need an
entry in the configuration, since only the user knows where the service is. `all-inline` and
`all-peers` stand for all that are installed and need no service.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from corral.api.errors import InvalidRequest, MissingDependency, UnknownProvider
from corral.api.provider import Api, ProviderSpec
from corral.api.vector_dbs import SearchMode
from corral.bench import peers
from corral.bench.system import Collection, CorralSystem, System
from corral.providers.base.config import ProviderEntry, RunConfig
from corral.providers.stack.registry import find_spec, provider_specs

ALL_INLINE, ALL_PEERS = "all-inline", "all-peers"
BARE_ENGINES = "bare-engines"


@dataclass(frozen=True, slots=True)
class Backend:
    """A named backend: an entry of the configuration, or an adapter (`entry` is None)."""

    name: str
    entry: ProviderEntry | None = None
    address: str | None = None

    @property
    def kind(self) -> type[System]:
        """The class that measures it."""
        return load_peer(self.name) if self.entry is None else CorralSystem

    @property
    def modes(self) -> tuple[SearchMode, ...]:
        """The modes in which it can be measured."""
        if self.entry is None:
            return self.kind.modes
        spec = find_spec(Api.VECTOR_IO, self.entry.provider_type)
        return tuple(SearchMode(mode) for mode in spec.capabilities.modes)

    @property
    def requires(self) -> tuple[str, ...]:
        """The distributions that it needs."""
        if self.entry is None:
            return self.kind.requires
        return find_spec(Api.VECTOR_IO, self.entry.provider_type).requires

    def open(self, folder: Path) -> System:
        """Return the system, not yet prepared; nothing is imported or connected.

        Raises:
            MissingDependency: A package of a foreign system is not installed.
        """
        if self.entry is not None:
            return CorralSystem(self.name, self.entry, folder)
        for distribution in self.requires:
            try:
                metadata.distribution(distribution)
            except metadata.PackageNotFoundError:
                command = f"pip install {distribution}"
                raise MissingDependency(self.name, distribution, command) from None
        return self.kind(self.name, folder, self.address)


@asynccontextmanager
async def prepared(backend: Backend, folder: Path, collection: Collection) -> AsyncIterator[System]:
    """Open a backend in an existing folder, prepare it, and close it at the end.

    Raises:
        CorralError: The backend cannot start.
    """
    system = backend.open(folder)
    try:
        await system.prepare(collection)
        yield system
    finally:
        await system.close()


def find_backends(names: Sequence[str], config: RunConfig | None = None) -> list[Backend]:
    """Return the backends of these names, in their order; nothing is opened.

    Args:
        names: As for `expanded`; `bare-engines` adds the engines of the other names, used directly,
            if they are installed and need no service.
        config: The configuration, whose `vector_io` entries are found by id.

    Raises:
        UnknownProvider: A name is unknown; the message has the nearest and all names.
        InvalidRequest: No name is given, a name is repeated, or a service has no settings.
    """
    found = [_find(n, config) for n in expanded([n for n in names if n.strip() != BARE_ENGINES])]
    if found and BARE_ENGINES in map(str.strip, names):
        found += _bare_engines(found)
    if not found:
        raise InvalidRequest("No backend is named.", hint=f"Known: {', '.join(backend_names())}.")
    known = [backend.name for backend in found]
    twice = [name for name in known if known.count(name) > 1]
    if twice:
        raise InvalidRequest(f"Backend {twice[0]!r} is named twice.", field="backends")
    return found


def expanded(names: Sequence[str]) -> list[str]:
    """Return names with `all-inline` and `all-peers` expanded, without duplicates.

    `all-inline` are the installed providers that need no service, `all-peers` the installed foreign
    systems that need none.
    """
    given = [name.strip() for name in names if name.strip()]
    found: list[str] = []
    for name in given:
        if name == ALL_INLINE:
            found += [one for one in _inline_names() if one not in given]
        elif name == ALL_PEERS:
            found += [one for one in _installed_peers() if one not in given]
        else:
            found.append(name)
    return found


def installed(distributions: Iterable[str]) -> bool:
    """Return True if all of these are installed."""
    try:
        for distribution in distributions:
            metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _bare_engines(found: Sequence[Backend]) -> list[Backend]:
    types = {backend.entry.provider_type for backend in found if backend.entry}
    named = {backend.name for backend in found}
    return [
        Backend(name)
        for name in _installed_peers()
        if name not in named and types & set(load_peer(name).engine_of)
    ]


def _inline_names() -> list[str]:
    inline = [s for s in _types().values() if s.provider_type.startswith("inline::")]
    return [spec.name for spec in inline if installed(spec.requires)]


def _installed_peers() -> list[str]:
    kinds = {name: load_peer(name) for name in peer_names()}
    return [n for n, kind in kinds.items() if not kind.service and installed(kind.requires)]


def backend_names(config: RunConfig | None = None) -> list[str]:
    """Return all names for `find_backends`."""
    entries = config.providers.vector_io if config else []
    return [*dict.fromkeys([*(e.provider_id for e in entries), *_types(), *peer_names()])]


def peer_names() -> list[str]:
    """Return the names of the adapters for foreign systems, without importing any."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(peers.__path__))


def load_peer(name: str) -> type[System]:
    """Return the adapter class of a name of `peer_names`."""
    module = importlib.import_module(f"{peers.__name__}.{name.replace('-', '_')}")
    kind: type[System] = module.PEER
    return kind


def _find(given: str, config: RunConfig | None) -> Backend:
    name, _, address = given.partition("=")
    entries = config.providers.vector_io if config else []
    types = _types()
    kind = types[name].provider_type if name in types else None
    for entry in [e for e in entries if e.provider_id == name] or [
        e for e in entries if e.provider_type == kind
    ]:
        return _corral(name, entry, address)
    if kind is not None and kind.startswith("inline::"):
        return _corral(name, ProviderEntry(provider_id=name, provider_type=kind), address)
    if kind is not None:
        raise InvalidRequest(
            f"{name} needs the address of a service.",
            hint=f"Give --config with a vector_io entry of provider_type {kind}.",
            field="backends",
        )
    if name not in peer_names():
        raise UnknownProvider(name, backend_names(config), field="backends")
    if load_peer(name).service != bool(address):
        wanted = f"{name}=ADDRESS" if not address else name
        raise InvalidRequest(f"The backend is named as {wanted}.", field="backends")
    return Backend(name, None, address or None)


def _corral(name: str, entry: ProviderEntry, address: str) -> Backend:
    if address:
        raise InvalidRequest(
            f"{name} takes no address here.",
            hint="Put it into the run.yaml that --config names.",
            field="backends",
        )
    return Backend(name, entry)


def _types() -> dict[str, ProviderSpec]:
    """Return the installed vector_io providers by name, with `-remote` if inline has it too."""
    specs = [spec for (api, _), spec in provider_specs().items() if api is Api.VECTOR_IO]
    inline = {spec.name: spec for spec in specs if spec.provider_type.startswith("inline::")}
    remote = [spec for spec in specs if not spec.provider_type.startswith("inline::")]
    return {**inline, **{s.name + ("-remote" if s.name in inline else ""): s for s in remote}}
