"""Is what a party sends a model of the task? An audit attacks what is sent as a model. Changes of the weights, and
weights that were scaled, permuted or encoded, answer like no model at all: every attack on them is at chance, and the
server undoes what was done to them. So they are refused before they are audited.

What is sent may be such a model if

1. every number is finite;
2. it started from the model that arrived. `share` is the multiple of the received weights that it contains: the
   projection onto them. Training leaves it near 1, since what it adds has mostly other directions (noise has, too). It
   is near 0 for changes, permuted and encoded weights, s for weights that were multiplied by s;
3. it fits the party's own members, which it was trained on, not much worse than the model that arrived. Only who
   knows these members (the party, or a server in a simulation) can see that.

The limits below come from simulated trainings (ten models, four optimisers, 1 to 10 epochs, equal and sorted classes,
from random or zero weights); docs/flower.md has the rates, and what slips through.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedaudit.adversary.signals.outputs import from_answers
from fedaudit.errors import FedauditError
from fedaudit.session.session import Session
from fedaudit.types import Notice, Records, State, Task, gap, warning

Sends = Literal["weights", "changes"]
NO_MODEL = "no-model"
NO_BETTER = "update-no-better"
KEPT, GROWN = 0.5, 3.0  # the least and the largest multiple of the received weights in what is sent
SURE = 2.0  # standard errors by which it has to miss them
WORSE = 0.5  # how much the fit may worsen: a share of the loss before, or of a model's that knows nothing
WORSE_THAN_NOTHING = 0.05  # the same where the model that arrived was all zeros: it knows nothing
UNSURE = 0.9  # below this multiple of the received weights they are added, to see whether that fits better,
BETTER = 0.1  # by this share of the loss of a model that knows nothing
LEAST = 0.69  # nats: one class among two, also where a party has records of one class only
ASKED = 256  # members at most


class NoModelError(FedauditError):
    """What is sent is no model of the task. Nobody can say what a server makes of it."""

    def __init__(self, what: str, sends: Sends, where: str = ""):
        todo = (
            'Say sends="changes" if changes of the weights are sent (in NVIDIA FLARE: a DXO of kind WEIGHT_DIFF). Send '
            "weights as they were trained: not scaled, reordered or encoded."
        )
        if sends == "changes":
            todo = (
                'Leave sends="changes" out if weights are sent (in NVIDIA FLARE: a DXO of kind WEIGHTS). Send changes '
                "as they are: not scaled, reordered or encoded."
            )
        super().__init__(NO_MODEL, what, todo, where=where)


def checked_sends(sends: object) -> Sends:
    if sends not in get_args(Sends):
        what = f"sends={sends!r}: what do the parties send?"
        raise FedauditError("bad-value", what, f"Give one of {', '.join(get_args(Sends))}.")
    return "changes" if sends == "changes" else "weights"


def added(start: State, change: State) -> State:
    """A model, from its change, in the types of the model that it started from."""
    return {name: (before + change[name]).astype(before.dtype) for name, before in start.items()}


def check_model(
    received: State,
    sent: State,
    *,
    task: Task | None = None,
    members: Records | None = None,
    sends: Sends = "weights",
    where: str = "",
) -> bool:
    """Raises NoModelError. `sent`: the whole model, also where its change was sent.

    Does it fit the members as well as the model that arrived? True where nobody can tell. Else it is noise, or looks
    like noise: of a defence, or the change encoded."""
    why, better = _looked_at(received, sent, task, members)
    if why:
        raise NoModelError(why, sends, where)
    return better


def is_model(
    session: Session, round: int, party: str, received: State, sent: State, *, members: Records | None, sends: Sends
) -> bool:
    """For whoever records what all parties send: tells the session of what is no model, or no better one."""
    task = session.auditor.task if session.auditor else None
    try:
        if not check_model(received, sent, task=task, members=members, sends=sends):
            tell_no_better(session, round, party)
    except NoModelError as error:
        if not _told_again(session.gaps, NO_MODEL, round, party):
            session.gap(gap(NO_MODEL, party=party, rounds=[round], why=error.what, todo=error.todo))
        return False
    return True


def tell_no_better(session: Session, round: int, party: str) -> None:
    """One warning for all rounds of a party."""
    if not _told_again(session.notes, NO_BETTER, round, party):
        session.note(warning(NO_BETTER, party=party, rounds=[round]))


def _told_again(told: list[Notice], code: str, round: int, party: str) -> bool:
    """One line for all rounds of a party, with what was wrong first."""
    for place, one in enumerate(told):
        if one.code == code and one.data["party"] == party:
            rounds = sorted({*one.data["rounds"], round})
            told[place] = replace(one, data={**one.data, "rounds": rounds})
            return True
    return False


def _looked_at(received: State, sent: State, task: Task | None, members: Records | None) -> tuple[str, bool]:
    """Why it is no model, if it is none; and whether it fits better than the model that arrived."""
    for name, value in sent.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return f"parameter {name!r} holds NaN or infinite numbers", False
    whole = _share(received, sent, _weights(received, task))
    if why := _odd(received, sent, task, whole):
        return why, False
    if task is None or members is None or not len(members):
        return "", True
    return _misfit(received, sent, task, members, whole)


def _odd(received: State, sent: State, task: Task | None, whole: "WeightShare | None") -> str:
    if whole is not None and whole.low > GROWN and whole.rest < whole.share:
        return f"the weights are {whole.share:.3g} times those of the model that arrived"
    layers = [_share(received, sent, [name]) for name in _weights(received, task) if received[name].ndim > 1]
    gone = [one.high < KEPT for one in layers if one is not None]
    if (whole is not None and whole.high < KEPT) or (gone and 2 * sum(gone) >= len(gone)):
        return (
            f"hardly anything of the model that arrived is in it ({0 if whole is None else whole.share:.2f} times its "
            "weights, and training leaves about 1): these are changes, or weights that were scaled, reordered or "
            "encoded"
        )
    return ""


def _misfit(
    received: State, sent: State, task: Task, members: Records, whole: "WeightShare | None"
) -> tuple[str, bool]:
    """What the party's own members show. They were trained on, so that a model fits them better than before."""
    few = members.take(np.linspace(0, len(members) - 1, min(len(members), ASKED)).astype(int))

    def loss(state: State) -> float:
        return float(from_answers(task.outputs(state, few.x), few.y, ["loss"], task.classes)["loss"].mean())

    before, after, nothing = loss(received), loss(sent), _constant(few, task.classes)
    room = WORSE * max(nothing, before) if whole is not None else WORSE_THAN_NOTHING * nothing
    if not after <= before + room:
        why = (
            f"it fits this party's own members much worse than the model that arrived (mean loss {after:.3g} after "
            f"{before:.3g}; a model that knows nothing has {nothing:.3g}). Noise of this size cannot be told from an "
            "encoding"
        )
        return why, False
    if whole is not None and whole.share < UNSURE and loss(added(received, sent)) < after - BETTER * nothing:
        return "added to the model that arrived, it fits this party's own members better: these are changes", False
    return "", after <= before


