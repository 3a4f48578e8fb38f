"""Flower, both sides: what an app imports. The rest of this package is how it works."""

from fedaudit.integrations.flower.client import PartyAudit
from fedaudit.integrations.flower.secagg import record_sum
from fedaudit.integrations.flower.server import record_strategy, trace_strategy

__all__ = ["PartyAudit", "record_strategy", "record_sum", "trace_strategy"]
