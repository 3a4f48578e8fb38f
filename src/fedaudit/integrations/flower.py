"""Flower, both sides: what an app imports. The rest of this package is how it works."""

from fedaudit.integrations.flower_client import PartyAudit
from fedaudit.integrations.flower_secagg import RecordedSum
from fedaudit.integrations.flower_server import record_strategy, trace_strategy

__all__ = ["PartyAudit", "RecordedSum", "record_strategy", "trace_strategy"]
