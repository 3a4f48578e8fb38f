"""run.json: what is needed to resume a trace or to attack it again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from fedaudit.errors import REFUSED, FedauditError
from fedaudit.trace import checksums
from fedaudit.trace.segments import checksum
from fedaudit.types import Level

SCHEMA = 1
RUN = "run.json"
MAX_BYTES = 64 * 2**20

Manifest = Mapping[str, Any]

# The kinds of what is read from it, wherever it is there. Lists hold text, but for claims and notices.
KINDS: dict[str, type | tuple[type, ...]] = {
    "config": dict,
    "keep": str,
    "attacks": list,
    "notices": list,
    "told": list,
    "guarantee": (list, type(None)),
    "data": str,
    "start": str,
    "weights_per_member": dict,
    "filter_share": (float, int),
    "parties": list,
}


def load_manifest(directory: Path) -> Manifest:
    """Reads run.json, if it is as it was written. A newer schema is refused, an older one is read."""
    path = directory / RUN
    if not path.is_file():
        raise FedauditError("no-run", f"there is no {RUN} in {directory}", "Give a folder that `fedaudit run` wrote.")
    if path.stat().st_size > MAX_BYTES:
        raise FedauditError("run-size", f"{path} is larger than 64 MiB", "Run again with --force.", exit_code=REFUSED)
    blob = path.read_bytes()
    checksums.verify(path, checksum(blob), "train again with --force, which replaces the run and what it recorded.")
    try:
        manifest = json.loads(blob)
    except (ValueError, RecursionError):
        raise _unreadable(path, "it is not JSON") from None
    if wrong := _wrong(manifest):
        raise _unreadable(path, wrong)
    if manifest["schema"] > SCHEMA:
        raise FedauditError(
            "schema-newer", f"{path} has schema {manifest['schema']}, this fedaudit reads up to {SCHEMA}",
            "Install a newer fedaudit.",
            exit_code=REFUSED,
        )  # fmt: skip
    loaded: Manifest = manifest
    return loaded


def is_former(manifest: Manifest) -> bool:
    """Is the run from before its parties were written down? They were numbered then, whatever they were formed by."""
    return "parties" not in manifest


def _wrong(manifest: Any) -> str:
    """What in it is not as declared; never quoted."""
    if not isinstance(manifest, dict):
        return "an object is needed"
    schema = manifest.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        return "its schema is not a whole number of at least 1"
    if schema > SCHEMA:
        return ""  # whatever else it holds, it is newer
    for key, kind in KINDS.items():
        value = manifest.get(key)
        if key in manifest and not isinstance(value, kind):
            return f"{key} is of another kind than a run has"
        inside = dict if key in ("guarantee", "told") else str
        if isinstance(value, list) and not all(isinstance(item, inside) for item in value):
            return f"{key} holds something of another kind than a run has"
    if any(not _is_notice(told) for told in manifest.get("told", ())):
        return "told holds something other than notices"
    weights = manifest.get("weights_per_member", {}).values()
    if any(isinstance(weight, bool) or not isinstance(weight, int | float) for weight in weights):
        return "weights_per_member holds something other than numbers"
    return ""


def _is_notice(told: dict[str, Any]) -> bool:
    texts = isinstance(told.get("code"), str) and told.get("level") in get_args(Level)
    return texts and isinstance(told.get("data"), dict)


def _unreadable(path: Path, why: str) -> FedauditError:
    what = f"{path} was not written by fedaudit, or is damaged: {why}"
    return FedauditError("run-unreadable", what, "Run again with --force.", exit_code=REFUSED)
