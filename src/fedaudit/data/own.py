"""Data from a function of the user's own: `name = "package.module:function"`."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedaudit.config.code import imported
from fedaudit.config.registry import DATA, DataOptions
from fedaudit.data.records import dataset
from fedaudit.errors import OF_OTHERS, FedauditError
from fedaudit.types import Dataset

KEYS = ("x", "y", "id", "subject", "attributes")
RETURNS = f"Let it return x and y, or a dict with {', '.join(KEYS)} (the last three may be left out)."


class OwnDataOptions(DataOptions):
    task: Literal["classification", "regression"] = Field(
        "classification", description="whether y is a class or a value"
    )
    tokens: bool | None = Field(None, description="x holds numbers of characters or words; not set: features")
    options: dict[str, Any] = Field({}, description="what the function is called with")


@DATA.register(
    "package.module:function",
    "your own: function(**options) -> x, y, or a dict with x, y and, where known, id, subject, attributes",
    OwnDataOptions,
)
def load(options: OwnDataOptions) -> Dataset:
    function: Callable[..., Any] = imported(options.name, "data-import")
    try:
        made = function(**options.options)
    except FedauditError:
        raise
    except OF_OTHERS as error:  # what it says may quote records
        what = f"{options.name} raised {type(error).__name__}"
        raise FedauditError("data-function", what, "Call it with these [data.options] yourself to see why.") from error
    if isinstance(made, Dataset):
        return made
    given = dict(zip(("x", "y"), made, strict=True)) if isinstance(made, tuple) and len(made) == 2 else made
    if not isinstance(given, Mapping) or not {"x", "y"} <= set(given) <= set(KEYS):
        raise FedauditError("data-function", f"{options.name} returned {type(made).__name__}", RETURNS)
    arrays = {key: np.asarray(value) for key, value in given.items() if key != "attributes" and value is not None}
    return dataset(
        options.name.rpartition(":")[2],
        arrays["x"],
        arrays["y"],
        id=arrays.get("id"),
        subject=arrays.get("subject"),
        attributes={name: np.asarray(values, np.int64) for name, values in given.get("attributes", {}).items()},
        regression=options.task == "regression",
        tokens=bool(options.tokens),
    )
