"""The door to torch: a model and a loss, offered as outputs and training."""

from __future__ import annotations

import copy
import inspect
import math
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import unwrap
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from fedaudit.config.registry import MODELS
from fedaudit.errors import FedauditError, suggest
from fedaudit.learn.models.own import factory_of
from fedaudit.types import IGNORED, Floats, Records, State, Trained

FORWARD_ROWS = 4096  # rows in one forward pass at most,
FORWARD_VALUES = 2**19  # and values: pictures in larger batches fall out of the processor's cache


@dataclass(frozen=True)
class Training:
    """How a party trains."""

    optimizer: str = "adam"
    lr: float = 1e-3
    epochs: int = 1
    batch_size: int = 64
    weight_decay: float = 0.0

    def optimizer_of(self, module: nn.Module) -> torch.optim.Optimizer:
        return OPTIMIZERS[self.optimizer](module.parameters(), lr=self.lr, weight_decay=self.weight_decay)


class TorchTask:
    """Any `nn.Module` with logits (classification) or one value (regression, classes = 0) as output.

    Where a record has a class at every position, the logits are records x positions x classes. For the loss of
    a record see `loss_of_records`. `forward(model, x)`: how a model is asked that takes several inputs, or answers
    with a tuple or a dict.

    `exchanged`: what parties send each other, where that is a part of the model (see `exchanged_part`). A state is then
    that part and nothing else, everywhere. The rest is the frozen `base`: it is held here once, and `load` is the one
    place where the two become a whole model.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        classes: int,
        forward: Forward | None = None,
        exchanged: Exchanged | None = None,
    ):
        self._make, self._forward = build, forward
        self._module = self._build()
        self._classes = classes
        self._part = exchanged_part(self._module, exchanged)
        self.base: State = {}
        if self._part is not None:
            self._module = self._build(seed=0)  # one base, whatever random weights the model is built with
            whole = self._module.state_dict()
            self.base = {name: value.numpy() for name, value in whole.items() if name not in self._part}
            for name, parameter in self._module.named_parameters():
                parameter.requires_grad_(parameter.requires_grad and name in self._part)

    def _build(self, seed: int | None = None) -> nn.Module:
        """A new module. Its random weights take nothing from the numbers that the training around it draws."""
        with torch.random.fork_rng(devices=[]):
            if seed is not None:
                torch.manual_seed(seed)
            return with_forward(self._make(), self._forward)

    @property
    def classes(self) -> int:
        return self._classes

    @property
    def architecture(self) -> nn.Module:
        """The model as a module. Its parameters are scratch space: those of whichever state was looked at last."""
        return self._module

    @property
    def exchanged(self) -> list[str]:
        """The names of the parameters that parties exchange, in the order of the module."""
        return [name for name, _ in self._module.named_parameters() if name not in self.base]

    def initial(self, seed: int) -> State:
        module = self._build(seed)
        try:
            return self.state_of(module)
        except (TypeError, RuntimeError) as error:  # bfloat16, sparse, another device
            raise FedauditError(
                "model-state",
                f"the model's parameters cannot be stored: {str(error).splitlines()[0]}",
                "Build it on the CPU, with dense float32 parameters.",
            ) from None

    def outputs(self, state: State, x: NDArray[Any]) -> Floats:
        """Logits (or predictions) in float64, in evaluation mode, in fixed batches and in row order."""
        return self._outputs(self._load(state).eval(), x)

    def asking(self, state: State) -> Callable[[NDArray[Any]], Floats]:
        module = self.fresh(state).eval()
        return lambda x: self._outputs(module, x)

    def _outputs(self, module: nn.Module, x: NDArray[Any]) -> Floats:
        with torch.inference_mode():
            parts = [answer(module(tensor(part))).double() for part in batches(x)]
        return torch.cat(parts).numpy() if parts else np.empty((0, max(self._classes, 1)))

    def last_layer(self, state: State, x: NDArray[Any]) -> tuple[Floats, Floats]:
        """Outputs, and what went into the last linear layer (a 1 for its bias included), from one forward pass."""
        module = self._load(state).eval()
        seen: list[tuple[nn.Linear, torch.Tensor, torch.Tensor]] = []
        calls: Counter[nn.Module] = Counter()

        def remember(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            assert isinstance(layer, nn.Linear)
            seen[:] = [(layer, inputs[0], output)]
            calls[layer] += 1

        hooks = [m.register_forward_hook(remember) for m in module.modules() if isinstance(m, nn.Linear)]
        outputs, inputs = [], []
        try:
            with torch.inference_mode():
                for part in batches(x):
                    calls.clear()
                    out = module(tensor(part))
                    if not seen or seen[0][2].numel() != out.numel() or not _same(seen[0][2].view_as(out), out):
                        raise FedauditError(
                            "last-layer",
                            "the model does not end in a linear layer, so the gradient of its last layer is not known "
                            "from a forward pass",
                            "Let it return the outputs of an nn.Linear, or leave out gradient-norm.",
                        )
                    layer, h, _ = seen[0]
                    if calls[layer] > 1 or _shared(layer, module):
                        raise FedauditError(
                            "last-layer",
                            "the weights of the model's last linear layer are used more than once in a pass, so the "
                            "gradient of that layer is not known from what goes into it",
                            "Leave out gradient-norm, gradient-series and attribute.",
                        )
                    if out.dim() > 2:  # positions that were rows of the layer's own
                        h = h.reshape(*out.shape[:-1], -1)
                    outputs.append(out.double())
                    inputs.append(h.double() if layer.bias is None else nn.functional.pad(h.double(), (0, 1), value=1))
        finally:
            for hook in hooks:
                hook.remove()
        return torch.cat(outputs).numpy(), torch.cat(inputs).numpy()

    def losses(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One loss per record, summed over its positions if it has several."""
        return loss_of_records(outputs, y, self._classes)

    def train(self, state: State, records: Records, training: Training, rng: np.random.Generator) -> Trained:
        """Local training from `state`: shuffled mini-batches, a fresh optimiser."""
        return self.fit(self._load(state).train(), records, training, rng)

    def fit(self, module: nn.Module, records: Records, training: Training, rng: np.random.Generator) -> Trained:
        """Train this module, which may carry hooks of its own (see `fresh`)."""
        optimizer = training.optimizer_of(module)
        x, y = tensor(records.x), tensor(records.y)
        started = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))  # dropout
            for _ in range(training.epochs):
                order = torch.from_numpy(rng.permutation(len(records)))
                for batch in torch.split(order, training.batch_size):
                    optimizer.zero_grad(set_to_none=True)
                    torch.autograd.backward(loss_of_batch(module(x[batch]), y[batch], self._classes))
                    optimizer.step()
        seconds = (time.perf_counter() - started) / training.epochs
        return Trained(self.state_of(module), len(records), seconds)

    def fresh(self, state: State) -> nn.Module:
        """A new module with this state, in training mode. The caller may add hooks to it. All share the base."""
        if self._part is None:
            return self.load(self._build(), state).train()
        shared = [t for name, t in self._module.state_dict(keep_vars=True).items() if name in self.base]
        return self.load(copy.deepcopy(self._module, {id(t): t for t in shared}), state).train()

    def load(self, module: nn.Module, state: State) -> nn.Module:
        """The module, which is one of this task's, with this state: the rest of it is the base."""
        if self._part is not None and set(state) != self._part:
            odd = sorted(set(state) ^ self._part)
            what = f"a state with {len(state)} arrays, where {len(self._part)} are exchanged; first: {odd[0]}"
            todo = 'Give what the parties exchange, by its names: exchanged = "trainable" is what is trained.'
            raise FedauditError("parameter-names", what, todo)
        module.load_state_dict(tensors(state), strict=self._part is None)
        return module

    def state_of(self, module: nn.Module) -> State:
        """What is exchanged of it."""
        whole = module.state_dict().items()
        return {n: v.detach().numpy().copy() for n, v in whole if self._part is None or n in self._part}

    def check(self, state: State, records: Records) -> None:
        """Refuse, before training, a model that does not fit the data or whose answers are not reproducible."""
        few = records.x[:8]
        try:
            first, second = self.outputs(state, few), self.outputs(state, few)
        except FedauditError:
            raise
        except Exception as error:
            raise FedauditError(
                "model-data",
                f"the model cannot take records of shape {records.x.shape[1:]} and type {records.x.dtype}: "
                f"{_in_words(error)}",
                "Choose a model for such records, or change the data: features are floats, tokens are integers. A "
                "model with several inputs needs a hook that splits x: [model] forward, or forward= in Python.",
            ) from None
        check_answers(first, records, self._classes)
        if not np.array_equal(first, second):
            raise FedauditError(
                "model-random",
                "the model answers the same records differently twice, in evaluation mode",
                "Remove the randomness from its forward pass when `self.training` is false.",
            )

    def check_trains(self, state: State, records: Records) -> None:
        """Refuse a model that training could not change. One that is only looked at need not be trained here."""
        if not self._load(state).eval()(tensor(records.x[:8])).requires_grad:
            raise FedauditError(
                "model-untrained",
                "no weight of the model could change: it has none to train, or no gradient reaches them",
                "Give it parameters, and return the logits without detach or no_grad.",
            )

    def _load(self, state: State) -> nn.Module:
        return self.load(self._module, state)


