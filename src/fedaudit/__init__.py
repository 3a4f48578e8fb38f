"""fedaudit tells the people in a federation what their federation gives away.

The names below are the public ones. They are imported when first used, so that `import fedaudit` stays light.
"""

from importlib import import_module
from typing import Any

__version__ = "0.3.0.dev0"

_HOME = {
    "Audit": "types",
    "AuditResult": "types",
    "Auditor": "audit",
    "Block": "stats",
    "Candidates": "types",
    "Config": "config.schema",
    "Dataset": "types",
    "Estimate": "types",
    "FedauditError": "errors",
    "Game": "types",
    "Guarantee": "types",
    "Records": "types",
    "Round": "types",
    "Settings": "audit",
    "TorchTask": "learn.tasks",
    "Truth": "types",
    "Vantage": "types",
    "auc": "stats",
    "load_config": "config.schema",
    "open": "report.opened",
    "record": "integrations.loop",
    "set_aside": "data.set_aside",
    "tpr_at_fpr": "stats",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedaudit' has no attribute {name!r}")
    return getattr(import_module(f"fedaudit.{_HOME[name]}"), name)
