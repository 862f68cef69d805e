"""The JSON schema of run.yaml, with the settings of every installed provider and source.

Editors complete and check the file with it; docs/configuration.md is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import is_dataclass
from inspect import cleandoc
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import core_schema

from corral.api.provider import Api
from corral.providers.base.config import RunConfig
from corral.providers.sources.registry import config_class as source_class
from corral.providers.sources.registry import source_specs
from corral.providers.stack.registry import config_class, provider_specs

Json = dict[str, Any]

_REF = "#/$defs/{}"
_VARIABLE = {"type": "string", "pattern": r"\$\{env\.[A-Za-z_][A-Za-z0-9_]*(:=[^}]*)?\}"}
_ANNOTATIONS = ("title", "description", "default")
_ATTRIBUTE = re.compile(r"^    (\w+(?:, \w+)*): (.+(?:\n {5,}.+)*)", re.MULTILINE)


class _Generator(GenerateJsonSchema):
    """Describes each field: by its own description, or by its line in the class's docstring."""

    def model_schema(self, schema: core_schema.ModelSchema) -> Json:
        """Return the schema of a model."""
        made = _described(schema["cls"], super().model_schema(schema))
        for name, field in schema["cls"].model_fields.items():
            default = field.get_default(call_default_factory=True)
            if isinstance(default, SecretStr):  # pydantic masks it
                made["properties"][name]["default"] = default.get_secret_value()
            elif default in ([], {}):  # pydantic calls no factory
                made["properties"][name]["default"] = default
        return made

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Json:
        """Return the schema of a dataclass."""
        return _described(schema["cls"], super().dataclass_schema(schema))


def settings_schema() -> Json:
    """Return the schema of run.yaml after `${env.NAME}` is replaced.

    Raises:
        ConfigError: Two packages claim a type, or the settings of a type cannot be imported.
    """
    providers = {key: config_class(spec) for key, spec in provider_specs().items()}
    sources = {name: source_class(spec) for name, spec in source_specs().items()}
    mode: JsonSchemaMode = "validation"
    models: list[type[BaseModel]] = [RunConfig, *providers.values(), *sources.values()]
    references, schema = models_json_schema(
        [(model, mode) for model in dict.fromkeys(models)], schema_generator=_Generator
    )
    definitions = schema["$defs"]
    entry = definitions.pop("ProviderEntry")
    for api in Api:
        types = {
            kind: references[model, mode] for (of, kind), model in providers.items() if of is api
        }
        definitions[f"{api}_provider"] = _chosen(entry, "provider_type", "config", types)
        definitions["Providers"]["properties"][api]["items"] = {
            "$ref": _REF.format(f"{api}_provider")
        }
    source = definitions["SyncEntry"]["properties"]["source"]
    source.pop("additionalProperties")
    source |= {
        "required": ["type"],
        "properties": {"type": {"enum": [*sources]}},
        "allOf": [
            _if("type", name, _with_type(definitions, references[model, mode]))
            for name, model in sources.items()
        ],
    }
    top = definitions.pop("RunConfig")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **top,
        "title": "Corral's run.yaml",
        "$defs": definitions,
    }


def editor_schema() -> Json:
    """Return the schema of run.yaml as it is written, with `${env.NAME}` in any setting.

    Raises:
        ConfigError: See `settings_schema`.
    """
    schema = settings_schema()
    for node in (schema, *schema["$defs"].values()):
        for name, field in node.get("properties", {}).items():
            node["properties"][name] = _or_variable(field)
    return schema


def _described(cls: type, schema: Json) -> Json:
    lines: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, BaseModel) or is_dataclass(base):
            lines |= _attributes(base.__doc__ or "")
    for name, field in schema.get("properties", {}).items():
        if "description" not in field and name in lines:
            field["description"] = lines[name]
        field.pop("title", None)
        if "$ref" in field:
            field.pop("default", None)  # The settings of a section have their own.
    if "description" in schema:
        schema["description"] = schema["description"].partition("\n\nAttributes:")[0]
    return schema


def _attributes(docstring: str) -> Iterable[tuple[str, str]]:
    """Return the lines of a docstring's `Attributes` by name."""
    section = cleandoc(docstring).partition("\nAttributes:\n")[2].partition("\n\n")[0]
    return [
        (name, " ".join(match[2].split()))
        for match in _ATTRIBUTE.finditer(section)
        for name in match[1].split(", ")
    ]


def _chosen(entry: Json, key: str, field: str, types: dict[str, Json]) -> Json:
    """Return the schema of an entry with a field that depends on the entry's type."""
    properties = {**entry["properties"], key: {**entry["properties"][key], "enum": [*types]}}
    rules = [
        _if(key, name, {"properties": {field: reference}}) for name, reference in types.items()
    ]
    return {**entry, "properties": properties, "allOf": rules}


def _if(key: str, value: str, then: Json) -> Json:
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _with_type(definitions: Json, reference: Json) -> Json:
    """Return a source's settings, to which an entry of `sync` adds the type."""
    settings = definitions.pop(reference["$ref"].rpartition("/")[2])
    return {**settings, "properties": {"type": {"type": "string"}, **settings["properties"]}}


def _or_variable(field: Json) -> Json:
    """Return the schema of a setting, or of a text with a variable in its place."""
    kinds = {"integer", "number", "boolean"}
    scalar = {each.get("type") for each in field.get("anyOf", (field,))} & {*kinds, "string"}
    free_text = field.keys() <= {"type", *_ANNOTATIONS} and field["type"] == "string"
    if free_text or not scalar:
        return field
    shown = {key: field[key] for key in _ANNOTATIONS if key in field}
    rest = {key: value for key, value in field.items() if key not in shown}
    return {**shown, "anyOf": [rest, _VARIABLE]}
