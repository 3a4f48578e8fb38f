"""One half of scikit-learn's handwritten digits. The module is imported to check a configuration, so that scikit-learn
is imported inside the function only."""

from typing import Literal

from pydantic import Field

from fedaudit.config.registry import DATA, Options
from fedaudit.data.records import dataset
from fedaudit.types import Dataset


class HalfOptions(Options):
    half: Literal["upper", "lower"] = Field("upper", description="which half of the picture")


@DATA.register("half-digits", "one half of the handwritten digits of scikit-learn (half)", HalfOptions)
def load(options: HalfOptions) -> Dataset:
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    part = pixels[:, :32] if options.half == "upper" else pixels[:, 32:]
    return dataset("half-digits", part / 16.0, digit)
