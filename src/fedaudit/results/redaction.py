"""A report that names nobody, to be passed on. Every number stays as it is.

Nothing is looked for in sentences. Names are replaced in the fields that hold them, and what can be said is said anew
from there: warnings and notices by their codes (`fedaudit.words`), headlines by their figures (`words.headlines`).
Parties are numbered, and so are attacks, questions and figures that are not fedaudit's own. Any other text is left out
unless it is a word of fedaudit's own, or a sentence of its own that holds nothing but numbers beside. What is stored as
a sentence alone, by the former version or by other people's code, is left out and counted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from fedaudit.config.attack_registry import ATTACKS, BLIND, BLIND_ABOUT, plain, read_word
from fedaudit.config.registry import DATA, DEFENCES, MODELS, Registry
from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError
from fedaudit.questions import MINUS, of, ours
from fedaudit.results.document import ERRORS, RESULTS, SCORES, Document
from fedaudit.results.gate import Rule, parse_rules
from fedaudit.results.schema import schema
from fedaudit.stats.strongest import RANK, Heard, strongest
from fedaudit.stats.wording import main_tpr
from fedaudit.trace.journal import JOURNAL
from fedaudit.types import AuditResult, Grant, Headline, Notice, Tone, Vantage, notice, warning
from fedaudit.words import CANNOT, EPSILONS, LEAVES, LINES, OF_ATTRIBUTE, READERS, WORDS, words
from fedaudit.words.headlines import Scene, seen_figures, worded

LEFT_OUT = "(left out)"

# Said anew, or not at all: these are not read for names.
AFRESH = frozenset(
    {"sentence", "details", "most_exposed", "warnings", "notices", "told", "degraded", "understates", "glossary"}
)
GROUPS = frozenset({"group", "looked_at", "too_small", "too_many"})  # keys of groups of candidates
SECRET = frozenset({"exposed", "canary"})  # records, and what looks like one
AS_GIVEN = frozenset({"slow-gradients"})  # said in the words of whoever knew, and nothing else
BY_FIGURE = frozenset(
    {
        "estimates",
        "inside",
        "outside",
        "beyond",
        "beside",
        "curves",
        "smallest",
        "largest",
        "accuracy",
        "weights_per_member",
    }
)
STATUS = {
    "complete": "complete",
    "interrupted": "interrupted",
    "degraded": "degraded",
    "recorded": "recorded in part",
    "not-audited": "not audited",
}
PACKAGES = ("python", "torch", "numpy", "scipy")


def redacted(document: Document) -> Document:
    """The same results, to be passed on. The document itself is not changed."""
    hidden = _Hidden.of(document)
    values = hidden.tree(document.to_json())
    run = values["run"]
    run |= {"name": "federation", "status": STATUS[document.run.ending], "config": hidden.config(document.run.config)}
    run["config_hash"] = ""  # a guess at what was left out could be checked with it
    if document.run.data.name == run["config"].get("data", {}).get("name"):
        run["data"]["name"] = document.run.data.name  # such as `baskets`
    found = Document.from_json(values)
    results = [hidden.with_warnings(*both) for both in zip(document.results, found.results, strict=True)]
    cut, sentences = len(document.warnings), [*document.warnings, *document.notices]
    warnings = hidden.said(document.all_told()[:cut], sentences[:cut])
    notices = hidden.said(document.all_told()[cut:], sentences[cut:])
    failed = [f"{'question' if one.attack in ours() else 'attack'} {one.attack}" for one in found.failed]
    found = replace(
        found,
        results=results,
        headlines=_worded(found, results),
        warnings=[words(told) for told in warnings],
        notices=[words(told) for told in notices],
        told=(*warnings, *notices),
        degraded=[*failed, *hidden.repeated(document.degraded[len(failed) :])],
        understates=hidden.repeated(document.understates),
        glossary={name: _about(name) for name in document.glossary if _own_attack(name)},
    )
    lost = [notice("remarks-left-out", count=hidden.lost)] if hidden.lost else []
    return found.noting(*lost, notice("redacted"))


@dataclass
class _Hidden:
    """What stands for each name, and what could not be said again."""

    foreign: frozenset[str]  # the attacks that answer questions of other people's
    own_model: bool
    numbers: dict[tuple[str, str], str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)  # what is said in place of a sentence
    lost: int = 0

    @classmethod
    def of(cls, document: Document) -> "_Hidden":
        foreign = frozenset(entry.attack for entry in document.results if not _own_question(entry))
        model = document.run.config.get("model")
        found = cls(foreign, isinstance(model, Mapping) and model.get("name") in _names(MODELS))
        for party in document.run.parties:
            found.numbered("party", party.name)
        return found

    def numbered(self, kind: str, name: str, sign: str = " ") -> str:
        taken = sum(other == kind for other, _ in self.numbers)
        return self.numbers.setdefault((kind, name), f"{kind}{sign}{taken + 1}")

    # -------------------------------------------------------------- fields

    def tree(self, value: Any, key: str = "", ours: bool = True) -> Any:
        """Whatever is not known to be harmless is left out. `ours`: fedaudit itself wrote what is said of figures."""
        if isinstance(value, str):
            return self.text(key, value, ours)
        if isinstance(value, list | tuple):
            return [self.tree(item, key, ours) for item in value]
        if not isinstance(value, Mapping):
            return value
        if key in GROUPS:
            return self.group(value)
        ours = ours and value.get("attack") not in self.foreign
        if key == "versions":
            return {name: value[name] for name in PACKAGES if name in value}
        kept = {each: item for each, item in value.items() if each not in AFRESH | SECRET}
        if key in BY_FIGURE:
            return {
                each if ours else self.numbered("figure", each, "-"): self.tree(item, "", ours)
                for each, item in kept.items()
            }
        inside = {each: "party" if (key, each) == ("parties", "name") else each for each in kept}
        return {
            each if each in _fields() or each in _own_words() else f"{LEFT_OUT[:-1]}, {place})": self.tree(
                item, inside[each], ours
            )
            for place, (each, item) in enumerate(kept.items(), start=1)
        }

    def text(self, key: str, value: str, ours: bool = True) -> str:
        if not value or key in ("created", "fedaudit"):
            return value
        if key in ("party", "parties"):
            return self.numbered("party", value)
        if key in ("attack", "attacks", "primary"):
            return value if _own_attack(value) else self.numbered("attack", value)
        if key in ("vantage", "vantages"):
            return value if value in set(Vantage) else self.numbered("vantage", value)
        if key in ("question", "unit") and not _own(value):
            return self.numbered(key, value, "-")
        if key in ("rule", "limit"):
            return self.rule(value)
        if (key == "method" and ours) or (key == "layer" and self.own_model):
            return value
        return value if _own(value) else LEFT_OUT

    def group(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What people have in common is told by a number, unless fedaudit itself counted it."""
        column, value = found.get("attribute", ""), found.get("value", "")
        hidden = {"kind": found["kind"]}
        if column:
            hidden["attribute"] = self.numbered("attribute", column)
        if value:
            counted = found["kind"] in ("rare-value", "records")
            hidden["value"] = value if counted else self.numbered("value", f"{column}={value}")
        return hidden

    def rule(self, text: str) -> str:
        """A limit, with the names in its brackets replaced."""
        try:
            return " and ".join(map(self._condition, parse_rules(text)))
        except FedauditError:
            return LEFT_OUT

    def _condition(self, rule: Rule) -> str:
        chosen = {"attack": rule.attack, "vantage": rule.vantage, "party": rule.party}
        inside = ", ".join(f"{key}={self.text(key, name)}" for key, name in chosen.items() if name)
        figure = rule.metric if _own(rule.metric) else self.numbered("figure", rule.metric, "-")
        return f"{figure}{f'[{inside}]' if inside else ''} {rule.sign} {rule.limit:g}"

    def config(self, section: Any, key: str = "", registry: Registry | None = None) -> Any:
        """Numbers stay, and texts that fedaudit itself gives to choose from."""
        if isinstance(section, list | tuple):
            return [self.config(item, key, registry) for item in section]
        if isinstance(section, Mapping):
            known = {each: item for each, item in section.items() if each in _choices() or each in REGISTRIES}
            inside = None if key else REGISTRIES
            return {
                each: self.config(item, each, (inside or {}).get(each, registry if each == "name" else None))
                for each, item in known.items()
            }
        if not isinstance(section, str):
            return section
        if key == "name" and registry is not None:
            return section if section in _names(registry) else LEFT_OUT
        if key in ("attacks", "vantages"):
            return self.text(key, section)
        return section if section in _choices().get(key, ()) else LEFT_OUT

    # -------------------------------------------------------------- sentences

    def said(self, told: Sequence[Notice], sentences: Sequence[str]) -> list[Notice]:
        """What can be said again. The rest is counted."""
        found = []
        for one, sentence in zip(told, sentences, strict=True):
            anew = self.anew(one)
            if anew is None:
                self.lost += 1
            else:
                self.again[sentence] = words(anew)
                found.append(anew)
        return found

    def anew(self, told: Notice) -> Notice | None:
        """The same without names; None if there are no words for it."""
        if "text" in told.data or told.code in AS_GIVEN or told.code not in {**WORDS, **LINES}:
            return None
        anew = replace(told, data={key: self.tree(item, key) for key, item in told.data.items()})
        try:
            words(anew)
        except (KeyError, TypeError, ValueError, IndexError):  # of another version: its data are not those of today
            return None
        return anew

    def repeated(self, sentences: Iterable[str]) -> list[str]:
        """What was told as a warning before; its names are replaced there."""
        return [self.again.get(sentence, LEFT_OUT) for sentence in sentences]

    def with_warnings(self, before: AuditResult, after: AuditResult) -> AuditResult:
        matching = len(before.told) == len(before.warnings)
        told = self.said(before.told, before.warnings) if matching else []
        self.lost += 0 if matching else len(before.warnings)
        return replace(after, told=tuple(told), warnings=[words(one) for one in told])


