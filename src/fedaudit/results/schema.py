"""The published JSON Schema of results.json, generated from the dataclasses.

After you add a field, run `python -m fedaudit.results.schema` to write it again. A test compares the file with this.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

from fedaudit.results.document import SCHEMA, SCHEMA_FILE, Document, write_atomically
from fedaudit.results.plain import Stored, bare, but_none, stored
from fedaudit.types import Rule

Schema = dict[str, Any]
SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema() -> Schema:
    definitions: dict[str, Schema] = {}
    whole = of_kind(Document, definitions)
    title = f"fedaudit results, schema {SCHEMA}"
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": title, **whole, "$defs": dict(sorted(definitions.items()))}


def of_kind(kind: type, definitions: dict[str, Schema]) -> Schema:
    fields = stored(kind)
    return {
        "type": "object",
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
        "properties": {field.name: _property(field, definitions) for field in fields},
    }


def _property(field: Stored, definitions: dict[str, Schema]) -> Schema:
    """A field that is not written when it is None is never null in the file."""
    hint, notes = field.hint, ()
    if get_origin(hint) is Annotated:
        hint, notes = bare(hint), hint.__metadata__
    if field.default is None and not field.always and not field.beside:
        hint = but_none(hint)
    return _noted(_of(hint, definitions), notes)


def _noted(found: Schema, notes: Sequence[Any]) -> Schema:
    for note in notes:
        found |= {note.keyword: note.value} if isinstance(note, Rule) else {"description": note}
    return found


def _of(hint: Any, definitions: dict[str, Schema]) -> Schema:
    if get_origin(hint) is Annotated:
        return _noted(_of(bare(hint), definitions), hint.__metadata__)
    if hint in SIMPLE:
        return {"type": SIMPLE[hint]}
    if hint is Any:
        return {}
    if rest := but_none(hint):
        return _or_null(_of(rest, definitions))
    if dataclasses.is_dataclass(hint):
        return _reference(hint, definitions)
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Literal:
        return {"enum": list(arguments)}
    if kind is Sequence:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if kind is tuple:
        items = [_of(each, definitions) for each in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if kind is Mapping:
        inside = _of(arguments[1], definitions)
        return {"type": "object"} | ({"additionalProperties": inside} if inside else {})
    raise TypeError(f"{hint} has no JSON schema")


def _reference(kind: Any, definitions: dict[str, Schema]) -> Schema:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # entered first, because a type may contain itself
        definitions[kind.__name__] = of_kind(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _or_null(found: Schema) -> Schema:
    if "enum" in found:
        return found | {"enum": [*found["enum"], None]}
    if "type" in found:
        return found | {"type": [found["type"], "null"]}
    return {"anyOf": [found, {"type": "null"}]}


def main() -> None:
    write_atomically(SCHEMA_FILE, json.dumps(schema(), indent=1) + "\n", mode=0o644)
    print(SCHEMA_FILE)


if __name__ == "__main__":
    main()
