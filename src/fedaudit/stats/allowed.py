"""What (epsilon, delta)-DP allows any adversary: the largest share it can pick out, and the epsilon for a share."""

import math


def allowed(epsilon: float, delta: float, fpr: float) -> float:
    """The largest TPR that (epsilon, delta)-DP lets any test reach at this FPR."""
    return min(math.exp(min(epsilon, 50.0)) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr), 1.0)


def epsilon_for(most: float, delta: float, fpr: float) -> float:
    """The largest epsilon at which nobody can pick out more than `most` of the members."""
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle, delta, fpr) <= most else (low, middle)
    return low
