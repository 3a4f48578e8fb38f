"""Stacked LSTMs, as in the LEAF benchmark (Caldas et al. 2018): one that predicts the next character at every position,
and one that gives a sequence one label.

Deviations: LEAF predicts the one character that follows a window; here every position of a window is learnt from.
LEAF's words have the vectors of GloVe; here they are learnt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from fedaudit.config.registry import MODELS, Options
from fedaudit.config.section import Count
from fedaudit.errors import FedauditError

if TYPE_CHECKING:
    from torch import nn

EMBEDDING, UNITS, LAYERS = 8, 256, 2  # LEAF's


class LstmOptions(Options):
    embedding: Count | None = Field(None, description=f"numbers that stand for a character; not set: {EMBEDDING}")
    units: Count | None = Field(None, description=f"of each LSTM layer; not set: {UNITS}")
    layers: Count | None = Field(None, description=f"LSTM layers; not set: {LAYERS}")


@MODELS.register(
    "lstm",
    f"for text, the next character at every position: embedding ({EMBEDDING} unless set), {LAYERS} layers of {UNITS} "
    "units, linear",
    LstmOptions,
)
def lstm(
    input_shape: tuple[int, ...], classes: int, embedding: int = EMBEDDING, units: int = UNITS, layers: int = LAYERS
) -> nn.Module:
    from fedaudit.learn.layers import Recurrent

    if len(input_shape) != 1 or not classes:
        what = "values to predict" if not classes else f"records of shape {input_shape}"
        raise FedauditError(
            "model-shape",
            f"lstm needs sequences of tokens, each with the next one as its label, and these are {what}",
            "Use `mlp`, or data such as `shakespeare` (npz: tokens = true, and y in the shape of x).",
        )
    return Recurrent(classes, embedding, units, layers)


WORD, WORD_UNITS = 25, 100  # LEAF's for tweets


class LabelOptions(LstmOptions):
    tokens: Count | None = Field(None, description="how many different tokens there are; not set: as the data have")


@MODELS.register(
    "lstm-label",
    f"for text with one label each, as Sent140: embedding ({WORD} unless set), {LAYERS} layers of {WORD_UNITS} units, "
    "linear",
    LabelOptions,
)
def lstm_label(
    input_shape: tuple[int, ...],
    classes: int,
    tokens: int,
    embedding: int = WORD,
    units: int = WORD_UNITS,
    layers: int = LAYERS,
) -> nn.Module:
    from fedaudit.learn.layers import LastOfRecurrent

    if len(input_shape) != 1:
        what = f"lstm-label needs sequences of tokens, and these are records of shape {input_shape}"
        raise FedauditError("model-shape", what, "Use `mlp`, or a network for images.")
    return LastOfRecurrent(tokens, max(classes, 1), embedding, units, layers)
