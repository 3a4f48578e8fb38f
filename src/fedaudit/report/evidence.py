"""The evidence pack: what regulators and standards ask for, and where the results answer it.

The texts are named with their dates, and what they ask for is put into words of our own. Whether an audit is enough for
any of them is for others to decide; nothing here says that it is.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedaudit.errors import FedauditError
from fedaudit.files import LOCK, write_atomically
from fedaudit.questions import metric, of
from fedaudit.report import html, taken, words
from fedaudit.report.answers import answers, auditor_of, unclaimed, untested, who
from fedaudit.report.sections import KEPT, facts, holds, limits
from fedaudit.report.shapes import Table
from fedaudit.report.values import Results, cleaned
from fedaudit.report.words import Finding, ValueText, adversary
from fedaudit.results.document import REPORT, RESULTS, Document, load, results_file
from fedaudit.results.exposure import SALT
from fedaudit.results.redaction import redacted
from fedaudit.stats.wording import NONE, count, fpr_of, full_text, rate
from fedaudit.toml import written
from fedaudit.words.headlines import blind_auc

Status = Literal["tested", "tested in part", "not tested", "stated", "not stated", "not handed over"]
PAGE, ANNEX, CONFIGURATION, VERSIONS = "evidence.html", "dpia-annex.html", "configuration.toml", "versions.json"
SUMS, OF_RUN = "SHA256SUMS", "run-files.sha256"


@dataclass(frozen=True)
class Demand:
    """What is asked for, whether this audit answers it, how, and the place in results.json."""

    asked: str
    status: Status
    answer: str
    place: str


@dataclass(frozen=True)
class AskingText:
    title: str
    cited: str
    demands: Sequence[Demand]


SOURCES = {
    "EDPB": (
        "European Data Protection Board, Opinion 28/2024",
        "Opinion 28/2024 on certain data protection aspects related to the processing of personal data in the context "
        "of AI models, adopted on 17 December 2024",
    ),
    "NIST": (
        "NIST AI 100-2, with MITRE ATLAS",
        "NIST AI 100-2e2025, Adversarial Machine Learning: A Taxonomy and Terminology of Attacks and Mitigations, "
        "March 2025, doi 10.6028/NIST.AI.100-2e2025; MITRE ATLAS, technique AML.T0024 and its sub-techniques",
    ),
    "DP": (
        "NIST SP 800-226",
        "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees, March 2025, "
        "doi 10.6028/NIST.SP.800-226",
    ),
    "AISVS": (
        "OWASP AISVS, C11.2",
        "OWASP Artificial Intelligence Security Verification Standard 1.0, C11.2 Membership-Inference and "
        "Model-Inversion Mitigation, with its notes on verification",
    ),
}


# ------------------------------------------------------------------ what each of them asks for


@dataclass(frozen=True)
class Looked:
    """What the demands are answered from."""

    results: Results
    found: Sequence[Finding]

    def asked(self, *questions: str) -> list[str]:
        """The names under which these questions have results."""
        entries = [e for e in self.results.results if e.attack != "blind"]
        return list(dict.fromkeys(e.attack for e in entries if (about := of(e)) and about.name in questions))

    @property
    def attacks(self) -> list[str]:
        return list(dict.fromkeys(entry.attack for entry in words.pooled(self.results)))


def sources(results: Results) -> list[AskingText]:
    looked = Looked(results, words.findings(results))
    rows: dict[str, Sequence[Callable[[Looked], Demand]]] = {
        "EDPB": (_membership, _attribute, _extraction, _reconstruction, _anybody, _means, _ratio, _by_whom, _measures),
        "NIST": (_nist_membership, _nist_reconstruction, _nist_property, _nist_extraction, _knowledge),
        "DP": (_unit, _adjacency, _parameters, _trust, _checked_claim),
        "AISVS": (_ensemble, _low_rate, _blind, _subpopulations, _private_training, _served),
    }
    return [
        AskingText(*SOURCES[name], [_as_far_as_known(looked, demand) for demand in demands])
        for name, demands in rows.items()
    ]


def _as_far_as_known(looked: Looked, demand: Callable[[Looked], Demand]) -> Demand:
    """What was found has a place in the results. Whatever has none may have been tested at sites that were merged."""
    found = demand(looked)
    here = demand in (_nist_extraction, _served, _low_rate, _ensemble)
    if found.place or here or not looked.results.run.not_handed_over:
        return found
    return replace(found, status="not handed over", answer=KEPT)


def _found(looked: Looked) -> str:
    sentences = [f.sentence for f in looked.found]
    return " ".join(sentences) or "No attack on membership has a result."


def _tested(asked: str, names: Sequence[str], place: str, otherwise: str, answer: str = "") -> Demand:
    if names:
        return Demand(
            asked, "tested", answer or f"By {', '.join(names)}; what it found is a section of the report.", place
        )
    return Demand(asked, "not tested", otherwise, "")


NO_RECONSTRUCTION = "These results hold no attempt to reconstruct records, from the model or from updates."


def _membership(looked: Looked) -> Demand:
    asked = "resistance to membership inference"
    return _tested(
        asked, looked.attacks, "headlines[], results[]", "No attack on membership has a result.", _found(looked)
    )


def _attribute(looked: Looked) -> Demand:
    asked = "resistance to attribute inference"
    return _tested(
        asked, looked.asked("attribute"), "results[] with question = attribute", "This audit did not try it."
    )


def _extraction(looked: Looked) -> Demand:
    asked = "resistance to exfiltration, and to regurgitation of training data"
    otherwise = "This audit did not let the model produce text or other data, and looked for none."
    return _tested(asked, looked.asked("extraction"), "results[] with question = extraction", otherwise)


def _reconstruction(looked: Looked) -> Demand:
    return _rebuilt(looked, "resistance to model inversion and reconstruction")


def _rebuilt(looked: Looked, asked: str) -> Demand:
    """Records that an update holds word for word were looked for, if anything was: no search by optimisation."""
    results = looked.results
    if taken.was_looked_for(results, tuple(taken.WHOLE)):
        answer = f"{taken.about_records(results)} Nothing was searched by optimisation."
        return Demand(asked, "tested in part", answer, "results[].estimates.exact-*")
    if taken.not_told(results, *taken.OF_WHOLE):
        return Demand(asked, "not tested", taken.about_records(results), "told[] with code = update-cannot-tell")
    return Demand(asked, "not tested", NO_RECONSTRUCTION, "")


def _anybody(looked: Looked) -> Demand:
    """Averages do not answer it: the likelihood must be insignificant for any data subject."""
    asked = "that the likelihood is insignificant for any data subject, not on average"
    groups = looked.results.groups
    if groups is None or not groups.looked_at:
        return Demand(asked, "not tested", "Figures are averages; no group of people was looked at.", "")
    out = next((f.headline.most_exposed for f in looked.found if f.headline.most_exposed), "")
    small = f" {count(len(groups.too_small))} groups were too small." if groups.too_small else ""
    many = len({one.group for one in groups.results if one.stands_out})
    told = out or (f"{count(many)} of them stood out." if many else "None of them stands out from the others.")
    answer = f"{count(len(groups.looked_at))} groups were looked at. {told}{small} Single people were not judged."
    return Demand(asked, "tested in part", answer, "groups, headlines[].most_exposed")


def _means(looked: Looked) -> Demand:
    titles = [adversary(f.vantage).title.lower() for f in looked.found]
    answer = f"Seen by {', '.join(titles)}. What each sees and knows is in the report. {_absent(looked)}"
    status: Status = "tested in part" if titles else "not tested"
    return Demand(
        "all means reasonably likely to be used, by the controller or others",
        status,
        answer,
        "results[].vantage, results[].cost",
    )


def _absent(looked: Looked) -> str:
    told = untested(looked.results, looked.found)
    return told if looked.results.run.not_handed_over else f"Not tested: {told}"


def _ratio(looked: Looked) -> Demand:
    asked = "the ratio of the amount of training data to the number of parameters"
    run = looked.results.run
    weights, share = run.weights_per_member.get("global"), run.filter_share
    if not weights or not share:
        return Demand(asked, "not stated", "These results do not hold the number of parameters.", "")
    each = weights / share
    members = sum(party.members for party in run.parties)
    answer = f"About {each:,.3g} parameters for each of {count(members)} records that were trained on."
    return Demand(asked, "stated", answer, "run.weights_per_member, run.filter_share")


def _by_whom(looked: Looked) -> Demand:
    run = looked.results.run
    named = auditor_of(looked.results) is not None
    extent = f"{count(len(looked.attacks))} attacks on membership, {count(run.rounds)} rounds, {_sizes(looked)}"
    answer = f"{who(looked.results)} To this extent: {extent}."
    return Demand(
        "reports on tests: by whom, when, how and to what extent",
        "stated" if named else "not stated",
        answer,
        "run.created, run.config, run.versions",
    )


def _sizes(looked: Looked) -> str:
    parties = looked.results.run.parties
    totals = [sum(getattr(p, role) for p in parties) for role in ("members", "evaluation", "calibration")]
    return f"{count(totals[0])} members, {count(totals[1])} outsiders reported on, {count(totals[2])} to set thresholds"


def _measures(looked: Looked) -> Demand:
    asked = "measures taken while training to reduce the likelihood of identification"
    run = looked.results.run
    config, claim = run.config, run.guarantee
    if "settings" in run.not_handed_over:
        told = f"They promise differential privacy by {claim.defence}." if claim else unclaimed(looked.results)
        answer = f"The configurations of the sites were not handed over. {told}"
        return Demand(asked, "stated" if claim else "not stated", answer, "run.guarantee")
    defences = [str(d.get("name")) for d in config.get("defences", ()) if isinstance(d, dict)]
    federation = config.get("federation")
    masked = isinstance(federation, dict) and federation.get("secagg") is True
    said = [*defences, *(["secure aggregation"] if masked else [])]
    answer = f"In the configuration: {', '.join(said)}." if said else "The configuration has no defence."
    return Demand(asked, "stated" if config else "not stated", answer, "run.config, run.guarantee")


def _nist_membership(looked: Looked) -> Demand:
    asked = "membership inference (NISTAML.033; ATLAS AML.T0024.000)"
    return _tested(
        asked, looked.attacks, "headlines[], results[]", "No attack on membership has a result.", _found(looked)
    )


def _nist_reconstruction(looked: Looked) -> Demand:
    return _rebuilt(looked, "data reconstruction (NISTAML.032; ATLAS AML.T0024.001, inversion)")


def _nist_property(looked: Looked) -> Demand:
    asked = "property inference (NISTAML.034)"
    names = looked.asked("class-shares", "property")
    of_party = (*taken.OF_PARTY, *taken.LABELS)
    if not names and taken.was_looked_for(looked.results, of_party):
        answer = (
            "Which values nobody at a party has, or how its classes are shared, was read off its updates. No other."
        )
        return Demand(asked, "tested in part", answer, "results[] with question = update")
    unknown = taken.not_told(looked.results, *taken.OF_VALUES)
    otherwise = (
        f"It was looked for in updates, from which it could not be told: {'; '.join(unknown)}."
        if unknown
        else "These results do not say what the training data of a party are like as a whole."
    )
    return _tested(asked, names, "results[]", otherwise)


def _nist_extraction(looked: Looked) -> Demand:
    asked = "model extraction (NISTAML.031; ATLAS AML.T0024.002)"
    told = "Not a question of this audit: parties and server hold the model anyway."
    return Demand(asked, "not tested", told, "")


def _knowledge(looked: Looked) -> Demand:
    asked = "the attacker's knowledge and capabilities"
    told = [
        f"{adversary(f.vantage).title}: {adversary(f.vantage, words.about_people(looked.results)).sees}"
        for f in looked.found
    ]
    return Demand(
        asked, "stated" if told else "not stated", " ".join([*told, holds(looked.results)]).strip(), "results[].vantage"
    )


def _unit(looked: Looked) -> Demand:
    claim = looked.results.run.guarantee
    if claim is None:
        return Demand("unit of privacy", "not stated", unclaimed(looked.results), "run.guarantee")
    person = f" Per person: {claim.per_person.text}." if claim.per_person else ""
    return Demand(
        "unit of privacy", "stated", f"Each {claim.unit}.{person}", "run.guarantee.unit, run.guarantee.per_person"
    )


def _adjacency(looked: Looked) -> Demand:
    claim = looked.results.run.guarantee
    asked = "which data sets are neighbours (unbounded or bounded)"
    if claim is None or claim.adjacency is None:
        return Demand(
            asked,
            "not stated",
            unclaimed(looked.results) if claim is None else "The claim does not say.",
            "run.guarantee",
        )
    kind = {"add-remove": "a unit is added or taken out (unbounded)", "replace": "a unit is replaced (bounded)"}
    return Demand(asked, "stated", f"{kind[claim.adjacency].capitalize()}.", "run.guarantee.adjacency")


def _parameters(looked: Looked) -> Demand:
    claim = looked.results.run.guarantee
    if claim is None:
        return Demand("epsilon and delta", "not stated", unclaimed(looked.results), "run.guarantee")
    epsilon = "no finite epsilon" if claim.epsilon is None else f"epsilon {claim.epsilon:.4g}"
    answer = f"{epsilon[0].upper()}{epsilon[1:]} at delta {claim.delta:.3g}, by {claim.accountant}; {claim.scope}."
    if looked.results.run.not_handed_over:
        answer += " It is the weakest of what the sites handed over."
    return Demand("epsilon and delta", "stated", answer, "run.guarantee.epsilon, .delta, .accountant")


def _trust(looked: Looked) -> Demand:
    claim = looked.results.run.guarantee
    asked = "trust model: whom the guarantee holds against"
    if claim is None:
        return Demand(asked, "not stated", unclaimed(looked.results), "run.guarantee")
    return Demand(
        asked,
        "stated",
        f"{claim.against[0].upper()}{claim.against[1:]}." if claim.against else "Not said.",
        "run.guarantee.against",
    )


def _checked_claim(looked: Looked) -> Demand:
    asked = "whether the guarantee was tried empirically"
    names = [
        entry.attack
        for entry in looked.results.results
        if any(name.startswith("epsilon") and est.value is not None for name, est in entry.estimates.items())
    ]
    otherwise = "This run has no empirical epsilon: canaries or fair coins give one. `fedaudit verify` checks a claim."
    return _tested(
        asked,
        list(dict.fromkeys(names)),
        "results[].estimates.epsilon-*",
        otherwise,
        f"By {', '.join(dict.fromkeys(names))}: a lower bound, never a proof that the guarantee holds.",
    )


def _ensemble(looked: Looked) -> Demand:
    many = len(looked.attacks)
    asked = "11.2.5: several membership-inference attacks, not one"
    status: Status = "tested" if many > 1 else "tested in part" if many else "not tested"
    return Demand(
        asked,
        status,
        f"{', '.join(looked.attacks) or 'None'} ({count(many)} in all). Each counts for the verdict.",
        "results[]",
    )


def _low_rate(looked: Looked) -> Demand:
    asked = "11.2.5: results at fixed low false-positive rates, not the AUC alone"
    names = {
        name
        for f in looked.found
        for name, e in f.headline.estimates.items()
        if fpr_of(name) and e.value is not None and not e.doubt
    }
    rates = sorted(fpr for name in names if (fpr := fpr_of(name)) is not None)
    if not rates:
        return Demand(asked, "not tested", "There were too few records to calibrate any rate.", "")
    return Demand(
        asked, "tested", f"At {', '.join(map(rate, rates))} false accusations.", "headlines[].estimates.tpr@*"
    )


def _blind(looked: Looked) -> Demand:
    asked = "11.2.5: a baseline that sees no model, on the same members and non-members"
    entry = words.blind(looked.results)
    told = (
        "It tells them apart: only what exceeds it counts."
        if words.sets_differ(looked.results)
        else f"It does not certainly tell them apart: AUC {full_text('auc', blind_auc(looked.results.results))}."
    )
    return _tested(
        asked, ["blind"] if entry else [], "results[] with attack = blind", "No blind baseline has a result.", told
    )


def _subpopulations(looked: Looked) -> Demand:
    return replace(_anybody(looked), asked="11.2.5: subpopulations")


def _private_training(looked: Looked) -> Demand:
    return replace(_parameters(looked), asked="11.2.4: training with differential privacy, with its budget")


def _served(looked: Looked) -> Demand:
    told = "These are about the service that answers queries, which this audit does not look at."
    return Demand(
        "11.2.1 to 11.2.3: outputs without inferred attributes, rate limits, calibrated outputs", "not tested", told, ""
    )


# ------------------------------------------------------------------ the pages


def page(results: Results, files: Sequence[str], signed: str = "") -> str:
    tables = [
        (
            source,
            Table(
                ("what is asked for", "", "what this audit did and found", "in results.json"),
                [[d.asked, d.status, d.answer, d.place] for d in source.demands],
            ),
        )
        for source in sources(results)
    ]
    return html.page(
        "evidence.html",
        name=results.run.name or "federation",
        facts=facts(results),
        sources=tables,
        who=who(results),
        files=files,
        signed=signed,
        sums=SUMS,
    )


def annex(results: Results) -> str:
    """A few printed pages, to be attached to a data-protection impact assessment. What is signed stands above the
    signature: every figure with its counts, what was filled in, and how many trainings it rests on."""
    found = words.findings(results)
    measures = _measures(Looked(results, found)).answer
    return html.page(
        "annex.html",
        name=results.run.name or "federation",
        facts=facts(results),
        preface=words.preface(results),
        findings=[(adversary(f.vantage), f) for f in found],
        beside=words.beside_findings(results),
        answers=answers(results, found),
        measures=measures,
        figures=_figures(found),
        parties=_parties(results),
        units=_units(results),
        rests=_rests(results, found),
        sources=[cited for _, cited in SOURCES.values()],
    )


def _figures(found: Sequence[Finding]) -> Table:
    """Every quoted figure with its interval and its counts."""
    rows = [
        [
            adversary(f.vantage).title,
            metric(name).title,
            str(ValueText.of(name, est)),
            f"{100 * est.confidence:.4g} %",
            *(count(n) if n else NONE for n in (est.n_pos, est.n_neg, est.n_cal)),
        ]
        for f in found
        for name, est in f.headline.estimates.items()
        if name == "auc" or fpr_of(name)
    ]
    head = ("who is looking", "figure", "value (interval)", "confidence", "members", "non-members", "to set thresholds")
    return Table(head, rows)


def _parties(results: Results) -> Table:
    rows = [[p.name, count(p.members), count(p.evaluation), count(p.calibration)] for p in results.run.parties]
    return Table(("party", "trained on", "non-members reported on", "to set thresholds"), rows)


def _rests(results: Results, found: Sequence[Finding]) -> list[tuple[str, str]]:
    """What a reader must know before quoting a figure."""
    looked = Looked(results, found)
    of_data = _told(results, "cells-filled", "unlabelled")
    none = (
        "What the sites filled in or left out was not handed over."
        if "cells" in results.run.not_handed_over
        else "The results name no cell that was filled in and no row that was left out."
    )
    several = _told(results, "in-several-parties")
    return [
        *(("Why the figures may be too small", said) for said in results.understates),
        (_units(results), f"{_sizes(looked)}.{_fewer(looked)}"),
        ("Cells that were empty, rows left out", " ".join(of_data) or none),
        *([("People at several parties", " ".join(several))] if several else []),
        limits(results, found)[0],
        ("Attacks", f"{count(len(looked.attacks))} on membership; each counts for the findings."),
    ]


def _told(results: Results, *codes: str) -> list[str]:
    """What was said under these codes."""
    return [said for one, said in results.said() if one.code in codes]


def _units(results: Results) -> str:
    return "People" if words.about_people(results) else "Records"


def _fewer(looked: Looked) -> str:
    """Why the figures have other counts than the parties."""
    parties = looked.results.run.parties
    totals = [sum(getattr(p, role) for p in parties) for role in ("members", "evaluation", "calibration")]
    quoted = [e for f in looked.found for name, e in f.headline.estimates.items() if name == "auc" or fpr_of(name)]
    counts = [[n for e in quoted if (n := getattr(e, key))] for key in ("n_pos", "n_neg", "n_cal")]
    least = [min(some, default=total) for some, total in zip(counts, totals, strict=True)]
    if not any(fewest < total for fewest, total in zip(least, totals, strict=True)):
        return ""
    members, others, thresholds = map(count, least)
    return (
        f" Some figures rest on fewer: at the fewest, on {members} members, {others} outsiders and {thresholds} to set "
        "thresholds. Nobody is judged on those whom an adversary knows or an attack was fitted on, and a figure may "
        "leave parties out. The table of the figures has the counts of each."
    )


# ------------------------------------------------------------------ the folder


def write_pack(run: Path, out: Path, *, redact: bool = False, auditor: str = "", key: Path | None = None) -> list[Path]:
    """All files of the pack, the checksums last, and their signature if there is a key."""
    signer = _signer(key) if key else None
    document = replace(load(run), exposed=None)  # which says of records that they were trained on
    if auditor:
        report = {**document.run.config, "report": {"auditor": auditor}}
        document = replace(document, run=replace(document.run, config=report))
    document = _without_names(document, auditor) if redact else _without_folders(document)
    _make(out)
    results = cleaned(document)
    contents = {
        RESULTS: json.dumps(document.to_json(), indent=1, allow_nan=False) + "\n",
        CONFIGURATION: written(document.run.config),
        VERSIONS: json.dumps({"fedaudit": document.run.fedaudit, **document.run.versions}, indent=1) + "\n",
        REPORT: html.render(document),
        ANNEX: annex(results),
    }
    if not redact:  # names of files may be names of people and places
        contents[OF_RUN] = _sums(sorted(filter(_of_the_audit, results_file(run).parent.iterdir())))
    listed = [PAGE, *contents, SUMS]
    contents = {PAGE: page(results, listed, _how_signed(signer)), **contents}
    for name, text in contents.items():
        write_atomically(out / name, text)
    written_files = [out / name for name in contents]
    write_atomically(out / SUMS, _sums(written_files))
    made = [*written_files, out / SUMS]
    return [*made, _sign(out / SUMS, key, signer)] if key and signer else made


def _of_the_audit(path: Path) -> bool:
    """Is it a file of the run that may be held against the pack? Not what is working there, nor the secret that makes
    ids of records: with its checksum a guess could be tried."""
    working = path.name in (LOCK, SALT) or path.name.startswith((".", "memory-", "halted-", "incoming-"))
    return path.is_file() and not working


def _without_folders(document: Document) -> Document:
    """Without the folders in which files lay: they name machines and people. The names of the files stay."""
    stored = document.to_json()
    folders = {f"{Path(text).parent}/" for text in _strings(stored["run"]["config"]) if Path(text).is_absolute()}
    longest = sorted(folders - {"//"}, key=len, reverse=True)

    def bare(value: Any) -> Any:
        if isinstance(value, str):
            for folder in longest:
                value = value.replace(folder, "")
            return value
        if isinstance(value, dict):
            return {key: bare(inner) for key, inner in value.items()}
        return [bare(inner) for inner in value] if isinstance(value, list) else value

    return Document.from_json(bare(stored)) if longest else document


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _without_names(document: Document, auditor: str) -> Document:
    """Without names of parties, groups and files. Who answers for the pack is named if that was asked for now."""
    hidden = redacted(document)
    config = {**hidden.run.config, **({"report": {"auditor": auditor}} if auditor else {})}
    return replace(hidden, run=replace(hidden.run, config=config))


def _make(out: Path) -> None:
    """An empty folder, or one that holds a pack and nothing else: its files are replaced, and no signature of the
    former ones is left."""
    there = {path.name for path in out.iterdir()} if out.is_dir() else set()
    ours = {PAGE, ANNEX, CONFIGURATION, VERSIONS, RESULTS, REPORT, OF_RUN, SUMS, *(SUMS + end for end in ENDS.values())}
    if there and not ({PAGE, SUMS} <= there <= ours):
        what = f"{out} holds other files ({min(there - ours or there)})"
        raise FedauditError("exists", what, "Give an empty or a new folder as --out, or one that holds a pack alone.")
    for name in there & {OF_RUN, *(SUMS + end for end in ENDS.values())}:
        (out / name).unlink()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedauditError("unwritable", f"cannot make {out}: {error.strerror}", "Give another folder.") from None


def _sums(paths: Sequence[Path]) -> str:
    """As `sha256sum --check` reads it."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)


