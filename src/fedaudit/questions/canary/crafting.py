"""Crafting canaries: records whose gradient stands out from everybody's updates (CANIFE, Maddock et al., ICLR 2023).

Mock parties, made of public data, give clipped updates u_i. A record z with gradient g is changed until

    mean over i of <u_i, g / |g|>^2 / C^2   +   max(R - |g|, 0)^2 / R^2

is small: its gradient is orthogonal to what others send, and long enough (R) to be clipped.

The paper prints the first term as a sum, with g in place of g / |g|. Minimised as it stands, that can yield a *dead*
canary, whose gradient vanishes; `objective = "printed"` is kept to show it. Each step looks at a few of the mock
updates, drawn anew, and crafts all canaries at once. How good a canary becomes depends on where it begins: more begin
than are asked for, and those with the smallest loss go on. Each is taken as it was at its best. What a canary sends
decides whether it is any good, so nothing is concluded from the loss here: see `questions.canary.parties.Planted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedaudit.errors import FedauditError
from fedaudit.learn.tasks import Adam, TorchTask, loss_of_records, tensor
from fedaudit.questions.canary.vectors import vector
from fedaudit.types import Floats, Ints, Records, State

Objective = Literal["normalised", "printed", "orthogonal", "long"]
Gradients = Callable[[Tensor, Tensor], Tensor]  # inputs and labels of canaries -> canaries x parameters

BATCH = 16  # mock updates in one step
# Learning rates on values, in units of their spread; the starts take turns. The first is about 1 on pixels between 0
# and 1, as in the paper; columns of a table that differ much in scale need shorter steps.
PACES = (4.0, 1.0, 0.25)
COOLING = 0.2  # of the steps, at the end, grow shorter: each sees other mock updates, and they pull to and fro
HEATS = (0.0625, 0.125, 0.25, 0.5)  # of the steps, after which the better half of the starts goes on
FIRST_TEMPERATURE, LAST_TEMPERATURE = 1.0, 0.1  # of the distributions over tokens
LOOKS = 50  # at a canary over all mock updates, while it is crafted: the best one is taken


@dataclass(frozen=True)
class CraftingRecipe:
    """How canaries are crafted. `target`: their class; not given: each gets one at random.

    `objective`: both terms; the first as the paper prints it; or one of the two alone, for comparison. `starts`: how
    many pictures or rows begin, at least; a text has one start. `reach`: how long the gradient must be; None: so long
    that the update is clipped.
    """

    count: int = 1
    steps: int = 1000
    _: KW_ONLY
    target: int | None = None
    initial: Literal["random", "data"] = "random"
    objective: Objective = "normalised"
    batch: int = BATCH
    starts: int = 16
    reach: float | None = None


@dataclass(frozen=True)
class CraftedRecords:
    """The records, one a canary, and the loss of each over all mock updates: before, the median of all starts, because
    one that happens to begin well is none the worse for it; and after."""

    records: Records
    before: Floats
    after: Floats


def craft(
    task: TorchTask,
    model: State,
    mocks: NDArray[np.floating[Any]],
    reach: float,
    pool: Records,
    recipe: CraftingRecipe,
    rng: np.random.Generator,
) -> CraftedRecords:
    """`mocks`: mock updates x parameters, in units of the clip norm. `reach`: how long a gradient must be."""
    updates = torch.from_numpy(np.asarray(mocks, np.float32))
    if pool.x.dtype.kind in "iu":
        return _craft_text(task, model, updates, reach, pool, recipe, rng)
    return _craft_values(task, model, updates, reach, pool, recipe, rng)


def flat(change: State, like: nn.Module) -> Floats:
    """A change of a model as one vector of the parameters that are exchanged, in the order of the module; buffers are
    left out."""
    return vector(change, [name for name, _ in like.named_parameters() if name in change])


# ------------------------------------------------------------------ the objective


def objective(gradients: Tensor, updates: Tensor, reach: float, kind: Objective = "normalised") -> Tensor:
    """One loss for each canary. `updates` are in units of the clip norm."""
    norms = gradients.norm(dim=1)
    along = gradients @ updates.T
    scale = reach if kind == "printed" else norms.clamp_min(1e-12)[:, None]
    squares = (along / scale).square()
    orthogonal = squares.sum(dim=1) if kind == "printed" else squares.mean(dim=1)
    short = ((reach - norms).clamp_min(0) / reach).square()
    both: Tensor = orthogonal + short
    terms: dict[str, Tensor] = {"orthogonal": orthogonal, "long": short}
    return terms.get(kind, both)


def descended(each: Tensor) -> Tensor:
    """What Adam descends on: the logarithm. The loss falls a hundredfold within a few steps, and Adam measures its
    steps by the gradients of the last thousand: on the loss itself they would then come nearly to a stop."""
    return (each + 1e-12).log().sum()


def _steps(updates: Tensor, recipe: CraftingRecipe, rng: np.random.Generator) -> Iterator[Tensor]:
    """The mock updates of each step: few of them suffice, because every step draws others."""
    few = min(recipe.batch, len(updates))
    for _ in range(recipe.steps):
        yield updates if few == len(updates) else updates[torch.from_numpy(rng.choice(len(updates), few, False))]


# ------------------------------------------------------------------ pictures and tables


def _craft_values(
    task: TorchTask,
    model: State,
    updates: Tensor,
    reach: float,
    pool: Records,
    recipe: CraftingRecipe,
    rng: np.random.Generator,
) -> CraftedRecords:
    gradients, spread = together(task, model), spread_of(pool.x)
    start, labels = _begin(pool, recipe, task.classes, rng)
    y = tensor(labels)
    paces = tensor(np.resize(np.array(PACES, np.float32), len(start)).reshape(-1, *[1] * (start.ndim - 1)))
    scales = paces * tensor(spread)  # a step of 1 is as long as this
    z = tensor(start) / scales
    steps, cooling, done = _steps(updates, recipe, rng), COOLING * recipe.steps, 0

    def loss(z: Tensor, kept: Ints) -> Floats:
        return _whole(gradients, z * scales[kept], y[kept], updates, reach, recipe)

    def descend(z: Tensor, kept: Ints, best: Best, steps: Iterable[Tensor], left: int) -> Tensor:
        z = z.clone().requires_grad_()
        optimizer = Adam([z], lr=1.0)
        calm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (left - step) / cooling))
        for number, few in enumerate(steps, start=1):
            optimizer.zero_grad(set_to_none=True)
            found = gradients(z * scales[kept], y[kept])
            torch.autograd.backward(descended(objective(found, few, reach, recipe.objective)))
            optimizer.step()
            calm.step()
            if number % best.every == 0:
                best.see(z.detach(), loss(z, kept))
        best.see(z.detach(), loss(z, kept))
        return z.detach()

    kept = np.arange(len(z))
    best = Best(z, loss(z, kept), recipe.steps)
    before = float(np.median(best.loss))
    for share in HEATS:
        if len(kept) == recipe.count:
            break
        heat, done = round(share * recipe.steps) - done, round(share * recipe.steps)
        z = descend(z, kept, best, islice(steps, heat), recipe.steps - done + heat)
        order = np.argsort(best.loss, kind="stable")
        ahead = order[: max(recipe.count, len(kept) // 2 if share < HEATS[-1] else 0)]
        z, kept, best = z[ahead], kept[ahead], best.take(ahead)
    descend(z, kept, best, steps, recipe.steps - done)
    crafted = (best.point * scales[kept]).numpy()
    return CraftedRecords(_named(crafted, labels[kept]), np.full(len(kept), before), best.loss)


class Best:
    """The best that each canary was so far, over all mock updates. A step looks at a few of them, and may make it worse
    for the others: what is crafted last is often not the best, and can be worse than the beginning."""

    def __init__(self, point: Tensor, loss: Floats, steps: int):
        self.point, self.loss, self.steps = point, loss, steps

    @property
    def every(self) -> int:
        """How many steps pass between two looks, each of which takes about as long as a step."""
        return max(1, self.steps // LOOKS)

    def see(self, point: Tensor, loss: Floats) -> None:
        better = loss < self.loss
        self.loss = np.where(better, loss, self.loss)
        self.point = torch.where(torch.from_numpy(better).view(-1, *[1] * (point.dim() - 1)), point, self.point)

    def take(self, rows: Ints) -> Best:
        return Best(self.point[rows], self.loss[rows], self.steps)


def spread_of(x: NDArray[Any]) -> NDArray[np.float32]:
    """How far values of the pool spread: of each column of a table, because one may count years and another grams; of
    all pixels together. A column that hardly varies has a tenth of the usual spread: nobody uses it, a canary may."""
    if x.ndim > 2:
        return np.array(max(float(x.std()), 1e-3), np.float32)
    own = x.std(axis=0)
    usual = float(np.median(own[own > 0])) if (own > 0).any() else 1.0
    return np.asarray(np.maximum(own, usual / 10), np.float32)


def together(task: TorchTask, model: State) -> Gradients:
    """The gradients of several canaries in one pass."""
    module = task.fresh(model).eval()
    parameters = {name: module.get_parameter(name).detach() for name in task.exchanged}

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        out = functional_call(module, weights, (x[None],))  # buffers, and what is frozen, are the module's own
        return loss_of_records(out, y[None], task.classes)[0]

    each = vmap(grad(loss), in_dims=(None, 0, 0))

    def gradients(x: Tensor, y: Tensor) -> Tensor:
        found = each(parameters, x, y)
        return torch.cat([found[name].flatten(1) for name in parameters], dim=1)

    return gradients


def check_target(target: int | None, classes: int) -> None:
    if target is not None and classes and not 0 <= target < classes:
        what = f"audit.canary.target is {target}, and there are classes 0 to {classes - 1}"
        raise FedauditError("canary-target", what, "Set one of these, or leave it out.")


def _begin(
    pool: Records, recipe: CraftingRecipe, classes: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Where crafting begins: records of the pool, or noise of the same mean and spread; and the labels."""
    check_target(recipe.target, classes)
    count = max(recipe.count, recipe.starts)
    rows = rng.choice(len(pool), count, replace=count > len(pool))
    start = pool.x[rows].astype(np.float32)
    if recipe.initial == "random":
        middle = pool.x.mean() if pool.x.ndim > 2 else pool.x.mean(axis=0)
        start = (rng.standard_normal(start.shape) * spread_of(pool.x) + middle).astype(np.float32)
    if classes:
        drawn = rng.permutation(np.arange(count) % classes)  # all classes alike: some suit a model better
        return start, np.full(count, recipe.target, np.int64) if recipe.target is not None else drawn
    return start, np.full(count, pool.y.max() if recipe.target is None else recipe.target, np.float32)


