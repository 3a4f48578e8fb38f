"""The commands that read existing files: finished runs, a claim, a file of scores."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree as Xml

import typer
from rich.markup import escape
from rich.padding import Padding

from fedaudit.cli.options import AsJson, Set, as_json, in_a_folder, printed_as_json, write_file
from fedaudit.cli.terminal import (
    ABSENT,
    aligned,
    console,
    errors,
    number,
    progress,
    say,
    say_scores,
    show,
    write_report,
)
from fedaudit.errors import DEGRADED, FedauditError, suggest

if TYPE_CHECKING:
    from fedaudit.results.advice import Advice
    from fedaudit.results.compare import ComparedRun, Comparison
    from fedaudit.results.document import Document
    from fedaudit.results.gate import Gate, Judged


def report(
    run_dir: Annotated[Path, typer.Argument(help="A folder written by `fedaudit run`, `study` or `advise`.")],
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out exposed records, names and paths: report-redacted.html.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Two printed pages: the verdict, a chart, what an assessment asks.")
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", help="html, md, json, junit or csv: report.html, .md, .json, .xml or .csv.")
    ] = "html",
) -> None:
    """Write report.html again from results.json. Needs no training and no torch.

    What `fedaudit advise CONFIG --out RUN/advice` found is told under “What would help”.

    For a study, the report shows risk by factor and accuracy against risk, from its cells. For advice, advice.html is
    written from advice.json.
    """
    from fedaudit.report.formats import FORMATS
    from fedaudit.results import document as results
    from fedaudit.results.redaction import redacted
    from fedaudit.trace.journal import unchecked

    if format_ not in ("html", *FORMATS):
        what = f"there is no report as {format_!r}"
        raise FedauditError("unknown-format", what, suggest(format_, ("html", *FORMATS)))
    if summary and format_ != "html":
        raise FedauditError("bad-value", "--summary is a page", "Leave out --format, or --summary.")
    if of_many := _of_many(run_dir):
        console.print(f"Report: {escape(str(of_many))}")
        return
    document = results.load(run_dir).noting(*unchecked(results.results_file(run_dir)))
    document, name = (redacted(document), results.REDACTED) if redact else (document, results.REPORT)
    folder = run_dir if run_dir.is_dir() else run_dir.parent
    if format_ != "html":
        plain, make = FORMATS[format_]
        path = folder / (plain.replace("report", "report-redacted") if redact else plain)
        write_file(path, make(document))
        console.print(f"Report: {escape(str(path))}")
        return
    tried = None if redact else _advised(folder, document)  # it names parties
    name = name.replace(".html", "-summary.html") if summary else name
    written = write_report(document, folder, name, summary, tried)
    say(document, written)
    if not written:
        raise typer.Exit(DEGRADED)


def _advised(folder: Path, document: "Document") -> "Advice | None":
    """Advice that is damaged, or about another federation, is no reason to go without a report."""
    from fedaudit.results.advice import of_run

    try:
        return of_run(folder, document.run.config)
    except FedauditError as error:
        errors.print(f"[yellow]The report is written without advice: {escape(str(error))}[/yellow]")
        return None


def evidence(
    run_dir: Annotated[Path, typer.Argument(help="A folder written by `fedaudit run`, or a results.json.")],
    out: Annotated[Path, typer.Option(help="The folder of the pack; it is made.")],
    auditor: Annotated[str, typer.Option(help="Who answers for the audit (default: [report] auditor).")] = "",
    redact: Annotated[bool, typer.Option("--redact", help="Leave out names of parties, groups and files.")] = False,
    sign: Annotated[
        Path | None, typer.Option(help="A secret key of minisign or ssh-keygen: sign the checksums.")
    ] = None,
) -> None:
    """What regulators and standards ask for, and where this audit answers it: a folder to be passed on.

    evidence.html maps what is asked for to what was done, found, or not tested; dpia-annex.html has two pages for a
    data-protection impact assessment. Beside them: report, results, configuration, versions and checksums. The hashed
    ids of exposed records are left out.
    """
    from fedaudit.report.evidence import write_pack
    from fedaudit.trace.store import RUN, load_manifest

    if (run_dir / RUN).is_file():
        load_manifest(run_dir)  # nothing is vouched for that is not as it was written
    for path in write_pack(run_dir, out, redact=redact, auditor=auditor, key=sign):
        console.print(escape(str(path)))


def table(
    run_dirs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    measure: Annotated[
        list[str] | None,
        typer.Option(help="A figure, such as tpr@0.01 or members-f1; repeatable (default: each attack's main ones)."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write it to this CSV file.", callback=in_a_folder)] = None,
) -> None:
    """Attacks and runs in one table. Of runs that differ in their seed alone, the mean over them.

    The interval of a mean includes how much training runs differ. A run that is the only one of its configuration keeps
    its own interval.
    """
    from fedaudit.report.values import clean
    from fedaudit.results import document as results
    from fedaudit.results.table import as_csv, rows
    from fedaudit.stats.wording import full_text

    runs: dict[str, results.Document] = {}
    folders: dict[str, Path] = {}
    for folder in run_dirs:
        name = folder.resolve().name
        if [other.resolve() for other in run_dirs].count(folder.resolve()) > 1:
            raise FedauditError("same-run", f"{folder} is named twice", "Name each run once.")
        name = name if name not in runs else str(folder)
        runs[name], folders[name] = results.load(folder), folder
    found = rows(runs, measure or (), folders)
    if not found:
        what = f"no attack of these runs has {' or '.join(measure or ['a figure'])}"
        raise FedauditError("unknown-metric", what, "Try --measure auc.")
    cells = [("attack", "seen by", "measure", "configuration", "runs", "value")]
    for row in found:
        place = f"{row.vantage}, {row.model}"
        said = f"{'* ' if row.quoted else ''}{full_text(row.estimate.name, row.estimate)}"
        cells.append((clean(row.attack), place, row.estimate.name, clean(row.configuration), str(row.runs), said))
    for line in aligned(cells):
        show(line)
    if any(row.quoted for row in found):
        show("* as the verdict quotes it: the interval pays for what it was chosen from")
    write_file(csv, as_csv(found))


def _of_many(folder: Path) -> Path | None:
    """The page of a study or of an advice; None if the folder holds neither."""
    from fedaudit.report.pages import write_advice_page, write_study_page
    from fedaudit.results import advice, study

    if study.is_study(folder):
        return write_study_page(folder)
    return write_advice_page(advice.load(folder), folder) if (folder / advice.ADVICE).is_file() else None


def score(
    file: Annotated[Path, typer.Argument(help="CSV or parquet: member (0/1), score[, id, subject].")],
    fpr: Annotated[
        list[float] | None, typer.Option(help="False-positive rate; repeatable (default 0.001, 0.01).")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of every interval.")] = 0.95,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Also compute four figures of empirical epsilon.")] = False,
    delta: Annotated[
        float | None, typer.Option(help="The delta of epsilon (default 1e-5).", show_default=False)
    ] = None,
    attack: Annotated[
        str | None, typer.Option(help="Which attack of a run's scores.parquet; needed where it holds several.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Which models of a run's scores.parquet: global or local (default: global, if there)."),
    ] = None,
    out: AsJson = None,
) -> None:
    """The statistics alone, on scores of your own: AUC and TPR at fixed FPR, with intervals; epsilon on request.

    The AUC compares members with all non-members. For a TPR, half of the non-members (chosen by a hash of their id, so
    the order of rows does not matter) set the threshold, and the other half measure the FPR. Higher scores must mean
    "member".

    The scores.parquet of a run says itself who set thresholds and who was reported on: name an attack of it, and what
    comes out is what its results.json says.
    """
    from fedaudit.results.schema import plain
    from fedaudit.results.scores import estimate

    if delta is not None and not epsilon:
        raise FedauditError(
            "delta-alone", "--delta has no effect without --epsilon", "Add --epsilon, or remove --delta."
        )
    at = 1e-5 if epsilon and delta is None else delta
    found = estimate(file, tuple(fpr) if fpr else None, confidence, at, attack, model)
    if not printed_as_json(plain(found)):
        say_scores(found)
    write_file(out, as_json(plain(found)))


def hand_over(
    run_dir: Annotated[Path, typer.Argument(help="A folder with the site's own audit.")],
    out: Annotated[Path, typer.Option(help="The new folder that is to be handed over.")],
    party: Annotated[str | None, typer.Option(help="One party of a run with several.")] = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Ranks instead of scores: enough for attacks on local models.")
    ] = False,
) -> None:
    """What a site gives to its consortium: scores with roles, without records, ids or models.

    The folder holds scores.parquet and manifest.json, which says what is handed over and what is not, with a checksum.
    Candidates and people are numbered anew, at random. `fedaudit merge` makes one verdict of the folders of all sites.
    """
    from fedaudit.results.merge import MANIFEST
    from fedaudit.results.merge import hand_over as handed_over

    found = handed_over(run_dir, out, party, ranks)
    console.print(f"Handed over: {found.kind} of {found.candidates} candidates, {len(found.asked)} results.")
    console.print(f"Kept back: {', '.join(found.kept_back)}.")
    console.print(f"Folder: {escape(str(out))}. Read {MANIFEST} in it before you pass it on.")


def merge(
    sites: Annotated[list[Path], typer.Argument(help="Folders that `fedaudit hand-over` wrote, one for each site.")],
    out: Annotated[Path, typer.Option(help="The new folder for results.json, scores.parquet and report.html.")],
) -> None:
    """One verdict for a consortium, from what its sites handed over. Needs no records, no models and no torch.

    The estimates are those of one audit of all parties, to the last digit. Results over the rounds, costs and accuracy
    stay at the sites. The new folder is a run like any other: `fedaudit report`, `gate` and `compare` read it.
    """
    from fedaudit.results.document import save
    from fedaudit.results.merge import merge as merged
    from fedaudit.results.merge import parts
    from fedaudit.results.scores import save_scores

    document, scores = merged(sites, out.name)
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise FedauditError("not-empty", f"{out} is not empty", "Give a new folder with --out.")
    save_scores(parts(scores), out)
    save(document, out)
    written = write_report(document, out)
    say(document, written)
    if not written:
        raise typer.Exit(DEGRADED)


def look(
    update: Annotated[Path, typer.Argument(help="What a party sent: its model, as safetensors or npz.")],
    before: Annotated[Path, typer.Option(help="The model that it had received.")],
    names: Annotated[
        Path | None, typer.Option(help="A text file: what each column of the input is called, one a line.")
    ] = None,
    out: AsJson = None,
) -> None:
    """What does one update say by itself? Read off two checkpoints, without a run, a model or any record.

    It is assumed that the first matrix of the file takes the input as it is, without dropout or noise before it; in a
    run, fedaudit asks the model. How often such lists are right: `fedaudit run`, section "What one update says by
    itself".
    """
    from fedaudit.integrations.checkpoints import read
    from fedaudit.questions.update.look import looked
    from fedaudit.words import words

    for path in (update, before, *((names,) if names else ())):
        if not path.is_file():
            raise FedauditError("no-file", f"there is no file {path}", "Check the path.")
    try:
        columns = tuple(names.read_text(encoding="utf-8").splitlines()) if names else ()
    except UnicodeDecodeError:
        raise FedauditError("not-utf8", f"{names} is not text in UTF-8", "Save it as UTF-8.") from None
    found = looked(read(before, torch=False), read(update, torch=False), columns)
    for told in found.told:
        console.print(escape(words(told)))
    write_file(out, as_json(found.plain(columns)))


def verify(
    path: Annotated[Path, typer.Argument(help="A configuration, or a folder with a recorded run.")],
    claim: Annotated[
        Path | None, typer.Option(help="A TOML file with [claim]: what is claimed about somebody else's run.")
    ] = None,
    set_: Set = None,
    out: AsJson = None,
) -> None:
    """Is a claim of differential privacy kept? Ten checks without any attack, each PASS, FAIL or CANNOT TELL.

    Where it is known whose the records are, an eleventh says what one person is promised.
    A configuration is tried on a few records and trained for three rounds; a recorded run (audit.keep = "snapshots") is
    only read.
    Exit code 1 if a check fails, 3 if none does and one cannot tell.
    """
    from fedaudit.session.verify import verify as checked

    with progress("Checking the claim", 0):
        found = checked(path, claim, set_ or ())
    colours = {"PASS": "green", "FAIL": "bold red", "CANNOT TELL": "yellow"}
    for made in dict.fromkeys(check.claim for check in found):
        console.print(f"\n{escape(made)}")
        for check in (check for check in found if check.claim == made):
            colour = colours[check.outcome]
            console.print(f"\n{check.id} [{colour}]{check.outcome}[/{colour}] {escape(check.question)}")
            console.print(Padding(escape(check.evidence), (0, 0, 0, 4), expand=False))
    console.print()
    write_file(out, as_json({"schema": 1, "checks": [asdict(check) for check in found]}))
    outcomes = {check.outcome for check in found}
    raise typer.Exit(1 if "FAIL" in outcomes else 3 if "CANNOT TELL" in outcomes else 0)


# ------------------------------------------------------------------ gate: for people, for scripts and for pipelines


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
    "tpr@0.01[attack=loss, vantage=server, model=local, party=*] > 0.05" selects single results; * means all of them.

    A rule compares a risk (auc, tpr@FPR, or a figure of another question: fedaudit list questions), the accuracy, or
    the epsilon that the run claims with a limit, by > or >=; accuracy also by < or <=. "tpr@0.01 > 0.05 and
    accuracy < 0.8" is violated when both parts are. Several --fail-if are checked one by one.

    If several results are checked, their lower ends share the error. A run is never called safe if its audit
    understates the risk (people or twins on both sides, a part that is missing), and a risk is never called violated if
    a blind guess, which sees no model, beats chance. That the model has not learnt is said, and changes no verdict.

    Exit codes: 0 safe, 1 violated, 2 wrong use, 3 undecided, 5 a stored file was refused. In JUnit XML a violated rule
    is a failure, and an undecided one an error.
    """
    from fedaudit.results.document import results_file
    from fedaudit.results.gate import judge, parse_rules
    from fedaudit.trace.journal import unchecked
    from fedaudit.words import words

    found = judge(run_dir, [rule for text in fail_if for rule in parse_rules(text)])
    if not printed_as_json(_gate_as_json(found)):
        for told in unchecked(results_file(run_dir)):
            console.print(f"[yellow]![/yellow] {escape(words(told))}")
        say_gate(found)
    write_file(junit, _as_junit(found, run_dir) if junit else "")
    raise typer.Exit(found.exit_code)