def _worded(document: Document, results: Sequence[AuditResult]) -> list[Headline]:
    headlines = document.headlines
    name = main_tpr([headline.estimates for headline in headlines])
    primary = {h.vantage: fixed for h in headlines if h.primary and (fixed := _primary(h, results, name))}
    about = {entry.attack: ATTACKS.brief(entry.attack) for entry in results if _own_attack(entry.attack)}
    scene = Scene(results, document.run.rounds, name, primary=primary, about=about, groups=document.groups)
    return worded([replace(headline, tone=_tone(headline, scene), lent_by="") for headline in headlines], scene)


def _tone(headline: Headline, scene: Scene) -> Tone:
    """As it was decided, unless a vantage that sees less lent it: its own interval does not bear it then, and nothing
    is known beside a figure that is doubted."""
    alone = Heard(headline.attack, headline.model, headline.estimates, headline.estimates, True).tone(scene.name)
    doubted = any(estimate.doubt for _, own in seen_figures(headline, scene) for estimate in own.values())
    alone = "unknown" if alone == "none" and doubted else alone
    return alone if RANK[alone] < RANK[headline.tone] else headline.tone


def _primary(headline: Headline, results: Sequence[AuditResult], name: str | None) -> Heard | None:
    """What the attack that was fixed before looking found there. Nothing is said of it where it was decided at another
    level than that of its results: intervals of that level are not stored."""
    entries = [r for r in results if (r.attack, r.party) == (headline.primary, None) and r.vantage == headline.vantage]
    quoted = {estimate.confidence for estimate in headline.estimates.values()}
    alike = [r for r in entries if {estimate.confidence for estimate in r.estimates.values()} >= quoted]
    heard = [Heard(r.attack, r.model, r.estimates, r.estimates, True) for r in alike]
    return strongest(heard, name) if heard else None


