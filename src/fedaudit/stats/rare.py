"""Ends of an AUC's interval where a few records carry the error, as near AUC 1.

If one outsider in a thousand lies above all members, most samples have none or few of them, and no variance that was
measured tells how many there really are. So one record is added that errs as badly as can be (for the lower end) or
not at all (for the upper one), and all records are weighted at random (the Bayesian bootstrap; Gaffke 2005). For a
share of records this is Clopper and Pearson's interval. The weighted mean is described by its first three moments, as a
gamma variable: that is what a few records among many that err alike give, and many records are nearly normal.

How skewed that variable is says how few records carry the error: 2 for one record, 2 / sqrt(k) for k that err alike.
`SKEWED` is where these ends count in full; below it, they count in proportion.
"""

import math

from scipy import special

SKEWED = 0.5

End = tuple[float, float]  # where it lies, and how much it counts: 0 to 1


def rare_ends(value: float, variance: float, third: float, one: float, alpha: float) -> tuple[End, End]:
    """The lower and the upper end of an AUC. `third`: the sum of the cubes of what each record, or subject, adds to the
    AUC's error; `one`: the most that one of them counts."""
    error = 1 - value
    worst, best = one * value, one * error
    below = error + worst, variance + worst**2, 2 * (worst**3 - third)
    above = error - best, variance + best**2, -2 * (best**3 + third)
    ends = 1 - gamma_quantile(*below, 1 - alpha / 2), 1 - gamma_quantile(*above, alpha / 2)
    return (max(ends[0], 0.0), _weight(*below[1:])), (min(ends[1], 1.0), _weight(*above[1:]))


def widened(ends: tuple[float, float], rare: tuple[End, End]) -> tuple[float, float]:
    """An interval that is right where many records carry the error, widened as far as these ends count."""
    (low, high), (below, above) = ends, rare
    return low + below[1] * min(below[0] - low, 0.0), high + above[1] * max(above[0] - high, 0.0)


def gamma_quantile(mean: float, variance: float, third: float, chance: float) -> float:
    """The quantile of a gamma variable, shifted and if need be mirrored, with this third central moment."""
    skewness = _skewness(variance, third)
    if skewness < 0:
        return -gamma_quantile(-mean, variance, -third, 1 - chance)
    deviation = math.sqrt(variance)
    if skewness < 1e-4:
        return mean + deviation * float(special.ndtri(chance))
    shape, scale = 4 / skewness**2, deviation * skewness / 2
    return mean + scale * (float(special.gammaincinv(shape, chance)) - shape)


def _skewness(variance: float, third: float) -> float:
    return third / variance**1.5 if variance > 0 else 0.0


def _weight(variance: float, third: float) -> float:
    return min(abs(_skewness(variance, third)) / SKEWED, 1.0)
