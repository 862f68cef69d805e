"""SVG as nested calls. A string is text and is escaped; only `tag` makes markup.

    tag("text", "a < b", x=8)   ->   <text x="8">a &lt; b</text>

So what a user wrote cannot become markup: there is no way to say that it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "br", "hr", "link", "input"})
"""Elements that have no end tag."""

# What HTML does not allow in a text, and the marks that turn the direction of what follows them.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Html(str):
    """Markup; made by `tag` and `joined` only."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return it as it is; Jinja escapes what has no such method."""
        return self


Content = str | Html | Iterable["Content"] | None
Attribute = str | int | float | bool | None


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Html:
    """Return an element.

    Args:
        name: Of the element.
        content: Texts (escaped), markup, iterables of both; None is nothing.
        attributes: An underscore at the end is dropped, others are dashes (`class_`, `aria_label`).
            None and False leave the attribute out, True gives it without a value.
    """
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{head}>")
    return Html(f"<{head}>{joined(content)}</{name}>")


def joined(content: Content) -> Html:
    """Return texts and markup one after the other, the texts escaped."""
    if content is None:
        return Html()
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return Html(escape(clean(content)))
    return Html("".join(joined(part) for part in content))


def clean(text: str) -> str:
    """Return a text with each character that may not or should not be shown as U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def _attribute(name: str, value: Attribute) -> str:
    written = name.removesuffix("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {written}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {written}="{escape(clean(text))}"'
