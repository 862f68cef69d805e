"""Characters that a reader cannot see: which are removed, and which stay."""

from __future__ import annotations

import pytest

from corral.api.invisible import clean_text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\0b\x07c\x7fd\x9be", "abcde"),
        ("a\r\nb\rc\fd\x0be\x85f\u2028g\u2029h\x1ei", "a\nb\nc\nd\ne\nf\ng\nh\ni"),
        ("in\u200bvi\u2060si\ufeffb\u00adle\u034f", "invisible"),
        ("abc\u202edef\u202c\u200e\u2066\u061c", "abcdef"),
        ("hi\U000e0069\U000e0067\U000e007f", "hi"),
        ("a\ufe0f\ufe0fb\U000e0101\ufe00", "ab"),
        ("pass\u200dword\u200c", "password"),
        ("a\ud83d!", "a\ufffd!"),
        ("\u3164\uffa0\u1160x", "x"),
        ("日本語 naïve Ærø ١٢", "日本語 naïve Ærø ١٢"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # Persian: two words of one
        ("क्\u200dष", "क्\u200dष"),  # Hindi: the half form of a letter
        ("م\u200c\u200d\u200c\u200dن", "م\u200cن"),  # but no bits between letters
        ("👩\u200d🚀 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3", "👩\u200d🚀 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3"),
        ("❤\ufe0f\ufe0f\ufe0e 🚀\u200d\u200d x", "❤\ufe0f 🚀 x"),
        ("🏴\U000e0067\U000e0062\U000e007f", "🏴"),
    ],
)
def test_clean_text(text: str, clean: str) -> None:
    """What a reader cannot see is removed, except where the text would read differently."""
    assert clean_text(text) == clean


def test_clean_text_is_not_copied() -> None:
    """Clean text comes back as it is, without work."""
    text = "nothing to do " * 10
    assert clean_text(text) is text
