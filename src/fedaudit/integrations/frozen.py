"""An audit between two rounds, as arrays and JSON: what a party's context keeps, and nothing executable."""

import json
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from fedaudit.adversary.reductions import flatten, unflatten
from fedaudit.audit import Auditor
from fedaudit.integrations.recorder import Recorder

Arrays = dict[str, NDArray[Any]]


def freeze(account: Mapping[str, Any], auditor: Auditor) -> tuple[Arrays, str]:
    arrays, rest = flatten({"auditor": auditor.state(), "account": account})
    return arrays, json.dumps(rest)


def thaw(recorder: Recorder, auditor: Auditor, arrays: Arrays, text: str) -> None:
    """The opposite: the same audit, in the process that handles the next round."""
    kept = unflatten(arrays, json.loads(text))
    auditor.restore(kept["auditor"])
    recorder.take_over(kept["account"])
