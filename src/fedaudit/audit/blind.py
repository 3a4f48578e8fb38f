"""The blind baseline: can members be told from non-members without any model?

If so, the two sets were drawn differently (other dates, other sites, other cleaning), and an attack's success shows the
difference between the sets, not a leak. Fitted on a random half of the subjects (of the records where there are no
subjects), reported on the other half. It lives outside `attacks` because it is told the truth about its half.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.stats import Block, random_half
from fedaudit.types import Bools, Floats, Game, Role

MAX_FEATURES = 600  # wider records are thinned to these columns, evenly spread


def blind_scores(game: Game, seed: int) -> tuple[Floats, Bools]:
    """Scores of every candidate, and the half on which they may be reported."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    candidates, truth = game.candidates, game.truth
    groups = candidates.id if candidates.subject is None else candidates.subject
    reported = random_half(groups, f"blind-{seed}")
    features = _features(candidates.rows.x, candidates.rows.y)
    in_play = ~truth.mask(Role.CALIBRATION)
    fitted_on = in_play & ~reported
    member = truth.mask(Role.MEMBER)
    scores = np.zeros(len(candidates))
    if len(set(member[fitted_on].tolist())) == 2:
        model = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=0, early_stopping=False)
        model.fit(features[fitted_on], member[fitted_on])
        scores = model.predict_proba(features)[:, 1].astype(np.float64)
    return scores, reported


def blind_block(game: Game, scores: Floats, reported: Bools) -> Block:
    roles = (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    sets = [game.truth.mask(role) & reported for role in roles]
    subject = game.candidates.subject
    names = None if subject is None else (subject[sets[0]], subject[sets[1]], subject[sets[2]])
    return Block(scores[sets[0]], scores[sets[1]], scores[sets[2]], names)


def _features(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    flat = x.reshape(len(x), -1)
    if flat.shape[1] > MAX_FEATURES:
        flat = flat[:, np.linspace(0, flat.shape[1] - 1, MAX_FEATURES).astype(int)]
    return np.column_stack([flat, y])
