"""Record-level DP-SGD inside each party, on Opacus.

Abadi et al., "Deep learning with differential privacy", CCS 2016.

1. Every record is drawn into a batch independently (Poisson sampling), which is what the accountant's amplification
   assumes.
2. Its gradient is clipped to norm C, over all parameters together.
3. The sum gets Gaussian noise of standard deviation noise x C and is divided by the *expected* batch size.
4. The optimiser takes the result: anything done with it is post-processing.

`clip-only` is the same without noise: the same batches, steps and clipping, and no promise. Clipping and batch size
alone change the risk, so DP should be compared with this.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedaudit.config.registry import DEFENCES
from fedaudit.defences.shared import (
    COUNTS,
    Defence,
    DefenceOptions,
    NoisyOptions,
    Setting,
    noise_of,
    promise_of,
    records_of_one,
)
from fedaudit.errors import FedauditError
from fedaudit.types import Ints, Records, State, Trained, notice

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedaudit.learn.tasks import TorchTask, Training


@DEFENCES.register(
    "dp-sgd", "record-level DP inside each party (Opacus): Poisson batches, clip, noise or epsilon", NoisyOptions
)
def dp_sgd(asked: NoisyOptions, setting: Setting) -> Defence:
    """Parties of different sizes sample at different rates; the promise is for the record that is worst off."""
    from fedaudit.privacy.accounting import check_clip
    from fedaudit.privacy.statement import Process

    check_clip(asked.clip)
    refuse_unfit(setting.task, setting.initial, setting.few)
    sizes = {name: len(source()) for name, source in setting.sources.items()}
    drawn = {name: sampling(n, setting.training) for name, n in sizes.items()}
    by_party = {name: Process("record", 1.0, steps, "poisson", rate) for name, (rate, steps) in drawn.items()}
    processes = sorted(set(by_party.values()), key=lambda process: (process.rate, process.releases))
    noise = noise_of(asked, processes, setting.rounds)
    against = "everybody outside the party that holds the record"
    people = records_of_one(setting, by_party)
    promise = promise_of(asked, processes, noise, setting.rounds, min(sizes.values()), against, people)
    return Defence(asked.name, gradient=DPSGD(asked.clip, noise), promises=promise, notices=(COUNTS,))


class ClipOnlyOptions(DefenceOptions):
    clip: float = Field(description="the largest norm allowed; larger ones are scaled down")


@DEFENCES.register("clip-only", "dp-sgd without its noise: same batches, same steps, no promise", ClipOnlyOptions)
def clip_only(asked: ClipOnlyOptions, setting: Setting) -> Defence:
    from fedaudit.privacy.accounting import check_clip

    check_clip(asked.clip)
    refuse_unfit(setting.task, setting.initial, setting.few)
    return Defence(asked.name, gradient=DPSGD(asked.clip, 0.0), notices=(notice("clip-only"),))


def sampling(n: int, training: Training) -> tuple[float, int]:
    """The probability that a record is in a batch, and the number of batches in a round, as in plain training."""
    return min(1.0, training.batch_size / n), training.epochs * max(1, -(-n // training.batch_size))


def poisson_batches(n: int, training: Training, rng: np.random.Generator) -> Iterator[Ints]:
    rate, steps = sampling(n, training)
    for _ in range(steps):
        yield np.flatnonzero(rng.random(n) < rate)


# One noisy step on (x, y) of the batch; the third argument says which records these are.
Step = Callable[["torch.Tensor", "torch.Tensor", Ints], None]
# Opacus' optimiser of the given class, around the parties' plain one.
Noisy = Callable[[Callable[..., "torch.optim.Optimizer"]], "torch.optim.Optimizer"]


@dataclass(frozen=True)
class NoisySteps:
    """Fills the gradient slot: Poisson batches through Opacus. A subclass says how a step is taken."""

    clip: float
    noise: float

    def __call__(
        self, task: TorchTask, state: State, records: Records, training: Training, rng: np.random.Generator
    ) -> Trained:
        """The noise has a stream of its own, so that batches do not depend on it."""
        import torch

        from fedaudit.learn.tasks import tensor

        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        module = task.fresh(state)
        plain = training.optimizer_of(module)

        def noisy(kind: Callable[..., torch.optim.Optimizer]) -> torch.optim.Optimizer:
            expected = min(training.batch_size, len(records))
            options = {"noise_multiplier": self.noise, "max_grad_norm": self.clip, "expected_batch_size": expected}
            return kind(plain, generator=generator, **options)

        step = self.stepper(task, records, module, noisy)
        x, y = tensor(records.x), tensor(records.y)
        started = time.perf_counter()
        with _quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))  # dropout layers of the user's own model
            for batch in poisson_batches(len(records), training, rng):
                rows = torch.from_numpy(batch)
                step(x[rows], y[rows], batch)
        seconds = (time.perf_counter() - started) / training.epochs
        return Trained(task.state_of(module), len(records), seconds)

    def stepper(self, task: TorchTask, records: Records, plain: nn.Module, noisy: Noisy) -> Step:
        raise NotImplementedError


@dataclass(frozen=True)
class DPSGD(NoisySteps):
    """Ghost clipping: norms without per-record gradients, then one backward pass with clipped weights.

    Losses are never averaged: an empty batch (Poisson sampling draws some) is a step of noise alone.
    """

    def stepper(self, task: TorchTask, records: Records, plain: nn.Module, noisy: Noisy) -> Step:
        import torch
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
        from opacus.optimizers import DPOptimizerFastGradientClipping

        module = GradSampleModuleFastGradientClipping(plain, loss_reduction="sum", max_grad_norm=self.clip)
        optimizer = noisy(DPOptimizerFastGradientClipping)

        def step(x: torch.Tensor, y: torch.Tensor, rows: Ints) -> None:
            losses = task.losses(module(x), y)
            torch.autograd.backward(losses.sum(), retain_graph=True)
            weights = module.get_clipping_coef() if len(rows) else losses.detach()
            optimizer.zero_grad(set_to_none=True)
            module.disable_hooks()
            torch.autograd.backward((weights * losses).sum())
            module.enable_hooks()
            optimizer.step()

        return step


def refuse_unfit(task: TorchTask, state: State, few: Records) -> None:
    """Before training: layers whose output for one record depends on the others, or that Opacus cannot take apart, or
    that remember what they were shown (tried on a few records)."""
    import torch
    from opacus.validators import ModuleValidator
    from torch import nn

    from fedaudit.learn.tasks import tensor

    module = task.fresh(state)
    mixing = [name for name, layer in module.named_modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    if mixing:
        raise FedauditError(
            "dp-batchnorm",
            f"layer {mixing[0]!r} is a BatchNorm: it mixes the records of a batch, so no record's gradient can be "
            "clipped alone, and its running statistics leave without noise",
            "Use nn.GroupNorm in its place (opacus.validators.ModuleValidator.fix(model) does that).",
        )
    problems = ModuleValidator.validate(module, strict=False)
    if problems:
        what = str(problems[0]).splitlines()[0]
        todo = "opacus.validators.ModuleValidator.fix(model) replaces what it can."
        raise FedauditError("dp-model", f"Opacus cannot train this model privately: {what}", todo)
    before = {name: value.clone() for name, value in module.named_buffers()}
    with torch.random.fork_rng(devices=[]):
        module(tensor(few.x))
    after = dict(module.named_buffers())
    kept = [name for name in after if name not in before or not torch.equal(after[name], before[name])]
    if kept:
        raise FedauditError(
            "dp-buffers",
            f"{kept[0]!r} changes when the model is shown records: what it keeps of them gets no noise",
            "Keep nothing of the records in buffers (nn.GroupNorm needs no running statistics).",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Opacus' hooks on a first layer, whose inputs need no gradient, make torch warn; nothing is wrong."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing when gradients are computed")
        yield
