"""The tokenizer of multilingual-e5-small: XLM-RoBERTa's unigram model, run by sentencepiece.

The Rust tokenizers of `tokenizers` give the same tokens, but their vocabulary of 250,002 pieces
takes 250 MB of memory, here 34 MB, and four times the processor time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from corral.api.wire import encodable

BEGIN, PAD, END, UNKNOWN = MARKS = range(4)
"""Token ids of the special tokens."""

_KINDS = {BEGIN: b"\x18\x03", PAD: b"\x18\x03", END: b"\x18\x03", UNKNOWN: b"\x18\x02"}
"""Field `type` of the special tokens' pieces: control, unknown. No text contains them."""

_TRAINER = b"\x12\x0c\xc0\x02\x03\xc8\x02\x00\xd0\x02\x02\xd8\x02\x01"
"""Field `trainer_spec`: the ids UNKNOWN, BEGIN, END and PAD."""

_NORMALIZER = b"\x1a\x0a\x0a\x08identity"
"""Field `normalizer_spec`: each word begins with U+2581, which replaces the spaces before it."""

_NEXT_LINE = 0x85
"""The only white space that the model's table of characters does not replace by a space."""


class UnigramTokenizer:
    """Splits texts into tokens. Its methods block, and may run in several threads at once.

    Args:
        pieces: The vocabulary by token id, in UTF-8.
        scores: Natural logarithm of each piece's probability, float32 of shape (pieces,).
        characters: Replacements of characters before the split.
    """

    def __init__(
        self, pieces: Sequence[bytes], scores: NDArray[np.float32], characters: Mapping[int, str]
    ) -> None:
        self._characters = {_NEXT_LINE: " ", **characters}
        self._resized = frozenset(chr(c) for c, into in characters.items() if len(into) != 1)
        self._processor = SentencePieceProcessor(model_proto=_model_of(pieces, scores))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, without special tokens."""
        clean = [self._clean(unicodedata.normalize("NFC", encodable(text))) for text in texts]
        token_ids: list[list[int]] = self._processor.encode(clean, num_threads=1)
        return token_ids

    def ends(self, text: str) -> list[int]:
        """Return the end offset of each token of a text."""
        text = encodable(text)
        split = self._processor.encode(self._clean(text), return_type="offset_mapping")
        ends = [end for _, end in split["offsets"]]
        if self._resized.isdisjoint(text):
            return ends
        parts = [self._characters.get(ord(character), character) for character in text]
        origin = [0, *(place for place, part in enumerate(parts, 1) for _ in part)]
        return list(accumulate((origin[end] for end in ends), max))

    def _clean(self, text: str) -> str:
        return text.translate(self._characters)


def _model_of(pieces: Sequence[bytes], scores: NDArray[np.float32]) -> bytes:
    """Return the vocabulary as a `ModelProto` of sentencepiece_model.proto.

    It is encoded here, because sentencepiece's own encoder requires its newest protobuf. Lengths
    take one byte each: no piece of this vocabulary is longer than 100 bytes.
    """
    raw = scores.astype("<f4").tobytes()
    parts = []
    for token, piece in enumerate(pieces):
        score = raw[4 * token : 4 * token + 4]
        body = bytes((0x0A, len(piece))) + piece + b"\x15" + score + _KINDS.get(token, b"")
        parts += [bytes((0x0A, len(body))), body]
    return b"".join(parts) + _TRAINER + _NORMALIZER
