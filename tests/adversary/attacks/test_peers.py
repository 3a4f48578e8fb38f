"""Other parties' updates as the null, and whose update fits best: against the same done record by record."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from fedaudit.adversary.attacks.base import Evidence
from fedaudit.adversary.attacks.gradients import CosineMargin, FedMIA
from fedaudit.errors import FedauditError
from fedaudit.questions.source.judge import naming
from fedaudit.results.document import SCHEMA_FILE, Document
from fedaudit.session.prepare import prepare
from fedaudit.session.recording import About
from fedaudit.session.run import rounds
from fedaudit.types import Audit, Estimate, Floats, Moment, Role
from fedaudit.words import all_words
from tests.views import local_views, signals
from tests.worlds import config, null_world, watch

LAYERS = 3  # two, and both together


def tables(rounds: int = 6, n: int = 30, parties: int = 4) -> Floats:
    """Rounds x records x parties x layers, layer 1 least varying; party 2 is away in every third round, and once
    everybody but the target is."""
    values = np.random.default_rng(0).normal(0, [1.0, 0.5, 0.1], size=(rounds, n, parties, LAYERS))
    values[::3, :, 2] = np.nan
    values[4, :, 1:] = np.nan
    return values


def observed(attack: FedMIA | CosineMargin, series: Floats) -> Floats:
    """Scores after all rounds; fitted on the first ten records."""
    reduction = attack.reduce(series.shape[1])
    for index, now in enumerate(series):
        values = {"gradient-cosine": now[:, 0], "peer-cosine": now[:, 1:].reshape(len(now), -1)}
        reduction.observe(Moment(index + 1), values)
    features = reduction.features()
    return attack.fit(Evidence(features[:10])).score(features)


def test_fedmia_is_the_mean_distance_above_the_others() -> None:
    series = tables()
    expected = np.zeros(30)
    compared = [now[:, :, 1] for now in series if not np.isnan(now[0, 1:]).all()]
    for now in compared:
        others = [[v for v in row[1:] if not np.isnan(v)] for row in now]
        spread = np.sqrt(np.mean([np.var(o, ddof=1) for o in others]))
        expected += [(row[0] - np.mean(o)) / spread for row, o in zip(now, others, strict=True)]
    assert len(compared) == 5
    assert observed(FedMIA(), series) == pytest.approx(expected / 5, abs=1e-12)


def test_source_names_whoever_has_the_largest_mean() -> None:
    series = tables()
    means = np.nanmean(series[:, :, :, 1], axis=0)
    scores = observed(CosineMargin(), series)
    assert np.array_equal(scores > 0, means.argmax(axis=1) == 0)
    assert scores == pytest.approx(means[:, 0] - means[:, 1:].max(axis=1), abs=1e-12)


def test_two_parties_have_no_spread_and_one_has_no_peers() -> None:
    pair = tables()[1:2, :, :2]
    assert observed(FedMIA(), pair) == pytest.approx(pair[0, :, 0, 1] - pair[0, :, 1, 1])
    alone = np.where(np.arange(2)[None, None, :, None] == 0, pair, np.nan)
    assert np.isnan(observed(FedMIA(), alone)).all()
    assert np.isnan(observed(CosineMargin(), alone)).all()


def test_every_party_has_its_place() -> None:
    """The signal under one party's view: the others' cosines by name, NaN for the absent."""
    prepared = prepare(config(federation={"parties": 3}))
    round = next(rounds(prepared))
    names = ["party-0", "party-1", "party-2", "party-9"]
    rows = prepared.game.candidates.rows.take(np.arange(40))
    views = {view.party: view for view in local_views(round, prepared.task, names)}
    alone = {p: signals(["gradient-cosine"], v, rows)["gradient-cosine"] for p, v in views.items()}
    found = signals(["peer-cosine", "gradient-cosine"], views["party-1"], rows)
    assert found["gradient-cosine"] == pytest.approx(alone["party-1"], abs=1e-6)
    first, second, away = np.split(found["peer-cosine"], 3, axis=1)
    assert first == pytest.approx(alone["party-0"], abs=1e-6)
    assert second == pytest.approx(alone["party-2"], abs=1e-6)
    assert np.isnan(away).all()


# ------------------------------------------------------------------ whole audits

ASKED = {"audit": {"attacks": ["loss", "fedmia", "source"]}}


def entries(audit: Audit, attack: str) -> dict[str | None, dict[str, Estimate]]:
    return {r.party: dict(r.estimates) for r in audit.results if r.attack == attack}


def test_T11_outsiders_and_other_parties_are_two_questions() -> None:
    """Three parties that overfit: the right one is named, and both questions have their answer; global models none."""
    federation = {"parties": 3, "rounds": 10, "local_epochs": 6, "members": 0.1, "nonmembers": 0.4}
    prepared = prepare(config(federation=federation, **ASKED))
    audit = watch(prepared)
    assert audit.failed == {}
    assert {r.model for r in audit.results if r.attack in ("fedmia", "source")} == {"local"}
    found = entries(audit, "source")
    accuracy = found[None]["accuracy"]
    assert accuracy.low is not None
    assert accuracy.low > 1 / 3
    assert "auc-other-party" not in found[None]
    for party in prepared.game.parties:
        assert {"auc", "auc-other-party", "accuracy"} <= set(found[party])
        elsewhere = found[party]["auc-other-party"]
        sizes = {p: len(prepared.game.members(p)) for p in prepared.game.parties}
        assert (elsewhere.n_pos, elsewhere.n_neg) == (sizes[party], sum(sizes.values()) - sizes[party])
        assert elsewhere.value is not None
        assert elsewhere.value > 0.6
    fedmia = entries(audit, "fedmia")[None]["auc"]
    assert fedmia.low is not None
    assert fedmia.low > 0.5
    assert any("names the party" in notice for notice in all_words(audit.notices))
    about = About.foreign("t11", prepared.auditor)
    document = Document.of(audit, about.info(prepared.auditor, "complete", 1.0))
    jsonschema.validate(document.to_json(), json.loads(SCHEMA_FILE.read_text()))


def test_naming_the_party_counts_for_what_it_exceeds() -> None:
    """Where labels alone say whose a record is, "names the party in 100 %" was quoted as if training had told it."""
    skewed = {"parties": 2, "rounds": 3, "partition": "column", "column": "label"}
    prepared = prepare(config(federation=skewed, audit={"attacks": ["loss", "source"]}))
    audit = watch(prepared)
    found = entries(audit, "source")[None]
    assert found["label-accuracy"].value == 1
    sizes = [int(prepared.game.truth.mask(role).sum()) for role in (Role.MEMBER, Role.EVALUATION)]
    for name in ("accuracy", "label-accuracy", "largest-accuracy"):  # about members, however many were named rightly
        assert (found[name].n_pos, found[name].n_neg) == (sizes[0], 0)
    assert (found["nonmembers-accuracy"].n_pos, found["nonmembers-accuracy"].n_neg) == (0, sizes[1])
    largest = found["largest-accuracy"].value
    assert largest is not None
    assert 0.5 <= largest < 0.6
    excess, own = found["excess-over-baselines"], found["accuracy"].value
    assert own is not None
    assert excess.value == pytest.approx(own - 1)
    assert excess.low is not None
    assert excess.low <= 0
    assert any("that training gives it away is not shown" in notice for notice in all_words(audit.notices))


def test_T11_a_leak_exceeds_the_same_attack_on_outsiders() -> None:
    federation = {"parties": 3, "rounds": 10, "local_epochs": 6, "members": 0.1, "nonmembers": 0.4}
    audit = watch(prepare(config(federation=federation, audit={"attacks": ["loss", "source"]})))
    found = entries(audit, "source")[None]
    low, outside = found["excess-over-baselines"].low, found["nonmembers-accuracy"]
    assert low is not None
    assert low > 0
    assert outside.low is not None
    assert outside.high is not None
    assert outside.low <= 1 / 3 <= outside.high
    assert any("source: training gives the party away" in notice for notice in all_words(audit.notices))


def test_a_party_without_peers_in_its_rounds_has_no_value_and_costs_no_other() -> None:
    """One party a round: every margin is NaN, and NaN went into results.json, which was then refused as a whole."""
    alone = {"parties": 3, "rounds": 6, "participation": 0.34}
    prepared = prepare(config(federation=alone, audit={"attacks": ["loss", "source"]}))
    audit = watch(prepared)
    about = About.foreign("alone", prepared.auditor)
    document = Document.of(audit, about.info(prepared.auditor, "complete", 1.0))
    json.dumps(document.to_json(), allow_nan=False)
    jsonschema.validate(document.to_json(), json.loads(SCHEMA_FILE.read_text()))
    for estimates in entries(audit, "source").values():
        for estimate in estimates.values():
            assert estimate.value is None or estimate.value == estimate.value
            assert estimate.value is not None or estimate.reason


def test_K8_nobody_is_named_in_a_null_world() -> None:
    audit = watch(null_world(config(federation={"parties": 3, "rounds": 6}, **ASKED)))
    accuracy = entries(audit, "source")[None]["accuracy"]
    assert accuracy.low is not None
    assert accuracy.high is not None
    assert accuracy.low <= 1 / 3 <= accuracy.high
    fedmia = entries(audit, "fedmia")[None]["auc"]
    assert fedmia.low is not None
    assert fedmia.high is not None
    assert fedmia.low <= 0.5 <= fedmia.high


def test_only_a_server_sees_the_peers() -> None:
    with pytest.raises(FedauditError, match=r"'fedmia' needs .*update.*: 'client' does not see update"):
        prepare(config(audit={"vantages": ["client"], "attacks": ["loss", "fedmia"]}))
    with pytest.raises(FedauditError, match="none of the attacks can be run from 'client'"):
        prepare(config(audit={"attacks": ["fedmia"]}))
    headlines = watch(prepare(config(audit={"vantages": ["server"], "attacks": ["fedmia"]}))).headlines
    assert [(h.attack, h.model, h.compared) for h in headlines] == [("fedmia", "local", 1)]


def test_the_layer_that_names_a_party_does_not_depend_on_whose_record_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def fit(self: CosineMargin, evidence: Evidence) -> CosineMargin:
        assert evidence.nonmembers is not None
        rows.append(len(evidence.nonmembers))
        return replace(self, layer=0)

    prepared = prepare(config(federation={"parties": 3, "rounds": 2}, audit={"attacks": ["loss", "source"]}))
    watch(prepared)
    panels = prepared.auditor.outlooks.local
    (attack,) = [a for a in prepared.settings.attacks if isinstance(a, CosineMargin)]
    monkeypatch.setattr(CosineMargin, "fit", fit)
    for party in (None, "party-1"):
        naming(attack, panels, party, 0.95)
    assert rows == [sum(int(panel.reference.sum()) for panel in panels.values())] * 2