def say_gate(found: "Gate") -> None:
    """Two lines for each result: what was found, and where. No line is longer than a narrow terminal."""
    for text, verdict in found.rules.items():
        console.print(f"\n[{COLOURS[verdict]}]{verdict}[/{COLOURS[verdict]}]  not allowed: {escape(text)}")
        shown, left_out = _chosen([f for f in found.findings if f.rule.text == text])
        for f in shown:
            show(f"  {f.verdict}: {f.rule.metric} {_finding_span(f)}")
            console.print(f"    {escape(_place(f))}")
            if f.note:
                console.print(f"    {escape(f.note)}")
        if left_out:
            console.print(f"  and {left_out} more, none of them worse (--json lists all)")
    console.print()
    for line in _remarks(found):
        console.print(escape(line))
    console.print(f"[{COLOURS[found.verdict]}]{found.verdict}[/{COLOURS[found.verdict]}]")


MOST_FINDINGS = 6  # results of a rule that are shown to a reader


def _chosen(found: list["Judged"]) -> tuple[list["Judged"], int]:
    """What a reader needs: what was fixed before looking, then the worst of the rest. And how many are left out."""
    order = {"violated": 0, "undecided": 1, "safe": 2}
    ranked = sorted(found, key=lambda f: (not f.named, order[f.verdict], -(f.low or 0.0)))
    named = [f for f in ranked if f.named]
    shown = [*named[:MOST_FINDINGS], *(f for f in ranked if not f.named and f.verdict != "safe")][:MOST_FINDINGS]
    return shown, len(found) - len(shown)