# ------------------------------------------------------------------ what is fedaudit's own


REGISTRIES = {"data": DATA, "model": MODELS, "defences": DEFENCES}
SHARES = ("excess", "gap", "members", "blind", "nonmembers", "outside", "label", "largest")  # in the data of notices
CAUSES = ("nobody", "failed", "no-interval", "doubted", "no-value", "binary", "mixed")

_CALIBRATION = "needs # more calibration non-members"
_SUBJECTS = "needs records of # subjects among members and among non-members, and"
_REJECTED = "the Gaussian fit is rejected:"
# Sentences of estimates and guarantees, # being a number.
SENTENCES = frozenset(
    {
        "no members",
        "nobody is called a member",
        "nobody is left to count",
        "no threshold was fixed",
        "no scores: too few rounds were seen, or none could be computed from them",
        "too few are left to report on when some are known to the adversary",
        "too few trials",
        "limited by the number of trials",
        "a Gaussian mechanism has no finite epsilon at delta #",
        "a record has no score: no other party took part in the same rounds",
        "# of # units were included: that is not what independent fair coins give",
        "# trials cannot be split in two",
        "needs # known non-members to be fitted on, and there are #",
        "needs at least # canaries that took part, and there were #",
        "needs at least # trials on either side",
        "needs at least one member and one evaluation non-member",
        "needs two runs that have a value, and there are #",
        "the thresholds of # of # runs are from records of another kind",
        "the value came out NaN or infinite",
        "the lower end came out NaN or infinite",
        "the upper end came out NaN or infinite",
        _CALIBRATION,
        *(
            f"{_CALIBRATION}: there must be #{together}, and there are #{worth}"
            for together in ("", " in all parties together")
            for worth in ("", ", which are worth # independent ones")
        ),
        *(
            f"the lower end is # until there are # more calibration non-members{where}"
            for where in ("", " in every party", " in the smallest party")
        ),
        *(
            f"{few} too few calibration non-members to accuse anybody for certain, so the value cannot exceed #"
            for few in ("# of # parties have", "there are")
        ),
        *(
            f"# of the outsiders{some} are accused where # was asked: the records that set the threshold are not like "
            f"those that are reported on{more}"
            for some in ("", " in # of # parties")
            for more in ("", ", and more may be picked out at the rate that was asked")
        ),
        f"{_SUBJECTS} there are #",
        f"{_SUBJECTS} those there are share the records so unevenly that they tell less than # with equal shares would",
        f"{_REJECTED} infinite scores",
        f"{_REJECTED} constant scores",
        f"{_REJECTED} members' scores are not normal (p = #)",
        f"{_REJECTED} non-members' scores are not normal (p = #)",
        f"{_REJECTED} the variances differ (p = #)",
        "group privacy gives an epsilon above #, which guarantees nothing",
        "exact Gaussian composition",
        "Renyi divergences",
        "PLD, interval #",
        "whole run of # rounds",
        "everybody outside the parties that hold the subject's records",
        "everybody outside the party that holds the record",
        "everybody, the server included",
        "whoever sees the noisy sum; not the server that adds it",
        *(
            f"delta # is above #: publishing one {unit} at random would satisfy it."
            for unit in ("record", "user", "subject")
        ),
    }
)

