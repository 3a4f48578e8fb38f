"""The most exposed records: ranked against outsiders, without their ids."""

import numpy as np
import pytest

from fedaudit.data.partition import game, iid
from fedaudit.data.records import dataset
from fedaudit.results.exposure import COMMON, MOST, TextsShown, most_exposed
from fedaudit.session.prepare import prepare
from fedaudit.types import Role, Vantage
from tests.worlds import config, watch


def test_S4_members_are_ranked_and_their_ids_hidden() -> None:
    prepared = prepare(config())
    audit = watch(prepared)
    found = most_exposed(prepared.auditor, audit.headlines, "key")
    assert found is not None
    shares = [row.share_of_calibration_above for row in found.records]
    assert len(shares) == MOST
    assert shares == sorted(shares)
    best = max(audit.headlines, key=lambda h: h.estimates["auc"].value or 0.0)
    (attack,) = [a for a in prepared.settings.attacks if a.name == best.attack]
    members: list[float] = []
    found_scores = prepared.auditor.case().scores
    for sight in prepared.auditor.outlooks.of(Vantage(best.vantage), best.model):
        scores, block = found_scores.of(sight, attack), found_scores.block(sight, attack)
        for score in scores[sight.role == Role.MEMBER.value]:
            members.append(float(np.mean(block.calibration >= score)))
    assert shares == pytest.approx(sorted(members)[:MOST])
    ids = set(prepared.game.candidates.id.tolist())
    assert not ids & {row.id_hash for row in found.records}
    assert found.subjects is None
    other = most_exposed(prepared.auditor, audit.headlines, "another key")
    assert other is not None
    assert other.records[0].id_hash != found.records[0].id_hash


def test_one_author_makes_no_word_common() -> None:
    """Ten windows of one author name him; ten authors say the same word."""
    vocabulary = ["Anna ", "hello ", "end "]
    named, greeted = [0, 1, 2], [1, 1, 2]
    windows = np.array([named] * COMMON + [greeted] * COMMON)
    authors = np.array(["anna"] * COMMON + [f"author-{i}" for i in range(COMMON)])
    ids = np.arange(len(windows))
    rows = dataset("text", windows[:, :-1], windows[:, 1:], id=ids, subject=authors, tokens=True).records
    rng = np.random.default_rng(0)
    split = game(rows, iid(rows, 1, rng), 0.4, 0.4, rng)
    split.truth.role[:] = "calibration"
    (anna, *_) = np.flatnonzero(split.candidates.subject == "anna")
    assert TextsShown(split, vocabulary).text(int(anna)).split()[1:] == ["hello", "end"]
    assert "Anna" not in TextsShown(split, vocabulary).text(int(anna))