def _place(f: "Judged") -> str:
    if f.vantage:
        return f"{f.attack}, {f.vantage}, {f.model} models, {f.party or 'all parties'}"
    return f"{f.attack}, for each {f.model}" if f.attack else "the run"


def _remarks(found: "Gate") -> list[str]:
    told = [found.useless] if found.useless else []
    if found.primary:
        quoted = ", ".join(f"{attack} ({vantage})" for vantage, attack in found.primary.items())
        told.append(f"The primary attack of each vantage, fixed before looking: {quoted}.")
    if found.looked_at > 1:
        told.append(f"Lower ends above a limit are corrected for the {found.looked_at} results checked.")
    if found.silent:
        told.append(f"Not judged, because they have no interval for the rule: {', '.join(found.silent)}.")
    return told


def _gate_as_json(found: "Gate") -> dict[str, Any]:
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
                "doubt": f.doubt,
            }
            for f in found.findings
        ],
        "useless": found.useless,
        "remarks": _remarks(found),
    }


def _as_junit(found: "Gate", run_dir: Path) -> str:
    """One test case for each rule. One that is undecided is an error, so that no pipeline takes it for a pass."""
    verdicts = [verdict.value for verdict in found.rules.values()]
    counts = {"tests": len(verdicts), "failures": verdicts.count("violated"), "errors": verdicts.count("undecided")}
    made = Xml.TreeBuilder()
    name = f"fedaudit gate {run_dir.resolve().name}"
    made.start("testsuite", {"name": name, **{key: str(count) for key, count in counts.items()}})
    for text, verdict in found.rules.items():
        own = [f for f in found.findings if f.rule.text == text]
        lines = [_finding_line(f) for f in own]
        made.start("testcase", {"classname": "fedaudit.gate", "name": text})
        if verdict != "safe":
            kind = "failure" if verdict == "violated" else "error"
            decisive = next((_finding_line(f) for f in own if f.verdict == verdict), lines[0])
            made.start(kind, {"type": verdict.value, "message": decisive})
            made.end(kind)
        made.start("system-out", {})
        made.data("\n".join([*filter(None, [found.useless]), *lines]))
        made.end("system-out")
        made.end("testcase")
    made.end("testsuite")
    suite = made.close()
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _finding_line(f: "Judged") -> str:
    return f"{f.verdict}: {f.rule.condition}: {_finding_span(f)}, {_place(f)}{f': {f.note}' if f.note else ''}"


