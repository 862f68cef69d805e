"""A string is text: nothing that was not made by `tag` becomes markup."""

from __future__ import annotations

import pytest

from corral.bench.report.markup import Html, joined, tag

from .hostile import PAYLOADS


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_is_escaped_in_content_and_attributes(payload: str) -> None:
    """No `<`, `>` or quote of a text survives; unprintable characters become U+FFFD."""
    made = tag("p", payload, title=payload)
    inside = made.removeprefix('<p title="').removesuffix("</p>")
    value, _, content = inside.partition('">')
    assert not set(value) & {"<", ">", '"'}
    assert not set(content) & {"<", ">"}
    assert not any(character in made for character in "\x00\x07\u202e\u2066")


def test_markup_is_not_escaped_twice() -> None:
    """An element inside an element stays one, in iterables too."""
    assert tag("ul", [tag("li", "a&b"), None, "<"]) == "<ul><li>a&amp;b</li>&lt;</ul>"


def test_attributes_are_written_as_html_has_them() -> None:
    """Underscores are dashes, one at the end is dropped, None and False are absent."""
    made = tag("td", class_="n", aria_label="x", open=True, hidden=False, id=None, width=1.5)
    assert made == '<td class="n" aria-label="x" open width="1.5"></td>'


def test_plain_strings_never_gain_trust() -> None:
    """Only Html passes unescaped; text that looks like markup, joined or formatted, does not.

    If this fails: an f-string around markup would reach the page as it is.
    """
    trusted = tag("b", "x")
    assert joined(f"{trusted}") == "&lt;b&gt;x&lt;/b&gt;"
    assert isinstance(joined("a"), Html)
