"""Tokenize texts of any length with a model's tokenizer."""

from __future__ import annotations

from tokenizers import Tokenizer

from corral.api.embedder import TextTokenizer
from corral.api.wire import encodable


class WholeTexts(TextTokenizer):
    """A model's tokenizer without padding and truncation.

    Args:
        tokenizer: The model's tokenizer; copied, because its padding and truncation settings
            change.

    Attributes:
        marks: Tokens that the model adds around a text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._uncut: Tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._uncut.no_padding()
        self._uncut.no_truncation()
        self.marks = len(self._uncut.encode("").ids)

    def token_ends(self, text: str) -> list[int]:
        """Return the end offset of each token of the whole text, without marks."""
        (encoding,) = self._uncut.encode_batch([encodable(text)], add_special_tokens=False)
        return [end for _, end in encoding.offsets]
