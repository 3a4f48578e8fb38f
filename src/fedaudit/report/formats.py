"""The report in other forms than a page: Markdown for a repository, JSON and CSV for programs, JUnit for a pipeline."""

import json
import re
from collections.abc import Callable, Sequence
from xml.etree import ElementTree as Xml

from fedaudit.report import words
from fedaudit.report.answers import answers
from fedaudit.report.sections import limits
from fedaudit.report.taken import readings
from fedaudit.report.values import Results, cleaned
from fedaudit.results.document import Document
from fedaudit.results.gate import hidden
from fedaudit.results.table import as_csv, rows
from fedaudit.types import Tone

# A risk that was found fails a pipeline; what could not be settled must not pass for a success.
OUTCOMES: dict[Tone, str] = {"found": "failure", "weak": "failure", "alarm": "error", "unknown": "error", "none": ""}


def markdown(document: Document) -> str:
    """The verdict, the attacks, what an assessment asks, and what the audit cannot show."""
    results = cleaned(document)
    found, titles = words.findings(results), words.row_titles(results)
    lines = [f"# Privacy audit: {_plain(results.run.name or 'federation')}", ""]
    lines += [line for sentence in words.verdict(results) for line in (f"> {_plain(sentence)}", ">")][:-1]
    attacks = [
        [row.attack, row.vantage, row.model, str(row.auc), str(row.tpr), row.realised_fpr, row.cost]
        for row in words.headline_rows(results)
    ]
    lines += ["", "## Attacks", "", *_table(titles[:7], attacks)]
    for heading, pairs in (
        ("What an impact assessment asks", answers(results, found)),
        ("What this audit cannot show", limits(results, found)),
    ):
        lines += ["", f"## {heading}", ""]
        lines += [line for title, said in pairs for line in (f"**{_plain(title)}** {_plain(said)}", "")]
    told = [*words.warnings(results), *results.notices]
    lines += ["## Warnings", "", *(f"- {_plain(line)}" for line in told), ""] if told else []
    return "\n".join(lines).rstrip() + "\n"


def _table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(map(_plain, head))} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(map(_plain, row))} |" for row in cells),
    ]


def _plain(text: str) -> str:
    """Names come from outside: what Markdown or HTML would take for markup is escaped."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text).replace("\n", " ")


def as_json(document: Document) -> str:
    """What a program wants to know first; all figures are in results.json."""
    results = cleaned(document)
    found = words.findings(results)
    said = {
        "run": results.run.name,
        "created": results.run.created,
        "verdict": words.verdict(results),
        "findings": [
            {
                "vantage": f.vantage,
                "attack": f.attack,
                "tone": f.tone,
                "grade": f.headline.grade,
                "sentence": f.sentence,
            }
            for f in found
        ],
        "most_exposed": [f.headline.most_exposed for f in found if f.headline.most_exposed],
        "answers": dict(answers(results, found)),
        "limits": dict(limits(results, found)),
        "warnings": [*words.warnings(results), *results.notices],
    }
    return json.dumps(said, indent=1, ensure_ascii=False) + "\n"


def junit(document: Document) -> str:
    """A test case for each vantage, one for all that was read off updates, and one of the audit itself if that is not
    whole: green is what was settled.
    `fedaudit gate --junit` judges limits instead, which is better for a pipeline."""
    results: Results = cleaned(document)
    found = words.findings(results)
    kinds = [OUTCOMES[finding.tone] for finding in found]
    read = readings(results)
    missing = hidden(document) or ("" if found else "no attack on membership has a result")
    tests, errors = len(found) + len(read) + bool(missing), kinds.count("error") + bool(missing)
    counts = {"tests": tests, "failures": kinds.count("failure") + len(read), "errors": errors}
    made = Xml.TreeBuilder()
    made.start("testsuite", {"name": f"fedaudit {results.run.name}", **{key: str(n) for key, n in counts.items()}})
    for finding, kind in zip(found, kinds, strict=True):
        made.start("testcase", {"classname": "fedaudit.report", "name": finding.vantage})
        if kind:
            made.start(kind, {"type": finding.tone, "message": finding.sentence})
            made.end(kind)
        made.start("system-out", {})
        made.data(" ".join([finding.sentence, *finding.headline.details]))
        made.end("system-out")
        made.end("testcase")
    for one in read:
        made.start("testcase", {"classname": "fedaudit.report", "name": f"{one.vantage}: {one.what}"})
        made.start("failure", {"type": "found", "message": one.sentence})
        made.end("failure")
        made.end("testcase")
    if missing:
        made.start("testcase", {"classname": "fedaudit.report", "name": "audit"})
        made.start("error", {"type": "unknown", "message": missing})
        made.end("error")
        made.end("testcase")
    made.end("testsuite")
    suite = made.close()
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def figures(document: Document) -> str:
    """A line for each figure of each attack."""
    names = dict.fromkeys(name for entry in document.results if entry.party is None for name in entry.estimates)
    return as_csv(rows({document.run.name: document}, list(names)))


FORMATS: dict[str, tuple[str, Callable[[Document], str]]] = {
    "md": ("report.md", markdown),
    "json": ("report.json", as_json),
    "junit": ("report.xml", junit),
    "csv": ("report.csv", figures),
}
