"""Attacks on text. The signals are in `signals.text`, with where each comes from.

Adversary: whoever sees the models; for token-presence, consecutive ones.

1. min-k, zlib-ratio: what the last model makes of the record, negated: what was learnt is expected.
2. base-gain: how much lower the record's loss is under the last model than under the one that training started from. An
   easy text has a low loss under both.
3. token-presence: whether every token of the record moved its row of the embedding; mean over the rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedaudit.adversary.attacks.base import BaseAttack, OneSignal
from fedaudit.adversary.attacks.trajectory import LastModel
from fedaudit.adversary.reductions import Kept, Mean
from fedaudit.adversary.signals.text import BASE, MIN_K, PRESENCE, ZLIB
from fedaudit.config.attack_registry import ATTACKS
from fedaudit.types import Floats, Moment


@ATTACKS.register("min-k", "for text: the loss of the tokens that the last model expects least")
class LeastExpected(LastModel):
    signal = MIN_K


@ATTACKS.register("zlib-ratio", "for text: the last model's loss for each byte of the compressed record")
class ZlibRatio(LastModel):
    signal = ZLIB


class OverBase(Kept):
    """The loss under the first model minus the loss under the last one."""

    def __init__(self, n: int):
        self.gain: Floats = np.full(n, np.nan)

    def observe(self, moment: Moment, values: Mapping[str, Floats]) -> None:
        gain = values[BASE] - values["loss"]
        self.gain = np.where(np.isnan(gain), self.gain, gain)  # not observed: the last that was

    def features(self) -> Floats:
        return self.gain[:, None]


@ATTACKS.register("base-gain", "for text: how much lower the record's loss is than under the model it began with")
@dataclass(frozen=True)
class BaseGain(BaseAttack):
    every_round: ClassVar[bool] = False

    @property
    def signals(self) -> tuple[str, ...]:
        return BASE, "loss"

    def reduce(self, n: int) -> Kept:
        return OverBase(n)


@ATTACKS.register("token-presence", "for text: whether the update moved the embedding of every token of the record")
@dataclass(frozen=True)
class TokenPresence(OneSignal):
    signal = PRESENCE

    def reduce(self, n: int) -> Kept:
        return Mean(self.signal, n)
