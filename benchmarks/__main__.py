"""`python -m benchmarks NAME|all`: one JSON line for each benchmark, last. `all` always ends with 0."""

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

NOT_BENCHMARKS = {"__init__", "__main__", "measuring"}


def names() -> list[str]:
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name.replace("_", "-") for name in found if name not in NOT_BENCHMARKS)


def main(wanted: str) -> int:
    if wanted != "all" and wanted not in names():
        print(f"There is no benchmark {wanted!r}. Known: all, {', '.join(names())}.", file=sys.stderr)
        return 2
    from fedaudit.learn import tune_process

    tune_process()  # before torch is loaded; the peers run in this process and are tuned with us
    for name in names() if wanted == "all" else [wanted]:
        try:
            result = import_module(f"benchmarks.{name.replace('-', '_')}").run()
        except Exception as error:
            traceback.print_exc()
            result = {"name": name, "ratio": None, "goal": None, "better": "lower", "ok": False, "detail": repr(error)}
            if wanted != "all":
                print(json.dumps(result), flush=True)
                return 1
        print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
