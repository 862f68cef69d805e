"""Characters that a reader of a text cannot see, and the text without them."""

from __future__ import annotations

import re

# Soft hyphen, zero-width and bidirectional controls, fillers, invisible operators, annotations,
# tags, and variation selectors (each can hide a byte).
UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters other than line breaks
_BREAKS = "\v\f\r\x1c-\x1f\x85\u2028\u2029"
JOINERS = "\u200c\u200d"
STYLES = "\ufe0e\ufe0f"  # an emoji as text, as a picture
EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_STYLED = f"{EMOJI}#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139\u3030\u303d\u3297\u3299"
_CURSIVE = "\u0600-\u1aff\ua840-\uabff"  # Arabic to Tai Tham: blocks where joiners change letters

_SUSPECT = re.compile(f"[{CONTROLS}{_BREAKS}{UNSEEN}{JOINERS}{STYLES}\ud800-\udfff]")
_LINE_BREAK = re.compile(f"\r\n|[{_BREAKS}]")
_STRAY = re.compile(f"[{CONTROLS}{UNSEEN}]|(?<![{_STYLED}])[{STYLES}]")
_STRAY_JOINER = re.compile(
    f"(?<![{_CURSIVE}])\u200c|(?<![{_CURSIVE}{EMOJI}{STYLES}])\u200d"
    f"|(?<=[{EMOJI}{STYLES}])\u200d(?![{EMOJI}])"
)


def clean_text(text: str) -> str:
    r"""Return the text without characters that a reader cannot see, for embedding and storage.

    Invisible characters can carry instructions past a reader to a model (OWASP Top 10 for LLM
    applications, LLM01), and a NUL ends a string in several engines. The function removes control
    characters, zero-width and bidirectional controls, soft hyphens, tags (U+E0000 to U+E0FFF) and
    variation selectors. Line and page breaks become `\n`; `\n` and `\t` stay. A lone surrogate,
    which no encoding can store, becomes U+FFFD.

    Three kinds stay, because the text would read differently without them: one joiner (U+200C,
    U+200D) after a letter of the Arabic, Indic and neighboring scripts, which controls how letters
    connect; U+200D between two emoji, which makes them one picture; one U+FE0E or U+FE0F after an
    emoji. A flag spelled in tags, such as Scotland's, becomes a plain black flag.

    Idempotent. Text without such characters is returned unchanged, after one scan.
    """
    if not _SUSPECT.search(text):
        return text
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return _STRAY_JOINER.sub("", _STRAY.sub("", _LINE_BREAK.sub("\n", text)))
