"""Attacks with options: a short form is the table that it stands for, what is wrong is told, and names say it all."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.adversary.attacks import choose, every, made
from fedaudit.adversary.attacks.base import BaseAttack, Evidence, Own
from fedaudit.adversary.attacks.fusion import Fusion
from fedaudit.adversary.reductions import Kept, Last
from fedaudit.adversary.shadow import INSIDE
from fedaudit.adversary.shadow import SIGNALS as OF_REFERENCES
from fedaudit.adversary.signals.outputs import SIGNALS, from_outputs
from fedaudit.config.attack_registry import ATTACKS, option, read_word, written
from fedaudit.config.schema import Config, parse
from fedaudit.errors import FedauditError
from fedaudit.results.gate import parse_limit, parse_rule
from fedaudit.session.assemble import SERIES
from fedaudit.session.prepare import prepare
from fedaudit.types import Audit, Moment
from tests.worlds import ON_TEXT, config, of_records, watch

# What the version before there were options scored.
FORMER: dict[str, list[float | None]] = json.loads((Path(__file__).parent / "scores_by_name.json").read_text())
NAMES = [*ATTACKS.short_forms]


def asking(*attacks: Any, **audit: Any) -> Config:
    return parse({"audit": {"attacks": list(attacks), **audit}})


def at_length(name: str) -> dict[str, Any]:
    entry, short = ATTACKS.short_forms[name]
    return {"name": entry.name, **short.options}


# ------------------------------------------------------------------ today's names


def measured(round: int, n: int = 12) -> dict[str, Any]:
    """A round of every signal, at random."""
    rng = np.random.default_rng([round, 7])
    logit = rng.normal(0.3 * round, 1.0, n)
    values = from_outputs(np.column_stack([logit, np.zeros(n)]), np.zeros(n, int), SIGNALS, np.ones((n, 1)))
    single = ("merlin", "matched-filter", "matched-filter-peer", "projres", "inverse-hessian", "loss-before")
    values |= {name: rng.normal(size=n) for name in single}
    values |= {name: rng.uniform(1, 2, n) for name in ("matched-strength", "matched-strength-peer")}
    layers = ("gradient-cosine", "gradient-diff", "gradient-norm-all", "boundary", "deepfool")
    values |= {name: rng.uniform(size=(n, 3)) for name in layers}
    values |= {"label-right": rng.integers(0, 2, n).astype(float), "boundary-queries": np.ones(n)}
    values["gradient-norm-all"] = values["gradient-norm-all"][:, 0]
    values["peer-cosine"] = rng.normal(size=(n, 2 * 3))
    values["neighbourhood-loss"] = rng.exponential(size=(n, 4))
    values |= {name: rng.normal(size=(n, 4)) for name in OF_REFERENCES}
    return values | {INSIDE: np.tile([True, False, True, False], (n, 1))}


def scored(attack: BaseAttack) -> list[float]:
    reduction = attack.reduce(12)
    for round in range(1, 8):
        values = measured(round)
        if attack.gather == "sorted":
            values["loss"] = np.column_stack([values["loss"], values["loss"] + 1])
        reduction.observe(Moment(round), values)
    features = reduction.features()
    own = Own(np.tile(features, (8, 1)), np.tile([True, False, False], 32))
    evidence = Evidence(features[4:], known=Own(features[:6], np.arange(6) < 3), own=own, shadow=own)
    found: list[float] = attack.fit(evidence).score(features).tolist()
    return found


def test_every_former_name_is_there() -> None:
    later = {"unmix", "subject-unmix"}
    assert set(FORMER) == {*of_records(), *every("subject"), *SERIES} - later
    assert {*NAMES} - later == {*FORMER, "attribute", *ON_TEXT}


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_scores_as_it_did_and_so_does_its_table(name: str) -> None:
    former = [np.nan if value is None else value for value in FORMER[name]]
    found = scored(made(name))
    learnt = name in SERIES or name.startswith("tear")
    assert found == pytest.approx(former, rel=1e-4 if learnt else 1e-9, abs=1e-10, nan_ok=True)
    (asked,) = asking(at_length(name)).audit.attacks or ()
    assert np.array_equal(scored(made(asked)), found, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_the_short_form_that_it_equals(name: str) -> None:
    short, table = asking(name, vantages=["client"]), asking(at_length(name), vantages=["client"])
    assert table.audit.attacks == (name,)
    assert table.hash() == short.hash()
    entry, form = ATTACKS.short_forms[name]
    assert made(written(entry.name, form.options)) == made(name)
    assert made(name).name == name


def test_both_forms_may_be_mixed() -> None:
    long = '{ name = "fta", signal = "loss" }, { name = "fta-logit", degree = 5 }'
    asked = parse({}, [f'audit.attacks=["loss", {long}, "fta+degree=6"]']).audit.attacks
    assert asked == ("loss", "fta-loss", "fta+signal=logit+degree=5", "fta+degree=6")
    assert asking({"name": "canife"}, {"name": "mine:Own", "options": {"k": [1, 2]}}).audit.attacks == (
        "canife",
        "mine:Own+k=1~2",
    )


# As the former version computed them: the cells of its studies are found by these.
@pytest.mark.parametrize(
    ("audit", "hash"),
    [
        ({"attacks": ["fta-confidence", "loss"]}, "02720ea6921a370f"),
        (
            {"attacks": ["fusion", "tear"], "fusion": {"attacks": ["loss", "fta-loss"]}, "tear": {"queries": 90}},
            "344115a958109811",
        ),
    ],
)
def test_former_configurations_keep_their_hash(audit: dict[str, Any], hash: str) -> None:
    assert parse({"audit": audit}).sharing(0.3, 0.3).hash() == hash  # as former versions wrote them


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("attack", "code", "says"),
    [
        ({"name": "ft", "degree": 2}, "unknown-attack", "attacks.0.name: unknown attack 'ft'.*Did you mean 'fta'"),
        ({"name": "fta", "sgnal": "loss"}, "unknown-key", "audit.attacks.0.sgnal.*Did you mean 'signal'"),
        ({"name": "fta", "outside": True}, "attack-key", "outside belongs to kta, lira, rmia, not to fta"),
        ({"name": "fta", "signal": "los"}, "bad-value", "attacks.0.signal: Input should be 'confidence', 'loss' or"),
        ({"name": "fta", "degree": 0}, "bad-value", "attacks.0.degree.*greater than or equal to 1, got 0"),
        ({"name": "loss", "degree": 2}, "attack-key", "degree belongs to fta, subject-fta, not to loss"),
        ({"name": "fta-loss", "signal": "logit"}, "attack-key", "fta-loss is fta with signal = 'loss'"),
        ({"degree": 2}, "bad-value", "attacks.0.name: Field required"),
        ({"name": "matched-filter", "damping": -1}, "bad-value", "attacks.0.damping"),
        ({"name": "tear", "queries": 3}, "bad-value", "attacks.0.queries.*greater than or equal to 50"),
        ({"name": "mine:Own", "skip": 1}, "attack-key|unknown-key", "skip"),
        ({"name": "mine:Own", "options": {"k": {}}}, "attack-options", "the option k of an attack is a dict"),
        (3, "bad-value", "audit.attacks.0"),
    ],
)
def test_a_wrong_option_is_told(attack: Any, code: str, says: str) -> None:
    with pytest.raises(FedauditError, match=says) as caught:
        asking(attack)
    assert re.fullmatch(code, caught.value.code)


@pytest.mark.parametrize(
    ("word", "code", "says"),
    [
        ("fta+degree", "attack-options", "does not say which option"),
        ("fta+degree=many", "bad-value", "degree: Input should be a valid integer"),
        ("fta+degre=2", "unknown-key", "Did you mean 'degree'"),
        ("ft+degree=2", "unknown-attack", "Did you mean 'fta'"),
        ("fta+degree=2+weights=printed", "attack-options", "degree is 2"),
        ("tear+deepfool=true+queries=90", "attack-options", "queries has no effect"),
        ("distillation+fraction=true+variance=record", "attack-options", "a fraction has no variance"),
        ("fusion+attacks=loss~fta-loss+weights=1~2~3", "attack-options", "3 weights for 2 attacks"),
    ],
)
def test_so_is_one_on_the_command_line(word: str, code: str, says: str) -> None:
    with pytest.raises(FedauditError, match=says) as caught:
        choose([word])
    assert caught.value.code == code


def test_two_attacks_with_one_name_are_refused() -> None:
    with pytest.raises(FedauditError, match="fta-loss is listed twice"):
        asking("fta-loss", {"name": "fta", "signal": "loss"})
    with pytest.raises(FedauditError, match="two attacks are called 'fta-loss'"):
        choose(["fta-loss", "fta+signal=loss"])


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "options",
    [
        {"degree": 5},
        {"x": 0.1, "y": 1e300, "z": -2.5e-07, "n": -3, "yes": True},
        {"layer": "net.0"},
        {"text": "a+b=c~d%e/f g,h]äö: 'x'"},
        {"some": ["a", "b~c"], "one": ["a"], "none": []},
    ],
)
def test_a_word_can_be_read_again_and_is_safe_everywhere(options: dict[str, Any]) -> None:
    word = written("fta", options)
    assert re.fullmatch(r"[A-Za-z0-9+=~%._-]+", word)  # for files, shells and gates
    name, found = read_word(word)
    assert (name, list(found)) == ("fta", list(options))
    for key, value in options.items():
        if isinstance(value, float):
            assert float(found[key]) == value
        elif isinstance(value, bool):
            assert found[key] == "true"
        else:
            assert found[key] == (str(value) if isinstance(value, int) else value)
    rule = parse_rule(f"auc[attack={word}, vantage=client] > 0.6")
    assert (rule.attack, rule.vantage) == (word, "client")
    assert parse_limit(f"tpr@0.01[attack={word}] < 0.02").attack == word


def test_what_is_not_set_is_not_in_the_name() -> None:
    sections = {"matched": {"damping": 0.5}, "reference": {"variance": "record"}, "tear": {"queries": 90}}
    audit = asking("matched-filter", {"name": "lira", "variance": "shared"}, **sections).audit
    assert [attack.name for attack in choose(audit.attacks, audit)] == ["matched-filter", "lira+variance=shared"]


@dataclass(frozen=True)
class SecondOfMine(BaseAttack):
    skip: int = option(0, "rounds that are passed over", ge=0)

    @property
    def signals(self) -> tuple[str, ...]:
        return ("loss",)

    def reduce(self, n: int) -> Kept:
        return Last("loss", -1.0, n)


def test_ones_own_is_called_after_its_class_and_its_options_are_checked() -> None:
    mine = f"{__name__}:SecondOfMine"
    (asked,) = asking({"name": mine, "options": {"skip": 2}}).audit.attacks or ()
    assert (made(mine).name, made(asked).name) == ("second-of-mine", "second-of-mine+skip=2")
    assert made(asked) == SecondOfMine(2)
    for options, says in (({"skip": -1}, "skip"), ({"skp": 1}, "Did you mean 'skip'")):
        (asked,) = asking({"name": mine, "options": options}).audit.attacks or ()
        with pytest.raises(FedauditError, match=says):
            made(asked)


# ------------------------------------------------------------------ options and sections


def pooled(audit: Audit) -> dict[tuple[str, str], Any]:
    found = {(r.attack, r.model): r for r in audit.results if r.party is None}
    return {place: (r.estimates, r.layer, r.cost.queries) for place, r in found.items()}


@pytest.mark.parametrize(
    ("name", "section", "options"),
    [
        ("matched-filter", "matched", {"fit": "nonmembers", "damping": 0.5, "layer": "1"}),
        ("projres", "matched", {"layer": "3"}),
        ("boundary", "tear", {"own": 60, "queries": 60, "targets": 1, "bounds": [-1.0, 2.0]}),
        ("gap", "tear", {"own": 50}),
        ("fusion", "fusion", {"attacks": ["loss", "fta-logit"], "weights": [2.0, 1.0]}),
        ("lira", "reference", {"variance": "record"}),
    ],
)
def test_an_option_does_what_its_section_does_beside_the_plain_attack(
    name: str, section: str, options: dict[str, Any]
) -> None:
    """Two ways in one audit: each scores as it does alone."""
    usual = {"tear": {"own": 80, "queries": 80}, "reference": {"models": 4}}
    seen = {"vantages": ["client", "server", "label-only-client"] if section == "tear" else ["client", "server"]}
    small: dict[str, Any] = {"federation": {"rounds": 2}}
    asked = {"attacks": [name, {"name": name, **options}, "fed-loss"]}
    both = prepare(config(audit=seen | usual | asked, **small))
    found, long = pooled(watch(both)), both.settings.attacks[1].name
    assert long == written(name, options)
    for sections, called in (({}, name), ({section: usual.get(section, {}) | options}, long)):
        alone = {"attacks": [name, "fed-loss"]}
        one = pooled(watch(prepare(config(audit=seen | usual | alone | sections, **small))))
        for model in {model for attack, model in one if attack == name}:
            assert found[called, model] == one[name, model], (called, model)


def test_a_layer_that_does_not_exist_is_refused_before_training() -> None:
    with pytest.raises(FedauditError, match="no matched filter for layer 'fc'"):
        prepare(config(audit={"attacks": [{"name": "matched-filter", "layer": "fc"}]}))


def test_options_of_the_search_are_checked_before_training() -> None:
    for options, says in (
        ({"queries": 50, "targets": "all"}, "leaves 8 labels"),
        ({"bounds": [1.0, 0.0]}, "bounds must rise"),
        ({"bounds": [0.0, 0.5]}, "would keep the search away"),
    ):
        asked = {"attacks": [{"name": "tear", **options}], "vantages": ["label-only-client"]}
        with pytest.raises(FedauditError, match=says):
            prepare(config(audit=asked, federation={"rounds": 6}))


def test_a_part_of_fusion_may_have_options() -> None:
    (attack,) = choose([asking({"name": "fusion", "attacks": ["loss", {"name": "fta", "degree": 5}]}).audit.attacks[0]])  # type: ignore[index]
    assert attack.name == "fusion+attacks=loss~fta%2Bdegree%3D5"
    assert isinstance(attack, Fusion)
    assert [part.name for part in attack.parts] == ["loss", "fta+degree=5"]
