"""The settings of remote::openai: what is refused, and what stays secret."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from corral.providers.embedding.openai.config import OpenAIConfig

GOOD: dict[str, Any] = {
    "base_url": "http://127.0.0.1:8080/v1",
    "models": [{"model": "bge", "dimension": 3}],
}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://127.0.0.1/v1",
        "file:///etc/passwd",
        "http://",
        "http://a:99999/v1",
        "http://user:pw@127.0.0.1/v1",
        "http://127.0.0.1/v1?key=1",
        "http://127.0.0.1/v1#x",
    ],
)
def test_bad_urls_are_refused(url: str) -> None:
    """Only a plain http(s) URL is taken; secrets in it would show in the configuration."""
    with pytest.raises(ValidationError):
        OpenAIConfig.model_validate(GOOD | {"base_url": url})


@pytest.mark.parametrize(
    "change",
    [
        {"models": []},
        {"models": [{"model": "bge", "dimension": 3}, {"model": "bge", "dimension": 4}]},
        {"models": [{"model": "bge"}]},
        {"models": [{"model": "bge", "dimension": 0}]},
        {"models": [{"model": "bge", "dimension": 3, "prefix": "x"}]},
        {"api_key": "two\nlines"},
        {"api_key": "schlüssel"},
        {"timeout_seconds": 0},
        {"batch_size": 0},
        {"max_concurrency": 0},
        {"max_retries": -1},
        {"timeout": 3},
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any]) -> None:
    """Values out of range, unknown keys, and keys that fit no header are refused."""
    with pytest.raises(ValidationError):
        OpenAIConfig.model_validate(GOOD | change)


def test_trailing_slash_and_line_break_are_dropped() -> None:
    """The URL's last slash and the key's line break, as files and shells leave it, do not count."""
    config = OpenAIConfig.model_validate(
        GOOD | {"base_url": "http://127.0.0.1:8080/v1/", "api_key": "sk-1\n"}
    )
    assert config.base_url == "http://127.0.0.1:8080/v1"
    assert config.api_key is not None
    assert config.api_key.get_secret_value() == "sk-1"


def test_the_key_stays_secret() -> None:
    """The key appears in no representation or dump of the settings."""
    config = OpenAIConfig.model_validate(GOOD | {"api_key": "sk-secret"})
    assert "sk-secret" not in repr(config) + str(config.model_dump()) + config.model_dump_json()
