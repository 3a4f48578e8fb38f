"""The example of NVIDIA FLARE, as a job that its simulator and a deployment run."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedaudit.types import Game
from tests.integrations.worlds import part

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"


def game(site: str) -> Game:
    return part(site)[1]


def write_job(folder: Path, recorder: Mapping[str, Any], filter: Mapping[str, Any] | None) -> Path:
    """The example's job with these arguments in addition. Without a filter: the site may own one."""
    shutil.copytree(EXAMPLE / "job", folder)
    for side in ("server", "client"):
        path = folder / "app" / "config" / f"config_fed_{side}.json"
        config = json.loads(path.read_text())
        for component in config["components"]:
            if component["id"] == "recorder":
                component["args"].update(recorder)
        for chain in ("task_data_filters", "task_result_filters"):
            for one in config[chain]:
                for each in one["filters"]:
                    each["args"].update(filter or {})
            config[chain] = config[chain] if filter is not None else []
        path.write_text(json.dumps(config))
    return folder
