"""Terms beside the words: symbols, numbers, identifiers, codes and emoji as a whole.

Words (`words.py`) are letters, marks and numbers; other characters separate them. Words alone would
not distinguish C++ from C#, and would split identifiers and numbers. A text also has terms for

* *symbols that belong to a word*: `C++`, `C#`, `.NET`, `R&D`, `I/O`, `#tag`, `@name`, `-40`;
* *numbers*, in one form for all their spellings: `1,102,900`, `1.102.900`, `1 102 900` and
  `1'102'900` have the term 1102900, and `2.50`, `2,50` and `2.5` meet; versions and addresses
  (`3.14.1`, `192.168.0.1`) have a term for each beginning of two or more of their numbers;
* *identifiers*: `getUserById` is also `get`, `user` and `id`, and `node.js` also `nodejs`;
* *codes*: hashes, UUIDs and order numbers, by their beginnings of `MIN_PREFIX` and more characters;
* *emoji and other symbols*, each by itself; of a sequence (a flag, a skin tone, a family) also the
  whole.

In a term, ASCII symbols are replaced by their full-width forms (`c＋＋`), so no term contains a
character with a meaning in a query language. All rules except the two for groups of digits with
spaces read a text part by part, between white space; one scan (`_HINTS`) skips most parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from corral.api.invisible import (
    CONTROLS,
    EMOJI,
    JOINERS,
    STYLES,
    UNSEEN,
    clean_text,
)
from corral.providers.text.words import normalized

_MAX_PARTS = 8  # Maximum number of parts of a dotted name.

MIN_PREFIX = 7
"""Shortest prefix of a code that is a term, in characters: as long as the hashes of `git log`."""

_EVERY_PREFIX = 16  # Up to this length, all prefixes are terms; beyond it, every fourth.

POINT_LANGUAGES = frozenset(
    {"arabic", "burmese", "chinese", "english", "hindi", "irish", "japanese", "khmer", "korean"}
    | {"nepali", "simple", "tamil", "thai", "yiddish"}
)
"""Languages with a decimal point; all others have a decimal comma."""


class Beside(NamedTuple):
    """A term, its spelling in the text, and its number in a query."""

    term: str
    written: str
    times: int = 1


# --- Where to look --------------------------------------------------------------------------------

_SPACES = " \u00a0\u2007\u2009\u202f"  # These separate groups of digits.
_HIDDEN = f"{CONTROLS}{UNSEEN}{JOINERS}{STYLES}\ud800-\udfff"
# Symbols beyond ASCII, and characters that NFKC maps to ASCII symbols. Extra ones do no harm.
_HIGH = (
    "\u00a2-\u00a9\u00ac-\u00b1\u00b4\u00b6\u00d7\u00f7\u02d8-\u02dd\u03f6\u058d-\u058f"
    "\u0606-\u0608\u060b\u060e\u060f\u066a-\u066c\u06de\u06e9\u07f6\u07fe\u07ff\u09f2-\u09fb"
    "\u0af1\u0b70\u0bf3-\u0bfa\u0e3f\u17db\u2020\u2021\u2030\u2031\u203b\u2044\u2052"
    "\u207a-\u207c\u208a-\u208c\u20a0-\u20ff\u2100-\u2bff\u3004\u3012\u3013\u3020\u3036\u3037"
    "\u3200-\u33ff\ufb29\ufdfc\ufe59-\ufe6f\uff03-\uff07\uff0a\uff0b\uff0d-\uff19"
    "\uff1c-\uff1e\uff20-\uff40\uff5b-\uff5e\uffe0-\uffee\ufffc\ufffd"
    f"{EMOJI}\U0001d400-\U0001d7ff"
)
_OTHER_DIGITS = "\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef"


def _hints(spaces: str, beyond: str) -> re.Pattern[str]:
    """Return a pattern for the positions at which a rule can apply, up to the end of the part.

    It may match at more positions. It starts with a character class, for a fast scan, and looks
    around only at matches.
    """
    return re.compile(
        f"[A-Z0-9+#&@$%./<=>^~|*{beyond}](?:"
        # a number, matched at its first digit
        "(?<=[0-9])(?<![0-9].)(?:"
        f"[0-9]*+(?=[.,'\u2019][0-9]|[{spaces}][0-9]{{3}})"
        "|(?=[0-9A-Za-z_\\-\u2010\u2011]{5})"
        "|(?<=-.)(?<![0-9A-Za-z]-.)"
        ")"
        # getUser, base64Decode, HTTPResponse
        "|(?<=[0-9A-Za-z][A-Z])(?:(?<=[a-z].)|(?<=[0-9].)(?=[a-z])|(?<=[A-Z].)(?=[a-z]{2}))"
        "|(?<![A-Z0-9])(?:"
        "(?<=\\.)(?=[A-Za-z])"
        "|(?<=[^./*])"  # a symbol
        "|(?<=[0-9A-Za-z]/)(?=[0-9A-Za-z]{1,3}(?![0-9A-Za-z]))"
        "|(?<=[A-Za-z]\\*)"
        "))\\S*"
    )


_ASCII_HINTS = _hints(" ", "\x00-\x08\x0e-\x1b\x7f")
_HINTS = _hints(_SPACES, f"{_HIDDEN}{_HIGH}{_OTHER_DIGITS}\u2212")
_SUSPECT = re.compile(f"[{_HIDDEN}]")

_GROUPS = re.compile(
    f"(?<![0-9A-Za-z_.,'])(?<![0-9][{_SPACES}])[0-9]{{1,3}}(?:[{_SPACES}][0-9]{{3}}){{1,5}}(?:[.,][0-9]+)?"
    f"(?![0-9A-Za-z_]|[{_SPACES}][0-9])"
)
_NEXT_GROUP = re.compile(f"[0-9][{_SPACES}][0-9]{{3}}(?![0-9A-Za-z_])")
_PHONE = re.compile(
    f"(?<![0-9A-Za-z_])\\+[0-9]{{1,4}}(?:[{_SPACES}().-]{{1,2}}[0-9]{{1,5}}){{1,7}}"
)


def hinted(text: str) -> tuple[str, list[str], list[int]]:
    """Return the places of a text that can have terms beside the words.

    Returns:
        The text, without invisible characters if a part has one; the parts between white space to
        which a rule can apply; and the places at which such a part ends and a group of digits can
        follow, or a telephone number begins.
    """
    parts: list[str] = []
    joined: list[int] = []
    end, clean = 0, False
    plain = text.isascii()
    for hint in (_ASCII_HINTS if plain else _HINTS).finditer(text):
        place = start = hint.start()
        if not clean and (not hint[0].isprintable() if plain else _SUSPECT.search(hint[0])):
            if (cleaned := clean_text(text)) != text:
                return hinted(cleaned)
            clean = True
        before = text[end:place]
        if before and not before[-1].isspace():
            start -= len(before.rsplit(None, 1)[-1])
        end = hint.end()
        if text[place] == "+":
            joined.append(place)
        if "0" <= text[end - 1] <= "9" and _NEXT_GROUP.match(text, end - 1):
            joined.append(end - 1)
        parts.append(text[start:end])
    return text, parts, joined


# --- The parts of a text --------------------------------------------------------------------------

# Letters of scripts with spaces: in other scripts a Latin part is a word by itself.
_L = "0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0370-\u052f\u1e00-\u1fff"
_W = f"{_L}_"
_AFFIXES = re.compile(
    f"(?<![{_W}+#])(?P<name>[A-Za-z][{_W}]*)(?P<sign>\\+\\+|#|\\+)(?P<more>(?<=\\+\\+)[0-9]+)?(?![{_W}+#])"
    f"|(?<![{_W}*])[A-Za-z]\\*(?![{_W}*])"
    f"|(?<![{_W}&./:#@$+-])(?:[#@]|\\$(?=[A-Za-z_]))[{_W}]+"
    f"|(?<![{_W}.)\\]/])\\.[A-Za-z][{_W}]*"
    f"|(?<![{_W}&])[{_W}]+(?:&[{_W}]+)+"
    f"|(?<![{_W}/.:])[{_W}]{{1,3}}(?:/[{_W}]{{1,3}})+(?![{_W}/.])"
    f"|(?<![{_W}])[{_W}][{_W}.+-]{{0,63}}@[{_W}][{_W}-]*(?:\\.[{_W}][{_W}-]*)+"
)
_NUMBER = re.compile(
    f"(?<![{_W}.,'])(?P<minus>(?<![{_W})\\]}}%+-])-)?(?P<digits>[0-9]+(?:[.,'\u066b\u066c][0-9]+)*)"
)
_DOTTED = re.compile(f"(?<![{_W}.])[{_W}]+(?:\\.[{_W}]+)+(?![{_W}])")
_NAME = re.compile(f"(?<![{_L}])[0-9A-Za-z]{{4,64}}(?![{_L}])")
_PARTS = re.compile("u+d*(?=ull)|u?l+d*|u+d*|d+")
_KINDS = str.maketrans(
    {**{chr(n): "u" for n in range(65, 91)}, **{chr(n): "l" for n in range(97, 123)}}
    | {chr(n): "d" for n in range(48, 58)}
)
_CODE = re.compile(f"(?<![{_L}-])[0-9a-z]+(?:-[0-9a-z]+)*(?![{_L}-])")
_LOWER = str.maketrans({**{chr(n): chr(n + 32) for n in range(65, 91)}, "_": "-"})
_HEX = re.compile("[0-9a-f]+")
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OPERATOR = re.compile("[!-/:-@\\[-`{-~]{1,3}")
_TELLING = re.compile("[$%&+<=>@#^~|]")
_SKIN = "\U0001f3fb-\U0001f3ff"
_SEQUENCE = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3"
    f"|[{EMOJI}][{STYLES}]?[{_SKIN}]?(?:\u200d[{EMOJI}][{STYLES}]?[{_SKIN}]?){{0,9}}"
)
_PUNCTUATION = frozenset("§¶†‡‰‱※")
_NO_SYMBOLS = frozenset("\u2044\ufffc\ufffd")
_MARKED = re.compile("[^\\W\\d].*[＋＃＆＊]|[＃＠].|^．[^\\W\\d]")
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F) if not chr(code).isalnum()}


# Most parts of prose match this, and only the rules of numbers and of `%` apply to them.
_SIMPLE = re.compile("[(\\[<=>~]?([0-9]{1,5})(?:\\.([0-9]{1,2}))?%?[)\\],.:;]*")


class Rules:
    """The rules for terms beside the words, in one language.

    Args:
        words: Returns the terms of the words of a text.
        terms: Returns the terms of one word of ASCII lower-case letters and digits.
        folded: Returns a text in one case and one form.
        language: Its English name.
    """

    def __init__(
        self,
        words: Callable[[str], Sequence[str]],
        terms: Callable[[str], Sequence[str]],
        folded: Callable[[str], str],
        language: str,
    ) -> None:
        self._words, self._terms, self._folded = words, terms, folded
        self._gated = [
            (self._affixes, re.compile("[+#&@$%/<=>^~|*]|\\.[A-Za-z]").search),
            (self._numbers, re.compile("[0-9][.,'\u066b\u066c][0-9]|-[0-9]").search),
            (self._dotted, re.compile(f"[{_W}]\\.[{_W}]").search),
            (self._parts, re.compile("[a-z][A-Z]|[0-9][A-Z][a-z]|[A-Z]{2}[a-z]{2}").search),
            (self._codes, re.compile("[0-9][0-9A-Za-z_-]{5}").search),
        ]
        self._decimal = "." if language in POINT_LANGUAGES else ","

    def of(self, token: str) -> tuple[Beside, ...]:
        """Return the terms beside the words of a part between white space, in order."""
        if simple := _SIMPLE.fullmatch(token):
            percent = (Beside("％", "%"),) if "%" in token else ()
            return (*percent, *_fraction(*simple.groups())) if simple[2] else percent
        terms = [*self._symbols(token)]
        plain = token if token.isascii() else "".join(map(_plain, normalized(token)))
        for rule, may_apply in self._gated:
            if may_apply(plain):
                terms += rule(plain)
        if not terms:
            return ()
        distinct = {one.term: one for one in reversed(terms) if one.term}
        return tuple(
            one if one.written in token else one._replace(written=token)
            for one in reversed(distinct.values())
        )

    def joined(self, text: str, places: Iterable[int]) -> Iterator[Beside]:
        """Yield the numbers of a text that have groups with spaces between; see `hinted`."""
        for place in places:
            if text[place] == "+":
                phone = _PHONE.match(text, place)
                digits = re.sub("[^0-9]", "", phone[0]) if phone else ""
                if phone and 8 <= len(digits) <= 15:
                    yield Beside(digits, phone[0])
                continue
            before = text[max(0, place - 3) : place]
            start = place - len(before) + len(before.rstrip("0123456789"))
            if number := _GROUPS.match(text, start):
                groups = re.split("[^0-9]", number[0])
                signs = re.sub("[0-9]", "", re.sub(f"[{_SPACES}]", " ", number[0]))
                yield from self._number(groups, signs, number[0])

    def _marked(self, text: str) -> str:
        return self._folded(text).translate(_WIDE)[:64]

    def _affixes(self, plain: str) -> Iterator[Beside]:
        """Yield words with the symbols that belong to them, and operators between spaces."""
        for match in _AFFIXES.finditer(plain):
            if match["more"]:
                yield Beside(self._marked(match["name"] + match["sign"]), match[0])
            yield Beside(self._marked(match[0]), match[0])
        if _OPERATOR.fullmatch(plain) and _TELLING.search(plain):
            yield Beside(plain.translate(_WIDE), plain)

    def _numbers(self, plain: str) -> Iterator[Beside]:
        for match in _NUMBER.finditer(plain):
            digits = match["digits"].replace("\u066b", ".").replace("\u066c", ",")
            numbers: list[Beside] = []
            if not digits.isdigit():
                groups = re.split("[.,']", digits)
                numbers = [*self._number(groups, re.sub("[0-9]", "", digits), match["digits"])]
                yield from numbers
            if match["minus"]:
                value = numbers[0].term if numbers else digits
                yield Beside(f"－{value}"[:64], match[0])

    def _number(self, groups: list[str], signs: str, written: str) -> Iterator[Beside]:
        """Yield the readings of digits between separators: as a whole number, with a fraction.

        A separator before three digits joins groups of digits, and one that is the language's
        decimal sign also begins a fraction: a wrong guess adds a term.
        """
        if whole := _grouped(groups, signs):
            yield Beside(whole[:64], written, 1 if signs == self._decimal else len(groups))
            if signs != self._decimal:
                return
        before, last = groups[:-1], signs[-1]
        if last in ".," and (len(signs) == 1 or signs[-2] != last):
            number = before[0] if len(before) == 1 else _grouped(before, signs[:-1])
            if number:
                if len(before) > 1:
                    yield Beside(number[:64], written, len(before))
                yield from _fraction(number, groups[-1], written)

    def _dotted(self, plain: str) -> Iterator[Beside]:
        """Yield versions and addresses by their prefixes, and names as one word."""
        for match in _DOTTED.finditer(plain):
            parts = match[0].split(".")[:_MAX_PARTS]
            first = parts[0][1:] if re.fullmatch("[vV][0-9]+", parts[0]) else parts[0]
            if all(part.isdigit() for part in (first, *parts[1:-1])) and (
                len(parts) > 2 or first != parts[0]
            ):
                numbers = [first, *parts[1:]]
                for length in range(2, len(parts) + 1):
                    yield Beside(self._marked(".".join(numbers[:length])), match[0])
            elif any(len(part) > 1 and not part[0].isdigit() for part in parts):
                if parts[-1].isdigit():
                    yield Beside(self._marked(match[0]), match[0])
                else:
                    for term in self._words("".join(parts).replace("_", "")):
                        yield Beside(term, match[0])

    def _parts(self, plain: str) -> Iterator[Beside]:
        """Yield the words of an identifier that capitals separate."""
        for match in _NAME.finditer(plain):
            name = match[0]
            parts = [
                name[part.start() : part.end()] for part in _PARTS.finditer(name.translate(_KINDS))
            ]
            telling = [part for part in parts if len(part.rstrip("0123456789")) > 1]
            if len(telling) < 2 or max(map(len, telling)) < 3:
                continue
            for part in parts:
                for term in self._words(part) if len(part) > 1 else ():
                    yield Beside(term, name)

    def _codes(self, plain: str) -> Iterator[Beside]:
        """Yield the prefixes of codes."""
        for match in _CODE.finditer(plain.translate(_LOWER)):
            parts = match[0].split("-")
            codes = ["".join(parts)] if len(parts) > 1 and _is_compound(parts) else []
            if not _UUID.fullmatch(match[0]):
                codes += filter(_is_code, parts)
            for code in codes:
                every = range(MIN_PREFIX, min(len(code), _EVERY_PREFIX + 1, 64))
                for length in (*every, *range(_EVERY_PREFIX + 4, min(len(code), 64), 4)):
                    for term in self._terms(code[:length]):
                        yield Beside(term, plain[match.start() : match.end()])

    def _symbols(self, token: str) -> Iterator[Beside]:
        """Yield emoji, sequences of them, and other symbols."""
        if token.isascii():
            for char in "$%":
                if char in token:
                    yield Beside(chr(ord(char) + 0xFEE0), char)
            return
        for match in _SEQUENCE.finditer(token):
            symbols = [char for char in match[0] if char not in f"{STYLES}\u200d"]
            kind = unicodedata.category(symbols[0])
            if kind[0] == "P" or (kind == "Cn" and symbols[0] < "\U0001f000"):
                continue  # A mathematical bracket, or not a character.
            if len(symbols) > 1:
                yield Beside("".join(symbols), match[0])
            for symbol in symbols:
                if not _is_part(symbol) or len(symbols) == 1:
                    yield Beside(symbol, match[0])
        rest = unicodedata.normalize("NFKC", _SEQUENCE.sub(" ", token))
        for char in dict.fromkeys(rest):
            if char in "$%":
                yield Beside(chr(ord(char) + 0xFEE0), char)
            elif _is_symbol(char):
                yield Beside(char, char)


def is_marked(term: str) -> bool:
    """Return True for a word with a symbol that belongs to it."""
    return _MARKED.search(term) is not None


def _plain(char: str) -> str:
    """Return a digit of any script as ASCII, any hyphen as `-`, any apostrophe as `'`."""
    if char in "\u2010\u2011\u2212":
        return "-"
    if char in "\u2018\u2019\u201b\u02bc":
        return "'"
    digit = unicodedata.decimal(char, None)
    return char if digit is None else str(digit)


def _fraction(whole: str, fraction: str, written: str = "") -> Iterator[Beside]:
    """Yield a decimal number, with and without trailing zeros; by default as written."""
    for shown in dict.fromkeys((fraction, fraction.rstrip("0") or "0")):
        yield Beside(f"{whole}．{shown}"[:64], written or f"{whole}.{fraction}")


def _grouped(groups: list[str], signs: str) -> str:
    """Return the digits if all separators join groups of three digits, or Indian groups."""
    first, *others = groups
    if len(set(signs)) != 1 or not 1 <= len(first) <= 3 or first[0] == "0" or len(groups) > 6:
        return ""
    if all(len(group) == 3 for group in others):
        return "".join(groups)
    indian = (
        len(first) < 3 and len(others[-1]) == 3 and all(len(group) == 2 for group in others[:-1])
    )
    return "".join(groups) if indian and signs[0] == "," else ""


def _is_code(part: str) -> bool:
    digits = sum(map(str.isdigit, part))
    return len(part) > MIN_PREFIX and (
        digits >= 5 or (digits >= 2 and _HEX.fullmatch(part) is not None)
    )


def _is_compound(parts: list[str]) -> bool:
    """Return True for UUIDs, and for order numbers such as `ORD-2024-0012345`."""
    joined = "".join(parts)
    return len(joined) > MIN_PREFIX and sum(map(str.isdigit, joined)) >= 6


def _is_part(symbol: str) -> bool:
    """Return True for a symbol that is only meaningful in a sequence."""
    return bool(re.match(f"[{_SKIN}\U0001f1e6-\U0001f1ff0-9#*\u20e3]", symbol))


def _is_symbol(char: str) -> bool:
    if char.isascii() or char in _NO_SYMBOLS:
        return False
    return char in _PUNCTUATION or unicodedata.category(char) in {"Sm", "Sc", "So"}