def _shared(layer: nn.Linear, module: nn.Module) -> bool:
    """Is a parameter of the layer also another layer's?"""
    others = (p for other in module.modules() if other is not layer for p in other.parameters(recurse=False))
    own = {id(p) for p in layer.parameters()}
    return any(id(p) in own for p in others)


def check_answers(answers: Floats, records: Records, classes: int) -> None:
    """Refuses answers of another shape than the records' labels need, and NaN."""
    positions = records.y.shape[1:]
    wanted = [(*positions, classes)] if classes else [(), (1,)]
    if answers.shape[1:] not in wanted:
        needed = f"{classes} classes are" if classes else "one value is"
        where = f" at each of {positions[0]} positions, the classes last" if positions else ""
        raise FedauditError(
            "model-outputs",
            f"the model answers with shape {answers.shape[1:]} where {needed} needed{where}",
            f"Let it return {wanted[-1]} for each record.",
        )
    if np.isnan(answers).any():
        raise FedauditError(
            "model-nan",
            "the model answers NaN before any training",
            "Look at its initial weights, and whether the records' values are of ordinary size.",
        )


def batches(x: NDArray[Any]) -> list[NDArray[Any]]:
    """Fixed by the records' shape, because the batch size can change the last bits."""
    rows = min(FORWARD_ROWS, max(1, FORWARD_VALUES // max(1, math.prod(x.shape[1:]))))
    return [x[i : i + rows] for i in range(0, len(x), rows)]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit by bit, but for NaN: a model that diverged still ends in the layer it ends in."""
    return torch.equal(a, b) or torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)


def build_task(
    name: str,
    input_shape: tuple[int, ...],
    classes: int,
    options: dict[str, Any],
    forward: Forward | None = None,
    frozen: int = 0,
    exchanged: Exchanged | None = None,
) -> TorchTask:
    """A task around a model of ours, or the user's own `package.module:factory`. `frozen`: how many of its first layers
    are not trained; they are exchanged all the same, unless `exchanged` says otherwise."""
    entry = MODELS.find(name)
    if entry is None:
        raise FedauditError("unknown-model", *MODELS.unknown(name))
    given = factory_of(name) if ":" in name else entry.make
    return TorchTask(
        lambda: freeze(module_of(given, name, input_shape, classes, options, forward), frozen),
        classes,
        forward,
        exchanged,
    )


def freeze(module: nn.Module, count: int) -> nn.Module:
    """The first layers that have weights keep them. What is not trained is not looked at by an adversary, either. Two
    matrices with nothing between them are one layer."""
    parts = [part for part in module.modules() if next(part.parameters(recurse=False), None) is not None]
    rows = [row for row in module.modules() if isinstance(row, nn.Sequential)]
    second = {after for row in rows for before, after in pairwise(row) if _is_product(before, after)}
    layers: list[list[nn.Module]] = []
    for part in parts:
        if part in second:
            layers[-1].append(part)
        else:
            layers.append([part])
    if count and count >= len(layers):
        what = (
            f"federation.freeze = {count} would leave nothing to train: the model has {len(layers)} layers with weights"
        )
        raise FedauditError("freeze", what, f"Freeze at most {len(layers) - 1}.")
    for part in chain.from_iterable(layers[:count]):
        for parameter in part.parameters(recurse=False):
            parameter.requires_grad_(False)
    return module


def _is_product(before: nn.Module, after: nn.Module) -> bool:
    return isinstance(before, nn.Linear) and before.bias is None and isinstance(after, nn.Linear)


# ------------------------------------------------------------------ a part of the model is exchanged

# "trainable": the parameters that require gradients. Otherwise the names of parameters, or of modules, for all that is
# in them.
Exchanged = Literal["trainable"] | Sequence[str]
TRAINABLE: Literal["trainable"] = "trainable"


def exchanged_part(module: nn.Module, asked: Exchanged | None) -> frozenset[str] | None:
    """The names of what is exchanged; None: the whole model. Of a model of PEFT, if nothing else is asked, the adapter
    is: what it trains."""
    whole = list(module.state_dict())
    if asked is None and not hasattr(module, "peft_config"):
        return None
    if asked in (None, TRAINABLE):
        part = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        trained = {name.rpartition(".")[0] for name in part}
        part |= {name for name, _ in module.named_buffers() if name.rpartition(".")[0] in trained} & set(whole)
        if not part:
            what = "no parameter of the model requires gradients, so none could be exchanged"
            raise FedauditError("exchanged", what, "Let those that are trained require gradients, or name them.")
        return frozenset(part)
    assert asked is not None
    for each in asked:
        if not any(name == each or name.startswith(f"{each}.") for name in whole):
            raise FedauditError("exchanged", f"the model has no parameter or module {each!r}", suggest(each, whole))
    return frozenset(n for n in whole if any(n == each or n.startswith(f"{each}.") for each in asked))


def _in_words(error: Exception) -> str:
    """Torch speaks of shapes; what others raise may quote records, so only its kind and place are told."""
    if type(error) is RuntimeError:
        return str(error).partition("\n")[0]
    frames = traceback.extract_tb(error.__traceback__)
    inside = str(Path(torch.__file__).parent)
    place = next(frame for frame in reversed(frames) if not frame.filename.startswith(inside))
    return f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"


# ------------------------------------------------------------------ the loss, for training, attacks and defences

# A class: the cross-entropy of its label. A class at every position (text: the next character): the cross-entropies of
# its positions, summed, so that a record's gradient is the sum over its positions; those whose label is IGNORED add
# nothing. A value: the squared error.
#
# Outputs are records x classes, or records x positions x classes; labels are records, or records x positions. Soft
# labels have the shape of the outputs. A batch has the mean of its records' losses.


def loss_of_records(outputs: Tensor, y: Tensor, classes: int) -> Tensor:
    """One loss a record."""
    if not classes:
        return functional.mse_loss(outputs.squeeze(-1), y, reduction="none")
    each = functional.cross_entropy(*_by_position(outputs, y), reduction="none", ignore_index=IGNORED)
    return each.reshape(outputs.shape[:-1]).flatten(1).sum(1) if outputs.dim() > 2 else each


def loss_of_batch(outputs: Tensor, y: Tensor, classes: int) -> Tensor:
    """Their mean over the records, from one fused operation."""
    if not classes:
        return functional.mse_loss(outputs.squeeze(-1), y)
    if outputs.dim() == 2:
        return functional.cross_entropy(outputs, y)
    if not y.is_floating_point() and bool((y == IGNORED).any()):
        return functional.cross_entropy(*_by_position(outputs, y), reduction="sum", ignore_index=IGNORED) / len(y)
    each = functional.cross_entropy(*_by_position(outputs, y))  # over all positions of all records
    return each * outputs[0, ..., 0].numel()


def _by_position(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Every position as a row of its own: torch looks for the classes along the second axis."""
    return outputs.flatten(0, -2), y.flatten(0, -2) if y.is_floating_point() else y.flatten()


# ------------------------------------------------------------------ from numpy, which is all the rest, to torch


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """The same values. They may share memory, so nobody writes into it."""
    return torch.from_numpy(np.ascontiguousarray(array))


def tensors(state: State) -> dict[str, torch.Tensor]:
    """A copy: a stored state may be read-only, and scalars must keep their shape."""
    return {name: torch.from_numpy(np.array(value)) for name, value in state.items()}


# ------------------------------------------------------------------ optimizers of torch, without its compiler

# An optimizer of torch asks the compiler to leave it alone, and loads all of the compiler for that: two seconds of
# every process, although nothing here is compiled. These are the same methods, without what torch wraps around them.


class Adam(torch.optim.Adam):
    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class SGD(torch.optim.SGD):
    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": Adam, "sgd": SGD}


# ------------------------------------------------------------------ a model as people have it

# A module, a class, a factory, or "package.module:name" of one of these.
#
# Whatever it is, it becomes a module that takes one batch of records and answers with one tensor. A model that takes
# several inputs, or answers with a tuple or a dict, has a hook that says how it is asked:
#
#     def forward(model, x):
#         return model(x[:, :10], x[:, 10:])["logits"]


Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]
SHOWN = 'def forward(model, x): return model(x)["logits"]'


def module_of(
    given: Any,
    name: str,
    input_shape: tuple[int, ...],
    classes: int,
    options: Mapping[str, Any],
    forward: Forward | None = None,
) -> nn.Module:
    """A new module. A class or a function is called with the shape and the classes if it asks for them."""
    if isinstance(given, nn.Module):
        check_precision(given, name, forward)
        return copy.deepcopy(given)
    try:
        made: object = _called(given, input_shape, classes, options)
    except FedauditError:
        raise
    except Exception as error:  # it was given a shape and a number, so its words quote no record
        raise FedauditError(
            "model-factory",
            f"{name} cannot be called with (input_shape, classes, **options) or (**options): "
            f"{type(error).__name__}: {error}",
            "Let it take these and return a torch.nn.Module; options come from [model.options].",
        ) from error
    if not isinstance(made, nn.Module):
        raise FedauditError(
            "model-factory", f"{name} returned {type(made).__name__}", "Let it return a torch.nn.Module."
        )
    check_precision(made, name, forward)
    return made


def check_precision(module: nn.Module, name: str, forward: Forward | None) -> None:
    """Records are float32, and so is the arithmetic of an audit; `forward` may widen them for a model in float64."""
    taken = {torch.float32} if forward is None else {torch.float32, torch.float64}
    dtypes = {p.dtype for p in module.parameters() if p.is_floating_point() or p.is_complex()} - taken
    odd = [str(dtype).removeprefix("torch.") for dtype in dtypes]
    if odd:
        raise FedauditError(
            "model-dtype",
            f"the parameters of {name} are {' and '.join(sorted(odd))}, and an audit computes in float32",
            "Give a copy in float32, such as copy.deepcopy(model).float(): what is exchanged may stay as it is, and is "
            "widened.",
        )


def _called(factory: Any, input_shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> object:
    """By position where two arguments are needed, else by name where it has these names, else without them."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # written in C
        return factory(input_shape, classes, **options)
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in by_position and p.default is p.empty and p.name not in options]
    if len(needed) >= 2 or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return factory(input_shape, classes, **options)
    known = {"input_shape": input_shape, "classes": classes}
    named = {p.name: known[p.name] for p in parameters if p.name in known and p.name not in options}
    return factory(**named, **options)


def with_forward(module: nn.Module, hook: Forward | None) -> nn.Module:
    """The same module, with the same parameters under the same names, that is asked through the hook.

    Its class is a subclass of its own: a module around it would rename the parameters, and what parties exchange would
    no longer fit.
    """
    if hook is None:
        return module
    asked = hook

    class Asked(type(module)):  # type: ignore[misc]
        def forward(self, *inputs: Any, **named: Any) -> Any:
            if self.__dict__["_inside_hook"]:  # the hook calls the model itself
                return super().forward(*inputs, **named)
            self.__dict__["_inside_hook"] = True
            try:
                return asked(self, *inputs)
            finally:
                self.__dict__["_inside_hook"] = False

    made: nn.Module = Asked.__new__(Asked)
    made.__dict__.update(module.__dict__, _inside_hook=False)
    return made


def answer(made: object) -> torch.Tensor:
    """One tensor, or an error that says how to get one."""
    if isinstance(made, torch.Tensor):
        return made
    what = type(made).__name__
    if isinstance(made, Mapping):
        what += f" with {', '.join(str(key) for key in list(made)[:8])}"
    elif isinstance(made, tuple):
        what += f" of {len(made)}"
    raise FedauditError(
        "model-forward",
        f"the model answers with a {what}, and one tensor of logits is needed",
        f'Say how it is asked: `{SHOWN}`; then [model] forward = "package.module:forward", or forward= in Python.',
    )
