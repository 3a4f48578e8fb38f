"""What a caller of the Python API asks for, checked by the rules of a configuration file: one rule for each word."""

from typing import Any

import numpy as np

from fedaudit.config.schema import Config, parse
from fedaudit.errors import FedauditError

FEDERATION = ("rounds", "seed")  # the rest is of [audit]


def checked(**arguments: Any) -> Config:
    """The arguments as a configuration has them, or an error that names the one to change."""
    given = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    federation = {name: given.pop(name) for name in FEDERATION if name in given}
    try:
        return parse({"federation": federation, "audit": given})
    except FedauditError as error:
        what = error.what.removeprefix("federation.").removeprefix("audit.")
        raise FedauditError(error.code, what, "Change this argument.") from None
