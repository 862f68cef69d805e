"""A report whose every text tries to be something else."""

from __future__ import annotations

from typing import Any

from corral.bench.report.report import Report

PAYLOADS = (
    "<script>window.pwned = 1</script>",
    "\"'><img src=http://127.0.0.1:9/x onerror='window.pwned = 2'>",
    "</style></title></svg><svg onload='window.pwned = 3'>",
    "| a | b |\n\n# Heading\n\n[link](http://127.0.0.1:9) ![i](http://127.0.0.1:9/i.png) `code`",
    "<!-- --> *bold* _it_ ~~gone~~ http://127.0.0.1:9/auto www.example.org @someone \\",
    "\u202egnp.exe\u2066 \x00\x07 &lt;b&gt; &#60; ﷽ 漢字 ̈",
)

_SECTIONS = ("quality", "builds", "speed", "failures")


def hostile(report: Report) -> Report:
    """Return the report with payloads in every text of it that a user or a backend can choose.

    Names get a payload each, alike wherever they occur, so that rows still belong together.
    """
    data = report.model_dump(mode="json")
    rows = [row for name in _SECTIONS for row in data[name]]
    names = {row["backend"] for row in rows} | {row["data_set"] for row in rows if row["data_set"]}
    renamed = {
        name: f"{at} {PAYLOADS[at % len(PAYLOADS)]}" for at, name in enumerate(sorted(names))
    }
    failure = ("backend", "stage", "message", "mode")
    poisoned: dict[str, Any] = _renamed(data, renamed) | {
        "command": " ".join(PAYLOADS),
        "notes": list(PAYLOADS),
        "embedding_model": PAYLOADS[1],
        "packages": dict.fromkeys(PAYLOADS, PAYLOADS[0]),
        "hardware": {**data["hardware"], "cpu": PAYLOADS[2], "system": PAYLOADS[3]},
        "failures": [dict.fromkeys(failure, payload) for payload in PAYLOADS],
    }
    return Report.model_validate(poisoned)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _changed(key, item, names) for key, item in value.items()}
    return value


def _changed(key: str, value: Any, names: dict[str, str]) -> Any:
    match key:
        case "backend" | "data_set" | "name" if value in names:
            changed: Any = names[value]
        case "baseline" if value:
            backend, colon, mode = value.partition(":")
            changed = names.get(backend, backend) + colon + mode
        case "query_texts":
            changed = {query: PAYLOADS[at % len(PAYLOADS)] for at, query in enumerate(value)}
        case "excerpts":
            changed = {
                f"{key}{PAYLOADS[0]}": f"{PAYLOADS[1]} {value}" for key, value in value.items()
            }
        case "document_id":
            changed = f"{value}{PAYLOADS[0]}"
        case "sha256":
            changed = dict(zip(PAYLOADS, value.values(), strict=False))
        case "statement" | "note" | "variant" | "fusion" if value:
            changed = f"{value} {PAYLOADS[0]} {PAYLOADS[3]}"
        case "registration":
            changed = {**value, PAYLOADS[0]: PAYLOADS[1]}
        case _:
            changed = _renamed(value, names)
    return changed
