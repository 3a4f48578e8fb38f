"""`fedaudit gate`: the verdict on a finished run, for people, for scripts and for pipelines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree as Xml

import typer
from rich.markup import escape

from fedaudit.cli.options import in_a_folder, printed_as_json, write_file
from fedaudit.cli.terminal import console, number, show

if TYPE_CHECKING:
    from fedaudit.results.gate import Gate, Judged

COLOURS = {"safe": "green", "violated": "red", "undecided": "yellow"}


def gate(
    run_dir: Annotated[Path, typer.Argument(help="A folder written by `fedaudit run`.")],
    fail_if: Annotated[
        list[str],
        typer.Option(help='What is not allowed, for example "tpr@0.01 > 0.05". Repeatable.', show_default=False),
    ],
    junit: Annotated[
        Path | None, typer.Option(help="Also write the verdicts to this file, as JUnit XML.", callback=in_a_folder)
    ] = None,
) -> None:
    """Check a finished run against limits, for use in scripts and pipelines.

    A rule is violated when the lower end of an interval is above the limit, safe when the upper end is below it, and
    otherwise undecided. By default a rule looks at every attack from every vantage, pooled over the parties. The
    primary attack of a vantage, which was fixed before looking, has half of the error; the others share the rest.
    "tpr@0.01[attack=loss, vantage=client, party=*] > 0.05" selects single results; * means all of them.

    A rule compares a risk (auc, tpr@FPR, or a figure of another question: fedaudit list questions), the accuracy, or
    the epsilon that the run claims with a limit, by > or >=; accuracy also by < or <=. "tpr@0.01 > 0.05 and
    accuracy < 0.8" is violated when both parts are. Several --fail-if are checked one by one.

    If several results are checked, their lower ends share the error. A run is never called safe if its audit
    understates the risk (people or twins on both sides, a part that is missing), and a risk is never called violated if
    a blind guess, which sees no model, beats chance.

    Exit codes: 0 safe, 1 violated, 2 wrong use, 3 undecided, 5 a stored file was refused. In JUnit XML a violated rule
    is a failure, and an undecided one an error.
    """
    from fedaudit.results.document import results_file
    from fedaudit.results.gate import judge, parse_rules
    from fedaudit.trace.journal import unchecked
    from fedaudit.words import words

    found = judge(run_dir, [rule for text in fail_if for rule in parse_rules(text)])
    if not printed_as_json(plain(found)):
        for told in unchecked(results_file(run_dir)):
            console.print(f"[yellow]![/yellow] {escape(words(told))}")
        say(found)
    write_file(junit, as_junit(found, run_dir) if junit else "")
    raise typer.Exit(found.exit_code)


def say(found: "Gate") -> None:
    """Two lines for each result: what was found, and where. No line is longer than a narrow terminal."""
    for text, verdict in found.rules.items():
        console.print(f"\n[{COLOURS[verdict]}]{verdict}[/{COLOURS[verdict]}]  not allowed: {escape(text)}")
        shown, left_out = chosen([f for f in found.findings if f.rule.text == text])
        for f in shown:
            show(f"  {f.verdict}: {f.rule.metric} {_span(f)}")
            console.print(f"    {escape(place(f))}")
            if f.note:
                console.print(f"    {escape(f.note)}")
        if left_out:
            console.print(f"  and {left_out} more, none of them worse (--json lists all)")
    console.print()
    for line in remarks(found):
        console.print(escape(line))
    console.print(f"[{COLOURS[found.verdict]}]{found.verdict}[/{COLOURS[found.verdict]}]")


MOST = 6  # results of a rule that are shown to a reader


def chosen(found: list["Judged"]) -> tuple[list["Judged"], int]:
    """What a reader needs: what was fixed before looking, then the worst of the rest. And how many are left out."""
    order = {"violated": 0, "undecided": 1, "safe": 2}
    ranked = sorted(found, key=lambda f: (not f.named, order[f.verdict], -(f.low or 0.0)))
    named = [f for f in ranked if f.named]
    shown = [*named[:MOST], *(f for f in ranked if not f.named and f.verdict != "safe")][:MOST]
    return shown, len(found) - len(shown)


def place(f: "Judged") -> str:
    if f.vantage:
        return f"{f.attack}, {f.vantage}, {f.model} models, {f.party or 'all parties'}"
    return f"{f.attack}, for each {f.model}" if f.attack else "the run"


def remarks(found: "Gate") -> list[str]:
    told = []
    if found.primary:
        quoted = ", ".join(f"{attack} ({vantage})" for vantage, attack in found.primary.items())
        told.append(f"The primary attack of each vantage, fixed before looking: {quoted}.")
    if found.looked_at > 1:
        told.append(f"Lower ends above a limit are corrected for the {found.looked_at} results checked.")
    if found.silent:
        told.append(f"Not judged, because they have no interval for the rule: {', '.join(found.silent)}.")
    return told


def plain(found: "Gate") -> dict[str, Any]:
    """For programs: the verdict, that on each rule, and every result that it rests on."""
    return {
        "schema": 1,
        "verdict": found.verdict.value,
        "exit_code": found.exit_code,
        "rules": [{"fail_if": text, "verdict": verdict.value} for text, verdict in found.rules.items()],
        "findings": [
            {
                "fail_if": f.rule.text,
                "condition": f.rule.condition,
                "attack": f.attack or None,
                "vantage": f.vantage or None,
                "model": f.model or None,
                "party": f.party,
                "value": f.value,
                "low": f.low,
                "high": f.high,
                "verdict": f.verdict.value,
                "note": f.note,
            }
            for f in found.findings
        ],
        "remarks": remarks(found),
    }


def as_junit(found: "Gate", run_dir: Path) -> str:
    """One test case for each rule. One that is undecided is an error, so that no pipeline takes it for a pass."""
    verdicts = [verdict.value for verdict in found.rules.values()]
    counts = {"tests": len(verdicts), "failures": verdicts.count("violated"), "errors": verdicts.count("undecided")}
    made = Xml.TreeBuilder()
    name = f"fedaudit gate {run_dir.resolve().name}"
    made.start("testsuite", {"name": name, **{key: str(count) for key, count in counts.items()}})
    for text, verdict in found.rules.items():
        own = [f for f in found.findings if f.rule.text == text]
        lines = [_line(f) for f in own]
        made.start("testcase", {"classname": "fedaudit.gate", "name": text})
        if verdict != "safe":
            kind = "failure" if verdict == "violated" else "error"
            decisive = next((_line(f) for f in own if f.verdict == verdict), lines[0])
            made.start(kind, {"type": verdict.value, "message": decisive})
            made.end(kind)
        made.start("system-out", {})
        made.data("\n".join(lines))
        made.end("system-out")
        made.end("testcase")
    made.end("testsuite")
    suite = made.close()
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _line(f: "Judged") -> str:
    return f"{f.verdict}: {f.rule.condition}: {_span(f)}, {place(f)}{f': {f.note}' if f.note else ''}"


def _span(f: "Judged") -> str:
    return "has no value" if f.value is None else f"{number(f.value)} ({number(f.low)} to {number(f.high)})"
