"""The `run` part of results.json, and run.json: what is needed to assess and to repeat an audit."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np

from fedaudit import __version__
from fedaudit.audit import Auditor
from fedaudit.config.schema import Config
from fedaudit.privacy import accounting
from fedaudit.privacy.statement import Promise
from fedaudit.results.document import DataInfo, PartyInfo, RunInfo
from fedaudit.session.recording import fingerprint
from fedaudit.types import Dataset, Game, Role
from fedaudit.words import all_words

# The keys of run.json that are also in results.json.
SHARED_KEYS = ("fedaudit", "created", "config", "config_hash", "seed", "versions")


@dataclass(frozen=True, kw_only=True)
class About:
    """What is known about the audited federation: its configuration if fedaudit trains it, otherwise little."""

    name: str
    dataset: Dataset
    seed: int
    config: Mapping[str, Any] = field(default_factory=dict)
    config_hash: str = ""
    promises: tuple[Promise, ...] = ()

    @classmethod
    def configured(cls, name: str, config: Config, dataset: Dataset, promises: tuple[Promise, ...]) -> About:
        return cls(
            name=name,
            dataset=dataset,
            seed=config.federation.seed,
            config=config.as_dict(),
            config_hash=config.hash(),
            promises=promises,
        )

    @classmethod
    def foreign(cls, name: str, auditor: Auditor) -> About:
        """A training that no fedaudit configuration describes."""
        classes = auditor.task.classes if auditor.task else 0
        dataset = Dataset(name, auditor.game.candidates.rows, classes)
        return cls(name=name, dataset=dataset, seed=auditor.settings.seed)

    @property
    def is_ours(self) -> bool:
        return bool(self.config)

    def info(self, auditor: Auditor, status: str, seconds: float) -> RunInfo:
        dataset, game = self.dataset, auditor.game
        subjects = dataset.records.subject
        return RunInfo(
            name=self.name,
            fedaudit=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            status=status,
            config=self.config,
            config_hash=self.config_hash,
            seed=self.seed,
            versions={"python": platform.python_version(), **{p: version(p) for p in ("torch", "numpy", "scipy")}},
            rounds=auditor.last_round,
            seconds=float(f"{seconds:.3g}"),
            data=DataInfo(
                dataset.name,
                len(dataset.records),
                dataset.classes,
                None if subjects is None else len(np.unique(subjects)),
                dataset.input_shape,
            ),
            parties=[party_info(game, party) for party in game.parties],
            guarantee=accounting.stated(self.promises, auditor.last_round),
            weights_per_member=dict(auditor.settings.weights_per_member),
            filter_share=auditor.settings.filter_share,
        )

    def manifest(self, auditor: Auditor, keep: str) -> dict[str, Any]:
        """run.json: what is needed to resume a trace or to attack it again."""
        info = self.info(auditor, "", 0.0)
        return {
            **{key: getattr(info, key) for key in SHARED_KEYS},
            "keep": keep,
            "attacks": [attack.name for attack in auditor.settings.attacks],
            "notices": all_words(auditor.settings.notices),
            "told": [notice.stored() for notice in auditor.settings.notices],
            "data": fingerprint(auditor.game),
            "parties": auditor.game.parties,
            "weights_per_member": info.weights_per_member,
            "filter_share": info.filter_share,
        }


def party_info(game: Game, party: str) -> PartyInfo:
    own = game.truth.role[game.candidates.of_party(party)]
    members, evaluation, calibration = (
        int((own == role.value).sum()) for role in (Role.MEMBER, Role.EVALUATION, Role.CALIBRATION)
    )
    return PartyInfo(party, members, evaluation, calibration)
