"""Collect, score, judge: rounds in, results out."""

from fedaudit.audit.auditor import Auditor, audit
from fedaudit.audit.settings import Settings

__all__ = ["Auditor", "Settings", "audit"]