# ------------------------------------------------------------------ a detached signature

Signer = Literal["minisign", "ssh-keygen"]
ENDS: dict[Signer, str] = {"minisign": ".minisig", "ssh-keygen": ".sig"}
SPACE = "fedaudit"  # the namespace of a signature by ssh-keygen


def _signer(key: Path) -> Signer:
    try:
        start = key.read_bytes()[:64]
    except OSError as error:
        raise FedauditError("key", f"cannot read {key}: {error.strerror}", "Give the file of a secret key.") from None
    tool: Signer = "minisign" if start.startswith(b"untrusted comment:") else "ssh-keygen"
    if shutil.which(tool) is None:
        what = f"{key.name} is a key for {tool}, which is not installed"
        raise FedauditError("no-signer", what, f"Install {tool}, or leave --sign out and sign {SUMS} yourself.")
    return tool


def _sign(file: Path, key: Path, signer: Signer) -> Path:
    signed = file.with_name(file.name + ENDS[signer])
    signed.unlink(missing_ok=True)
    command = {
        "minisign": ["minisign", "-S", "-s", str(key), "-m", str(file)],
        "ssh-keygen": ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", SPACE, str(file)],
    }[signer]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode or not signed.is_file():
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise FedauditError(
            "not-signed", f"{signer} did not sign {file.name}: {why}", "Check the key; the pack itself is written."
        )
    return signed


def _how_signed(signer: Signer | None) -> str:
    """What a reader types to check the signature."""
    if signer is None:
        return ""
    if signer == "minisign":
        return f"minisign -V -p PUBLIC-KEY -m {SUMS}"
    return f"ssh-keygen -Y verify -f ALLOWED-SIGNERS -I SIGNER -n {SPACE} -s {SUMS}.sig < {SUMS}"
