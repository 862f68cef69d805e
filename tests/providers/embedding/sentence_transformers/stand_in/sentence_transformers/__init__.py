"""What the providers use of sentence-transformers 6, for machines without torch.

MiniLM's official weights run on onnxruntime; the cross-encoder has a formula. The same tests run on
the library itself where it is installed.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corral.providers.embedding.minilm.model import Model
from corral.providers.embedding.minilm.weights import model_folder


def _folder(name: str, local_files_only: bool) -> Path:
    folder = Path(name)
    if not folder.is_absolute():
        raise OSError(f"{name} is not in the cache ({local_files_only=})")
    return folder


class SentenceTransformer:
    """MiniLM, if the folder holds it."""

    def __init__(
        self,
        name: str,
        *,
        device: str,
        revision: str | None,
        cache_folder: str,
        local_files_only: bool,
        trust_remote_code: bool,
    ) -> None:
        assert (device, trust_remote_code) == ("cpu", False)
        folder = _folder(name, local_files_only)
        for module in json.loads((folder / "modules.json").read_text()):
            if not module["type"].startswith("sentence_transformers."):
                raise ValueError(f"{module['type']} is not part of Sentence Transformers.")
        self._model = _minilm(folder)
        length = folder / "sentence_bert_config.json"
        self.max_seq_length = json.loads(length.read_text())["max_seq_length"]
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer = SimpleNamespace(backend_tokenizer=backend)
        self.prompts = {"query": "", "document": ""}
        self._busy = Busy()

    def parameters(self) -> Iterable[Any]:
        """Return what two of these may share."""
        return [self._model]

    def buffers(self) -> Iterable[Any]:
        """Return nothing."""
        return []

    def encode_document(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 32,
        show_progress_bar: bool,
        convert_to_numpy: bool,
    ) -> NDArray[np.float32]:
        """Return embeddings, computed in batches, in the order of the texts."""
        with self._busy.borrowed():
            ids = self._model.tokenize(texts)
            starts = range(0, len(ids), batch_size)
            return np.concatenate([self._model.embed(ids[at : at + batch_size]) for at in starts])

    encode_query = encode_document


class Busy:
    """Raises where two threads use a tokenizer at once, as the library's does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Busy:
        return Busy()

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Hold the tokenizer."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("Already borrowed")
        try:
            yield
        finally:
            self._lock.release()


def _minilm(folder: Path) -> Model:
    if not (folder / "model.safetensors").is_file():
        raise OSError("Error no file named model.safetensors")
    return _official()


@cache
def _official() -> Model:
    with tempfile.TemporaryDirectory() as home:
        return Model(model_folder(None), Path(home), 1, "float32")


class CrossEncoder:
    """The logit of a text is how many words it shares with the question, less one."""

    def __init__(
        self,
        name: str,
        *,
        device: str,
        revision: str | None,
        cache_folder: str,
        local_files_only: bool,
        trust_remote_code: bool,
        activation_fn: object,
    ) -> None:
        assert (device, trust_remote_code) == ("cpu", False)
        assert activation_fn is not None
        folder = _folder(name, local_files_only)
        self._labels = len(json.loads((folder / "config.json").read_text())["id2label"])

    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        batch_size: int,
        show_progress_bar: bool,
        convert_to_numpy: bool,
    ) -> NDArray[np.float32]:
        """Return a number for each pair, or one for each label."""
        logits = [len({*asked.split()} & {*text.split()}) - 1.0 for asked, text in pairs]
        rows = np.repeat(np.array(logits, np.float32)[:, None], self._labels, axis=1)
        return rows[:, 0] if self._labels == 1 else rows