USELESS = [warning(code, right=0.5, commonest=0.5) for code in ("model-useless", "model-not-learnt")]


def _own(text: str) -> bool:
    base, _, rate = text.removesuffix(MINUS).partition("@")
    if text in _own_words() or (base in _own_words() and _is_number(rate)):
        return True
    shape = rest = _shape(text)
    for useless in map(_shape, map(words, USELESS)):  # one for each site, where several were merged
        rest = rest.replace(useless, "")
    return shape in SENTENCES or bool(shape and not rest.strip())


def _shape(sentence: str) -> str:
    """The sentence with # in place of every number."""
    return " ".join(_numberless(word) for word in sentence.split())


def _numberless(word: str) -> str:
    core = word.strip("(),.;:%")
    return word.replace(core, "#") if _is_number(core) else word


def _is_number(text: str) -> bool:
    return any(c.isdecimal() for c in text) and all(c in "0123456789.,/e+-" for c in text)


@cache
def _own_words() -> frozenset[str]:
    found = {
        *WORDS,
        *LINES,
        *READERS,
        *OF_ATTRIBUTE,
        *EPSILONS,
        *CANNOT,
        *LEAVES,
        *Grant,
        *Vantage,
        *SHARES,
        *CAUSES,
        *_choosable(schema()),
    }
    found |= {RESULTS, SCORES, ERRORS, JOURNAL, *ours(), *_names(DEFENCES)}
    return frozenset(found | {metric.name for question in ours().values() for metric in question.metrics})


