"""Subject-level DP inside each party: hierarchical gradient averaging.

Suri et al., "Subject membership inference attacks in federated learning", 2022/23 (HiGradAvgDP, after Marathe et al.).

1. Poisson batches, as in DP-SGD.
2. The gradients of one subject's records in the batch are averaged, and the average is clipped to C.
3. These are summed over subjects, get Gaussian noise of standard deviation noise x C, and are divided by the constant
   batch size.

However many records of a subject a batch holds, the subject changes the sum by at most C. A subject with s records in
the party is in a batch with probability 1 - (1 - q)^s, which is its sampling rate. A subject with records in several
parties is charged for all of them.

Deviation: the paper divides by the number of subjects in the batch, which depends on the data; we use a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaudit.config.registry import DEFENCES
from fedaudit.defences import dp_sgd
from fedaudit.defences.shared import COUNTS, Defence, NoisyOptions, Setting, noise_of, promise_of
from fedaudit.errors import FedauditError
from fedaudit.types import Ints, Records

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedaudit.learn.tasks import TorchTask


@DEFENCES.register(
    "higradavg", "subject-level DP inside each party: average by subject, clip, noise or epsilon", NoisyOptions
)
def higradavg(asked: NoisyOptions, setting: Setting) -> Defence:
    from fedaudit.privacy.accounting import check_clip
    from fedaudit.privacy.statement import Process

    check_clip(asked.clip)
    dp_sgd.refuse_unfit(setting.task, setting.initial, setting.few)
    held: list[str] = []  # each subject once for every party that holds records of it
    rates, releases = [], []
    for name, source in setting.sources.items():
        records = source()
        if records.subject is None:
            raise FedauditError(
                "no-subjects", f"{name} has records without subjects", "Use dp-sgd, or data with subjects."
            )
        subjects, counts = np.unique(records.subject, return_counts=True)
        held += subjects.tolist()
        rate, steps = dp_sgd.sampling(len(records), setting.training)
        rates.append(1 - (1 - rate) ** int(counts.max()))
        releases.append(steps)
    _, parties = np.unique(held, return_counts=True)
    processes = [Process("subject", 1.0, max(releases) * int(parties.max()), "poisson", max(rates))]
    noise = noise_of(asked, processes, setting.rounds)
    against = "everybody outside the parties that hold the subject's records"
    promise = promise_of(asked, processes, noise, setting.rounds, len(parties), against)
    return Defence(asked.name, gradient=HiGradAvg(asked.clip, noise), promises=promise, notices=(COUNTS,))


@dataclass(frozen=True)
class HiGradAvg(dp_sgd.NoisySteps):
    def stepper(self, task: TorchTask, records: Records, plain: nn.Module, noisy: dp_sgd.Noisy) -> dp_sgd.Step:
        import torch
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        assert records.subject is not None  # refused before training
        _, subject = np.unique(records.subject, return_inverse=True)
        module = GradSampleModule(plain, loss_reduction="sum")
        optimizer = noisy(DPOptimizer)

        def step(x: torch.Tensor, y: torch.Tensor, rows: Ints) -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(task.losses(module(x), y).sum())
            average_by(subject[rows], plain)
            optimizer.step()

        return step


def average_by(groups: Ints, module: nn.Module) -> None:
    """Opacus' gradient of each record becomes one for each group: their mean. Clipping then sees groups only."""
    import torch

    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    index, sizes = torch.from_numpy(group), torch.from_numpy(counts)
    parameters: Any = module.parameters()
    for p in (p for p in parameters if p.requires_grad):
        each: torch.Tensor = p.grad_sample
        summed = torch.zeros((len(counts), *each.shape[1:]), dtype=each.dtype).index_add_(0, index, each)
        p.grad_sample = summed / sizes.to(each.dtype).reshape(-1, *[1] * (each.dim() - 1))