def _finding_span(f: "Judged") -> str:
    return "has no value" if f.value is None else f"{number(f.value)} ({number(f.low)} to {number(f.high)})"


# ------------------------------------------------------------------ compare: several runs side by side


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders written by `fedaudit run`.")],
    out: AsJson = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write the comparison to this HTML file.", callback=in_a_folder)
    ] = None,
) -> None:
    """Compare the accuracy and risk of several runs, and the epsilon each claims.

    Risks are compared like with like: the same attack, from the same vantage, on the same kind of model; and on the
    same records where the runs share them, which shows smaller differences than two intervals side by side. A star
    marks a run that no other run beats in both accuracy and risk.
    """
    from fedaudit.results.compare import compare as compared
    from fedaudit.results.schema import plain

    found = compared(runs)
    if not printed_as_json(plain(found)):
        say_comparison(found)
    write_file(out, as_json(plain(found)))
    if page:
        from fedaudit.report.pages import comparison_page

        write_file(page, comparison_page(found))


def say_comparison(found: "Comparison") -> None:
    """A few short lines for each run, and then like beside like."""
    from fedaudit.questions import metric
    from fedaudit.report.pages import concerns, safer
    from fedaudit.results.compare import in_points
    from fedaudit.stats.wording import full_text

    for row in found.rows:
        console.print(f"\n{'* ' if row.best else ''}[bold]{escape(row.run)}[/bold]  {escape(row.defences)}")
        for line in row.verdict:
            console.print(escape(f"    {line}"))
        show(f"    accuracy             {row.accuracy.text() if row.accuracy else ABSENT}")
        show(f"    TPR at 1 % FPR       {row.risk.text() if row.risk else ABSENT}")
        if row.whose:
            console.print(escape(f"      of {row.whose}"))
        show(f"    epsilon              {_epsilon(row)}")
        if row.per_person:
            show(f"      per person: {row.per_person.text}")
    for like in found.alike:
        console.print(escape(f"\n{like.attack}, {like.vantage}, {like.model} models: {metric(like.metric).title}"))
        for run, estimate in like.risks.items():
            show(f"    {full_text(like.metric, estimate)}  {run}")
        for gap in found.differences:
            if concerns(gap, like):
                show(f"    {in_points(gap.metric, gap)}  {gap.first} minus {gap.second}")
                show(f"      {safer(gap)}; {gap.shared:,} of {gap.records:,} records in common")
    if found.differences:
        console.print("\nThe intervals of all differences hold together, with 95 % confidence.")
    console.print()
    for line in found.notes:
        console.print(f"[yellow]![/yellow] {escape(line)}")


def _epsilon(row: "ComparedRun") -> str:
    from fedaudit.results.compare import CHANCE

    if row.epsilon is None:
        return ABSENT
    whose = "for one person " if row.per_person else ""  # whose epsilon is the larger, and stands in the next line
    most = "" if row.allowed is None else f"; {whose}it allows a TPR of {row.allowed:.3g} at {100 * CHANCE:g} % FPR"
    return f"{row.epsilon:.3g} ({row.unit}){most}"
