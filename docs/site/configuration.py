"""Make docs/configuration.md from the schema of run.yaml: `make snapshots` writes it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from http_reference import as_cell, as_default, as_type

from corral.api.provider import ProviderSpec
from corral.providers.sources.registry import source_specs
from corral.providers.stack.registry import provider_specs
from corral.providers.stack.run_schema import settings_schema

Json = Mapping[str, Any]

PAGE = Path(__file__).parents[1] / "configuration.md"
INTRODUCTION = """\
# Configuration

Every setting has a default, so Corral needs no configuration. To change some, write `run.yaml` in
the data folder (`$CORRAL_HOME`, or `~/.corral`), or name another file with `corral --config FILE`:

```yaml
# yaml-language-server: $schema=run.schema.json
providers:
  vector_io:
    - provider_id: postgres
      provider_type: remote::pgvector
      config: {dsn: "${env.CORRAL_PGVECTOR_DSN:=postgresql://corral@127.0.0.1/corral}"}
server: {port: 8321}
```

The first provider of a kind is the default of new vector DBs. `${env.NAME}` is replaced by an
environment variable, and `${env.NAME:=default}` by the default if the variable is unset or empty;
keep secrets there. A key that is not on this page is an error that names it.

* `corral config show` prints all settings in force, with secrets masked.
* `corral doctor` checks the machine, the settings and the engines, and says what to do.
* `corral config schema > run.schema.json` writes a JSON Schema. Editors with a YAML language
  server, such as VS Code with the extension YAML, then complete and check the file; the first line
  of the example tells them where the schema is. It includes the providers that you installed.

All of these settings exist since version 0.1.0, unless their meaning says otherwise.
`make snapshots` makes this page from the code.
"""


def configuration_page() -> str:
    """Return a page of Markdown with every setting: its type, range, default and meaning."""
    schema = settings_schema()
    of = Settings(schema["$defs"])
    sections = {name: of.section(node) for name, node in schema["properties"].items()}
    plain = {name: schema["properties"][name] for name, section in sections.items() if not section}
    parts = [INTRODUCTION, "## Top level\n", *of.table({"properties": plain}, "")]
    for name, section in sections.items():
        if section and name not in {"providers", "sync"}:
            parts += [f"## `{name}`\n", *of.table(section, f"{name}.")]
    sync = schema["$defs"]["SyncEntry"]
    parts += ["## `sync`\n", "Each entry of the list:\n", *of.table(sync, "")]
    for rule in sync["properties"]["source"]["allOf"]:
        name, settings = rule["if"]["properties"]["type"]["const"], rule["then"]
        parts.append(f"### Source `{name}`\n\n{source_specs()[name].description}\n")
        del settings["properties"]["type"]
        parts += of.table(settings, "")
    parts += ["## `providers`\n", *of.table(schema["$defs"]["Providers"], "providers.")]
    parts.append("An entry of each list:\n")
    parts += of.table(schema["$defs"]["vector_io_provider"], "")
    for spec in provider_specs().values():
        parts += _provider(spec, of, schema["$defs"])
    return "\n".join(parts)


def _provider(spec: ProviderSpec, of: Settings, definitions: Json) -> Iterator[str]:
    yield f"### `{spec.provider_type}` ({spec.api})\n"
    folder = spec.config.partition(":")[0].split(".")[1:-1]
    readme = posixpath.join(*folder, "README.md")
    extra = f'extra == "{spec.extra}"'
    needs = any(extra in each for each in metadata.requires("corral-rag") or ())
    install = f" Needs `pip install 'corral-rag[{spec.extra}]'`." if needs else ""
    yield f"{spec.description.rstrip('.')}.{install} [More](../{readme})\n"
    for rule in definitions[f"{spec.api}_provider"]["allOf"]:
        if rule["if"]["properties"]["provider_type"]["const"] == spec.provider_type:
            rows = [*of.table(of.section(rule["then"]["properties"]["config"]) or {}, "")]
            yield from rows or ["It has no settings.\n"]


class Settings:
    """Tables of the settings of a schema.

    Args:
        definitions: The definitions that it refers to.
    """

    def __init__(self, definitions: Json) -> None:
        self._definitions = definitions

    def section(self, node: Json) -> Json | None:
        """Return the object that a setting holds, or each item of it, if its fields are fixed."""
        for each in node.get("anyOf", (node,)):
            kind = self._resolved(each.get("items", each))
            if "properties" in kind and "allOf" not in kind:
                return kind
        return None

    def table(self, node: Json, path: str) -> list[str]:
        """Return the table of an object's settings, with the settings of its sections."""
        rows = [*self._rows(node, path)]
        return (
            ["| setting | type | default | meaning |\n|---|---|---|---|", *rows, ""] if rows else []
        )

    def _rows(self, node: Json, path: str) -> Iterator[str]:
        for name, field in node["properties"].items():
            values = self._resolved(field.get("additionalProperties") or {})
            section = self.section(field)
            if "properties" in values:
                yield self._row(path, name, {**field, "additionalProperties": True}, node)
                yield from self._rows(values, f"{path}{name}.NAME.")
            elif section is None or field.get("type") == "array" or "anyOf" in field:
                yield self._row(path, name, field, node)
            if section is not None:
                many = "[]" if field.get("type") == "array" else ""
                yield from self._rows(section, f"{path}{name}{many}.")

    def _row(self, path: str, name: str, field: Json, node: Json) -> str:
        kind = as_type(self._without_references(field))
        default = as_default(field, required=name in node.get("required", ()))
        return f"| `{path}{name}` | {kind} | {default} | {as_cell(field.get('description', ''))} |"

    def _resolved(self, node: Any) -> Json:
        """Return the definition that a node refers to, or the node."""
        if not isinstance(node, Mapping):
            return {}
        reference = node.get("$ref", "").rpartition("/")[2]
        return {**self._definitions[reference], **node} if reference else node

    def _without_references(self, node: Any) -> Any:
        """Return a node without references; an object with rows of its own has no fields here."""
        if isinstance(node, list):
            return [self._without_references(each) for each in node]
        if not isinstance(node, Mapping):
            return node
        resolved = {key: value for key, value in self._resolved(node).items() if key != "$ref"}
        if "properties" in resolved:
            return {"type": "object"}
        return {key: self._without_references(value) for key, value in resolved.items()}


if __name__ == "__main__":
    PAGE.write_text(configuration_page(), "utf-8")
