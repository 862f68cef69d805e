"""An onnxruntime session over a graph of this package, and padded batches for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray


class Session:
    """A graph with its weights. `run` may be called from several threads at once.

    Args:
        graph: The serialized graph.
        weights: The graph's external arrays by name; used in place.
        threads: Threads of one computation, including the calling thread.
    """

    def __init__(self, graph: bytes, weights: Mapping[str, NDArray[Any]], threads: int) -> None:
        # The session uses the arrays in place, so they must live as long as it does.
        self._weights = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(weight)
            for name, weight in weights.items()
        }
        self._graph, self._threads = graph, threads
        self._sessions = {threads: self._opened(threads)}  # sessions by number of threads
        self._opening = threading.Lock()

    def run(
        self, output: str, feed: Mapping[str, NDArray[Any]], *, one_thread: bool = False
    ) -> NDArray[np.float32]:
        """Return an output of the graph.

        `one_thread` leaves the other threads to other computations.
        """
        threads = 1 if one_thread else self._threads
        if threads not in self._sessions:  # Questions do not wait for the session of documents.
            with self._opening:
                if threads not in self._sessions:
                    self._sessions[threads] = self._opened(threads)
        found: NDArray[np.float32] = self._sessions[threads].run([output], dict(feed))[0]
        return found

    def _opened(self, threads: int) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Idle threads sleep: spinning would save 0.7 ms per query but occupy a processor.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The graph is already optimal; the optimizer would fuse Add and LayerNormalization into an
        # operator that takes twice as long.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_external_initializers(list(self._weights), list(self._weights.values()))
        return onnxruntime.InferenceSession(
            self._graph, options, providers=["CPUExecutionProvider"]
        )


def padded(
    rows: Sequence[Sequence[int]], filler: int = 0
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Return token ids as a matrix, padded on the right, and a mask of the tokens."""
    lengths = np.array([len(ids) for ids in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    matrix = np.full(mask.shape, filler, np.int32)
    matrix[mask] = np.concatenate([np.asarray(ids, np.int32) for ids in rows])
    return matrix, mask
