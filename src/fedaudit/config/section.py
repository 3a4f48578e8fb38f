"""What all sections of a configuration share: types of numbers, and errors with a code, a place and a remedy."""

from collections.abc import Mapping
from typing import Annotated, Any, LiteralString, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fedaudit.errors import suggest

Fraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]  # more than anybody can mean, and than memory can hold

UNKNOWN_KEY = "unknown-key"

# What a writer of TOML is told, where pydantic speaks of Python.
WORDS = {
    "tuple_type": "a list is needed, in brackets",
    "model_type": "a section with keys of its own is needed",
    "bool_parsing": "true or false is needed",
    "too_short": "it has too few entries",
}


def refused(code: LiteralString, key: str, what: str, todo: str) -> ValidationError:
    """An error with our own code and remedy, as a pydantic error, which also knows the key that it is about."""
    kind = PydanticCustomError(code, "{what}", {"what": what, "todo": todo})
    return ValidationError.from_exception_data("configuration", [{"type": kind, "loc": (key,), "input": None}])


class Section(BaseModel):
    """A table in TOML. An unknown key is an error with a suggestion."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, given: Any) -> Any:
        for key in given if isinstance(given, Mapping) else ():
            if key not in cls.model_fields:
                raise refused(UNKNOWN_KEY, str(key), "unknown key", suggest(str(key), cls.model_fields))
            kind = cls.model_fields[key].annotation
            if _is_truth(given[key]) and _may_be(kind, int, float) and not _may_be(kind, bool, Any):
                raise refused("bad-value", str(key), "a number is needed, and not true or false", f"Correct {key}.")
        return given


def _is_truth(value: Any) -> bool:
    """true or false, alone or in a list: Python takes them for 1 and 0."""
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_is_truth, value)))


def _may_be(annotation: Any, *kinds: Any) -> bool:
    return annotation in kinds or any(_may_be(part, *kinds) for part in get_args(annotation))