@torch.no_grad()
def _whole(gradients: Gradients, z: Tensor, y: Tensor, updates: Tensor, reach: float, recipe: CraftingRecipe) -> Floats:
    return objective(gradients(z.detach(), y), updates, reach, recipe.objective).double().numpy()


def _named(x: NDArray[Any], y: NDArray[Any]) -> Records:
    return Records(x, y, np.array([f"canary-{number}" for number in range(len(x))]))


# ------------------------------------------------------------------ text


def _craft_text(
    task: TorchTask,
    model: State,
    updates: Tensor,
    reach: float,
    pool: Records,
    recipe: CraftingRecipe,
    rng: np.random.Generator,
) -> CraftedRecords:
    """A distribution over the tokens at each position (Gumbel-softmax), sharper from step to step, and straight-through
    in the last quarter, when the canary is already the text that it will be."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    start = _first_text(pool, recipe, task.classes, rng)
    logits = start.clone().requires_grad_()
    gradients = one_by_one(task, model)
    optimizer = Adam([logits], lr=0.1)
    before = _of_text(gradients, start.argmax(-1), updates, reach, recipe, task.classes)
    sharpen = (LAST_TEMPERATURE / FIRST_TEMPERATURE) ** (1 / max(recipe.steps - 1, 1))
    best = Best(start.argmax(-1), before, recipe.steps)
    for step, few in enumerate(_steps(updates, recipe, rng)):
        if step % best.every == 0:
            tokens = logits.detach().argmax(-1)
            best.see(tokens, _of_text(gradients, tokens, updates, reach, recipe, task.classes))
        optimizer.zero_grad(set_to_none=True)
        uniform = torch.rand(logits.shape, generator=generator).clamp(1e-9, 1 - 1e-7)
        soft = ((logits - (-uniform.log()).log()) / (FIRST_TEMPERATURE * sharpen**step)).softmax(-1)
        if step >= 0.75 * recipe.steps:
            hard = nn.functional.one_hot(soft.argmax(-1), task.classes).to(soft)
            soft = hard + soft - soft.detach()
        found = gradients(soft[:, :-1], soft[:, 1:])
        torch.autograd.backward(descended(objective(found, few, reach, recipe.objective)))
        optimizer.step()
    tokens = logits.detach().argmax(-1)
    best.see(tokens, _of_text(gradients, tokens, updates, reach, recipe, task.classes))
    return CraftedRecords(_named(best.point[:, :-1].numpy(), best.point[:, 1:].numpy()), before, best.loss)


def check_text(task: TorchTask, pool: Records, starts: int | None) -> None:
    """Before anything is trained: whether a canary can be crafted as text."""
    if starts is not None:
        what = f"audit.canary.starts = {starts}, but a canary of text has one start"
        raise FedauditError("canary-text", what, "Take starts out of [audit.canary].")
    if pool.y.shape != pool.x.shape or not np.array_equal(pool.x[:, 1:], pool.y[:, :-1]):
        what = "a text canary is crafted where each token's label is the next one, and here it is not"
        raise FedauditError("canary-text", what, "Take canife out of audit.attacks; one-shot needs no record.")
    if (count := len(_embeddings(task.fresh(task.initial(0))))) != 1:
        what = f"a text canary needs a model with one embedding of tokens, and this has {count}"
        raise FedauditError("canary-text", what, "Use `lstm`, or take canife out of audit.attacks.")


def _embeddings(module: nn.Module) -> list[tuple[str, nn.Embedding]]:
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Embedding)]


def one_by_one(task: TorchTask, model: State) -> Gradients:
    """The gradients of texts given as distributions over tokens; an LSTM takes them one after the other."""
    module = task.fresh(model).eval()
    ((name, layer),) = _embeddings(module)
    module.set_submodule(name, Mixture(layer.weight))
    parameters = [module.get_parameter(name) for name in task.exchanged]

    def gradients(x: Tensor, y: Tensor) -> Tensor:
        rows = []
        with plain_lstm(), torch.enable_grad():
            for one, its in zip(x, y, strict=True):
                loss = loss_of_records(module(one[None]), its[None], task.classes).sum()
                found = torch.autograd.grad(loss, parameters, create_graph=x.requires_grad)
                rows.append(torch.cat([part.flatten() for part in found]))
        return torch.stack(rows)

    return gradients


@contextmanager
def plain_lstm() -> Iterator[None]:
    """Without oneDNN, whose LSTM has no second derivative."""
    before = bool(torch._C._get_mkldnn_enabled())
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


class Mixture(nn.Module):
    """An embedding of distributions over tokens: the mean of the tokens' vectors."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def _first_text(pool: Records, recipe: CraftingRecipe, tokens: int, rng: np.random.Generator) -> Tensor:
    """Logits: of a text of the pool, which is favoured at every position, or at random."""
    length = pool.x.shape[1] + 1
    logits = torch.from_numpy(rng.standard_normal((recipe.count, length, tokens)).astype(np.float32))
    if recipe.initial == "data":
        rows = rng.choice(len(pool), recipe.count, replace=recipe.count > len(pool))
        text = np.concatenate([pool.x[rows], pool.y[rows, -1:]], axis=1)
        logits += 4 * nn.functional.one_hot(tensor(text.astype(np.int64)), tokens)
    return logits


@torch.no_grad()
def _of_text(
    gradients: Gradients, text: Tensor, updates: Tensor, reach: float, recipe: CraftingRecipe, tokens: int
) -> Floats:
    hot = nn.functional.one_hot(text, tokens).float()
    found = gradients(hot[:, :-1], hot[:, 1:]).detach()
    return objective(found, updates, reach, recipe.objective).double().numpy()
