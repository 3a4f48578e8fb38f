"""Types for the fields of dataclasses that are stored as JSON. pydantic reads, checks and writes them.

A field is stored under its own name. One marked `if_any` or `if_known` is left out while it says nothing; every other
field is always written. A number is never read from text or from true, and a text never from a number.
"""

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    AfterValidator,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
)
from pydantic_core import PydanticKnownError

T = TypeVar("T")
WORD = "[a-z][a-z0-9]*(-[a-z0-9]+)*"  # the shape of a unit: record, class-share
METRIC = f"{WORD}(@[0-9.e-]+)?"  # the shape of a metric's name: auc, epsilon-one-run, tpr@0.01


def _of_usual_size(value: int) -> int:
    if abs(value) >= 2**63:  # many readers of JSON could not hold it
        raise PydanticKnownError("int_type")
    return value


def _unknown(value: Any) -> bool:
    """None, or a number that JSON cannot hold: NaN or infinity; also as an end of an interval."""
    numbers = value if isinstance(value, list | tuple) else (value,)
    return value is None or any(isinstance(n, Real) and not math.isfinite(n) for n in numbers)


def _read_known(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError as refused:
        if refused.errors()[0]["type"] == "finite_number":
            return None
        raise


def _write_known(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return None if _unknown(value) else write(value)


def _write_list(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return write(list(value))


Flag = Annotated[bool, Field(strict=True), PlainSerializer(bool)]
Whole = Annotated[int, Field(strict=True), AfterValidator(_of_usual_size), PlainSerializer(int)]
Count = Annotated[int, Field(strict=True, ge=0), AfterValidator(_of_usual_size), PlainSerializer(int)]
Positive = Annotated[int, Field(strict=True, ge=1), AfterValidator(_of_usual_size), PlainSerializer(int)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False), PlainSerializer(float)]
# A number or an interval, or null: NaN and infinity become null.
OrNull = Annotated[T | None, WrapValidator(_read_known), WrapSerializer(_write_known)]
# Any sequence is written as a list; a list is read as a tuple.
Many = Annotated[
    Sequence[T],
    GetPydanticSchema(lambda sequence, handler: handler.generate_schema(list[get_args(sequence)])),  # type: ignore[misc]
    AfterValidator(tuple),
    WrapSerializer(_write_list),
]


def if_any(description: str | None = None) -> Any:
    """For a field that is left out of the file while it is empty."""
    return Field(exclude_if=operator.not_, description=description)


def if_known(description: str | None = None) -> Any:
    """For a field that is left out of the file while it is None."""
    return Field(exclude_if=_unknown, description=description)


def sometimes(description: str | None = None) -> Any:
    """For a field that not every file has, although its value alone never leaves it out: the schema does not ask for
    it."""
    return Field(exclude_if=lambda _: False, description=description)
