"""The report: one self-contained page, from results alone. Imports neither torch nor scikit-learn nor scipy."""

from fedaudit.report.html import render, write
from fedaudit.report.values import cleaned
from fedaudit.report.words import headline_rows, row_titles, verdict

__all__ = ["cleaned", "headline_rows", "render", "row_titles", "verdict", "write"]