@cache
def _fields() -> frozenset[str]:
    """All keys of results.json."""
    return frozenset(name for part in _parts(schema()) for name in part.get("properties", ()))


def _own_question(entry: AuditResult) -> bool:
    asked = of(entry)
    return asked is not None and asked.name in ours()


@cache
def _names(registry: Registry) -> frozenset[str]:
    entries = [entry for entry in registry.entries.values() if entry.make.__module__.startswith("fedaudit.")]
    return frozenset(entry.name for entry in entries if ":" not in entry.name)


@cache
def _attacks() -> dict[str, str]:
    """The names of fedaudit's own attacks, and what those do that are no class of attacks."""
    asked = {name: line for question in ours().values() for name, line in question.asked_by.items()}
    mine = [name for name, (entry, _) in ATTACKS.short_forms.items() if entry.name in _names(ATTACKS)]
    return {**dict.fromkeys([*ours(), *_names(ATTACKS), *mine], ""), **asked, BLIND: BLIND_ABOUT}


def _own_attack(name: str) -> bool:
    """Is it one of fedaudit's own, whose options hold no name?"""
    if plain(name) not in _attacks():
        return False
    try:
        options = read_word(name)[1]
    except FedauditError:
        return False
    return all(map(_harmless, options, options.values()))


def _harmless(key: str, value: str | Sequence[str]) -> bool:
    known = {"true", "false", *_choices().get(key, ()), *_attacks()}
    return all(_is_number(each) or each in known for each in ([value] if isinstance(value, str) else value))


def _about(name: str) -> str:
    return ATTACKS.explained(name) or _attacks().get(name, "")


@cache
def _choices() -> dict[str, frozenset[str]]:
    """The keys of a configuration, each with the texts that it offers or has by default."""
    found: dict[str, frozenset[str]] = {}
    entries = [entry for registry in (*REGISTRIES.values(), ATTACKS) for entry in registry.entries.values()]
    mine = [entry.options for entry in entries if entry.make.__module__.startswith("fedaudit.")]
    for section in [Config.model_json_schema(), *(options.model_json_schema() for options in mine)]:
        for part in _parts(section):
            for key, about in part.get("properties", {}).items():
                found[key] = found.get(key, frozenset()) | _choosable(about)
    return found


def _choosable(section: Any) -> frozenset[str]:
    """All texts that a schema offers."""
    offered: list[Any] = []
    for part in _parts(section):
        default = part.get("default")
        offered += [*part.get("enum", ()), part.get("const"), *(default if isinstance(default, list) else [default])]
    return frozenset(text for text in offered if isinstance(text, str))


def _parts(section: Any) -> Iterator[Mapping[str, Any]]:
    """A schema and everything in it."""
    if isinstance(section, Mapping):
        yield section
    inside = section.values() if isinstance(section, Mapping) else section if isinstance(section, list) else ()
    for part in inside:
        yield from _parts(part)
