"""What is stored: dataclasses as JSON files and back, and the published JSON Schema of results.json, by pydantic.

`fedaudit.types.stored` has the types of their fields. Unknown keys are ignored, because a later version may have
written them. After you add a field, run `python -m fedaudit.results.schema` to write the schema again; a test compares
the two.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.files import write_atomically
from fedaudit.trace.journal import AGAIN, Seal, verify
from fedaudit.trace.segments import checksum
from fedaudit.types.stored import Positive

SCHEMA = 1  # of results.json, advice.json and study.json
MAX_BYTES = 512 * 2**20
T = TypeVar("T")
SCHEMA_FILE = Path(__file__).with_name("results.schema.json")
NEEDED = {  # by the types of pydantic's errors
    "missing": "it is missing",
    "string_type": "text is needed",
    "bool_type": "true or false is needed",
    "int_type": "a whole number is needed",
    "float_type": "a number is needed",
    "finite_number": "a finite number is needed",
    "greater_than_equal": "a number of at least {ge:g} is needed",
    "greater_than": "a number above {gt:g} is needed",
    "less_than": "a number below {lt:g} is needed",
    "literal_error": "{expected} is needed",
    "list_type": "a list is needed",
    "tuple_type": "a list is needed",
    "too_long": "a list of {max_length} is needed",
    "dict_type": "an object is needed",
    "dataclass_type": "an object is needed",
}


class UnreadableError(ValueError):
    """A value does not have its declared type. The message says where, and never quotes the value."""


# ------------------------------------------------------------------ writing and reading


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON values. NaN and infinity become null where null is allowed, and an estimate says why."""
    kind: Any = type(value)
    written: dict[str, Any] = _adapter(kind).dump_python(value, mode="json", warnings=False)
    return written


def as_text(value: Any) -> str:
    """A dataclass as the text of a JSON file. `UnreadableError` names a number that is NaN or infinite nevertheless."""
    written = plain(value)
    try:
        return json.dumps(written, indent=1, allow_nan=False) + "\n"
    except ValueError:
        read(type(value), written)
        raise


def read(kind: type[T], value: Any) -> T:
    """Reads what `plain` wrote. `UnreadableError` says what does not have its declared type."""
    wanted: Any = kind
    try:
        found: T = _adapter(wanted).validate_python(value)
    except ValidationError as refused:
        first = refused.errors(include_url=False, include_input=False)[0]
        needed = NEEDED.get(first["type"], "another value is needed").format(**first.get("ctx", {}))
        path = _path(first["loc"])
        raise UnreadableError(f"{path}: {needed}" if path else needed) from None
    return found


def _path(places: tuple[int | str, ...]) -> str:
    parts = (f".{place}" if str(place).isidentifier() else f"[{place!r}]" for place in places)
    return "".join(parts).removeprefix(".")


# ------------------------------------------------------------------ files


@dataclass(frozen=True)
class Version:
    """The only key that every version has."""

    schema: Positive


def save_as(value: Any, path: Path, seal: Seal) -> Path:
    blob = as_text(value).encode()
    seal({path.name: checksum(blob)})
    write_atomically(path, blob)
    return path


def read_file(kind: type[T], path: Path, remedy: str = AGAIN) -> T:
    """What `save_as` wrote, if it is as it was written. A newer schema is refused, an older one is read. Any other
    ValueError, RecursionError or OSError: the file is something else."""
    if path.stat().st_size > MAX_BYTES:
        raise ValueError
    blob = path.read_bytes()
    verify(path, checksum(blob), remedy)
    values = json.loads(blob)
    if (found := read(Version, values).schema) > SCHEMA:
        what = f"{path} has schema {found}, this fedaudit reads up to {SCHEMA}"
        raise FedauditError("schema-newer", what, "Install a newer fedaudit.", exit_code=REFUSED)
    return read(kind, values)


# ------------------------------------------------------------------ the published schema


class Published(GenerateJsonSchema):
    """The shape of what is written, without titles and defaults. No key is there but those that have a field."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        found = super().dataclass_schema(schema) | {"additionalProperties": False}
        return {key: value for key, value in found.items() if key != "title"}

    def dataclass_field_schema(self, schema: core_schema.DataclassField) -> dict[str, Any]:
        """A field that is left out while it is None is never null in the file."""
        found, left_out = super().dataclass_field_schema(schema), schema.get("serialization_exclude_if")
        if left_out and left_out(None) and "anyOf" in found:
            (found,) = (each for each in found["anyOf"] if each != {"type": "null"})
        return found

    def field_is_required(self, field: Mapping[str, Any], total: bool) -> bool:
        return "serialization_exclude_if" not in field

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def ser_schema(self, schema: Any) -> None:
        """What a field is written as has the shape of what it is read from."""


def schema() -> dict[str, Any]:
    from fedaudit.results.document import Document

    title = f"fedaudit results, schema {SCHEMA}"
    return {"$schema": Published.schema_dialect, "title": title} | of_kind(Document)


def of_kind(kind: Any) -> dict[str, Any]:
    return _adapter(kind).json_schema(schema_generator=Published, mode="serialization")


def main() -> None:
    write_atomically(SCHEMA_FILE, json.dumps(schema(), indent=1) + "\n", mode=0o644)
    print(SCHEMA_FILE)


if __name__ == "__main__":
    main()
