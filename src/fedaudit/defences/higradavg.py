"""Subject-level DP inside each party: hierarchical gradient averaging.

Suri et al., "Subject membership inference attacks in federated learning", 2022/23 (HiGradAvgDP, after Marathe et al.).

1. Poisson batches, as in DP-SGD.
2. The gradients of one subject's records in the batch are averaged, and the average is clipped to C.
3. These are summed over subjects, get Gaussian noise of standard deviation noise x C, and are divided by the constant
   batch size.

However many records of a subject a batch holds, it moves the sum by C at most. A subject with s records in the party
is in a batch with chance 1 - (1 - q)^s, and that is the rate it is charged with; one with records in several parties
is charged for all of them.

Deviation: the paper divides by the number of subjects in the batch, which depends on who is there; a constant does not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedaudit.defences import dp_sgd
from fedaudit.tasks import TorchTask, Training
from fedaudit.types import Records, State, Trained


@dataclass(frozen=True)
class HiGradAvg:
    """Fills the gradient slot."""

    clip: float
    noise: float

    def __call__(
        self, task: TorchTask, state: State, records: Records, training: Training, rng: np.random.Generator
    ) -> Trained:
        assert records.subject is not None  # refused before training
        _, subject = np.unique(records.subject, return_inverse=True)

        def private(plain: torch.optim.Optimizer, training: Training, generator: torch.Generator) -> Any:
            return _optimizer(plain, self.clip, self.noise, training.batch_size, generator, subject)

        return dp_sgd.train(task, state, records, training, rng, private)


def _optimizer(
    plain: torch.optim.Optimizer, clip: float, noise: float, batch: int, generator: torch.Generator, subject: Any
) -> Any:
    from opacus.optimizers import DPOptimizer

    class BySubject(DPOptimizer):  # type: ignore[misc]
        rows: Any = None  # which records are in the batch

        def clip_and_accumulate(self) -> None:
            """Averages each subject's gradients, then lets Opacus clip those averages."""
            _, group, counts = np.unique(subject[self.rows], return_inverse=True, return_counts=True)
            index, sizes = torch.from_numpy(group), torch.from_numpy(counts)
            for p in self.params:
                each = self._get_flat_grad_sample(p)
                summed = torch.zeros((len(counts), *each.shape[1:]), dtype=each.dtype).index_add_(0, index, each)
                p.grad_sample = summed / sizes.to(each.dtype).reshape(-1, *[1] * (each.dim() - 1))
            super().clip_and_accumulate()

    return BySubject(plain, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=batch, generator=generator)
