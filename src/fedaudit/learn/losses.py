"""The loss of a record, for training, attacks and defences.

A class: the cross-entropy of its label. A class at every position (text: the next character): the cross-entropies of
its positions, summed, so that a record's gradient is the sum over its positions. A value: the squared error.

Outputs are records x classes, or records x positions x classes; labels are records, or records x positions. Soft
labels have the shape of the outputs. A batch has the mean of its records' losses.
"""

from torch import Tensor
from torch.nn import functional


def of_records(outputs: Tensor, y: Tensor, classes: int) -> Tensor:
    """One loss a record."""
    if not classes:
        return functional.mse_loss(outputs.squeeze(-1), y, reduction="none")
    each = functional.cross_entropy(*_by_position(outputs, y), reduction="none")
    return each.reshape(outputs.shape[:-1]).flatten(1).sum(1) if outputs.dim() > 2 else each


def of_batch(outputs: Tensor, y: Tensor, classes: int) -> Tensor:
    """Their mean over the records, from one fused operation."""
    if not classes:
        return functional.mse_loss(outputs.squeeze(-1), y)
    each = functional.cross_entropy(*_by_position(outputs, y))  # over all positions of all records
    return each * outputs[0, ..., 0].numel() if outputs.dim() > 2 else each


def _by_position(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Every position as a row of its own: torch looks for the classes along the second axis."""
    return outputs.flatten(0, -2), y.flatten(0, -2) if y.is_floating_point() else y.flatten()
