"""Open a library's model from its folder, its cache or its hub; errors name the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
from huggingface_hub import constants

from corral.api.errors import ConfigError, Unavailable
from corral.providers.embedding._local.library_config import LibraryConfig, LibraryFiles, SavedFiles
from corral.providers.models.hub import CONNECT_SECONDS
from corral.providers.models.onnx import check_digests

Opened = TypeVar("Opened")


def open_with(
    library: str,
    model: LibraryFiles,
    cache: Path,
    opened: Callable[[bool], Opened],
    *,
    offline: bool,
) -> Opened:
    """Open a model with its library. Blocking.

    Args:
        library: The library's name.
        model: The model's settings.
        cache: The library's folder for fetched files.
        opened: Opens the model, from local files only if its argument is True.
        offline: The setting.

    Raises:
        ConfigError: The library cannot open the folder, a file has another digest, or `offline` is
            set and files are missing.
        Unavailable: The files are missing and cannot be fetched.
    """
    if model.path is not None:
        check_digests(model.path, model.sha256, model.model)
    try:
        return opened(True)
    except Exception as error:  # each library raises its own types
        if model.path is not None:
            raise ConfigError(
                f"{library} cannot load {model.model!r} from its folder: {str(error)[:300]}",
                field="path",
            ) from error
    hint = f"Name a folder with the files as path, or copy {library}'s cache to {cache}."
    _reach_hub(f"The files of {model.model!r} are not in {cache}", hint, offline=offline)
    try:
        return opened(False)
    except Exception as error:  # each library raises its own types
        raise Unavailable(
            f"{library} cannot fetch {model.model!r}: {str(error)[:300]}", hint=hint
        ) from error


def open_saved(
    kind: Callable[..., Opened],
    model: SavedFiles,
    home: Path,
    needed: Sequence[str],
    config: LibraryConfig,
    **options: Any,
) -> Opened:
    """Open a model of sentence-transformers, never with code from a hub. Blocking.

    Args:
        kind: The library's class.
        model: The model's settings.
        home: The data folder, for fetched files.
        needed: Files that a folder must have.
        options: Further arguments of `kind`.

    Raises:
        ConfigError, Unavailable: As for `open_with`; also if the folder lacks a needed file.
    """
    library, name = "sentence-transformers", model.model if model.path is None else str(model.path)
    cache = home / "models" / library

    def opened(local: bool) -> Opened:
        return kind(
            name,
            device="cpu",
            revision=model.revision,
            cache_folder=str(cache),
            local_files_only=local,
            trust_remote_code=False,
            **options,
        )

    if model.path is not None:
        _check_saved(model.path, model.model, needed)
    return open_with(library, model, cache, opened, offline=config.offline)


def _check_saved(folder: Path, model: str, names: Sequence[str]) -> None:
    """Refuse a folder without files that sentence-transformers would otherwise guess.

    Without `modules.json` it guesses a pooling, and without `tokenizer.json`, possibly in a
    subfolder, it uses a tokenizer without a vocabulary.

    Raises:
        ConfigError: A file is missing.
    """
    for name in names:
        if not (folder / name).is_file() and not any(folder.glob(f"*/{name}")):
            raise ConfigError(
                f"The folder of {model!r} has no file {name!r}.",
                hint="Name a folder that sentence-transformers saved.",
                field="path",
            )


def _reach_hub(what: str, hint: str, *, offline: bool) -> None:
    """Check that the hub (`HF_ENDPOINT`) is reachable; the libraries would retry for a minute."""
    if offline:
        raise ConfigError(f"{what}, and offline is set.", hint=hint, field="offline")
    try:
        httpx.head(constants.ENDPOINT, timeout=CONNECT_SECONDS)
    except httpx.HTTPError as error:
        raise Unavailable(
            f"{what}, and the hub cannot be reached ({type(error).__name__}).", hint=hint
        ) from error