# ------------------------------------------------------------------ figures


@dataclass(frozen=True)
class WeightShare:
    """The multiple of the received weights in what is sent; `rest`: the norm of everything else, in multiples of the
    received weights' norm; `error`: by how much the share varies where the rest has a random direction."""

    share: float
    rest: float
    error: float

    @property
    def low(self) -> float:
        return self.share - SURE * self.error

    @property
    def high(self) -> float:
        return self.share + SURE * self.error


def _share(received: State, sent: State, names: list[str]) -> WeightShare | None:
    """None where the received weights are all zero: then nothing could be left of them."""
    pairs = [(received[name].astype(np.float64).ravel(), sent[name].astype(np.float64).ravel()) for name in names]
    total, count = sum(float(one @ one) for one, _ in pairs), sum(one.size for one, _ in pairs)
    if total == 0.0:
        return None
    share = sum(float(one @ other) for one, other in pairs) / total
    rest = float(np.sqrt(sum(float(np.sum((other - share * one) ** 2)) for one, other in pairs) / total))
    return WeightShare(share, rest, rest / float(np.sqrt(count)))


def _weights(received: State, task: Task | None) -> list[str]:
    """What is trained. Running means and variances of a layer's inputs are not: they start at 0 and 1."""
    trained = getattr(task, "exchanged", None)
    names = [name for name, value in received.items() if value.dtype.kind == "f" and value.size]
    if trained is not None:
        return [name for name in names if name in set(trained)]
    return [name for name in names if ".running_" not in f".{name}"]


def _constant(records: Records, classes: int) -> float:
    """The mean loss of the best model that gives every record the same answer."""
    y: NDArray[Any] = records.y
    if not classes:
        return float(np.var(y))
    counted = y[y >= 0].ravel()
    shares = np.bincount(counted.astype(int), minlength=classes)[:classes] / max(1, counted.size)
    entropy = -float(sum(share * np.log(share) for share in shares if share))
    return max(entropy, LEAST) * (counted.size / max(1, len(y)))
