"""A commented configuration: every key, what it means, its default. Made from the models, so no key is missing."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from fedaudit.config.schema import Config
from fedaudit.errors import FedauditError

HEAD = """\
# What fedaudit is to train and to audit: `fedaudit run` with this file.
# Every key is here with its default: what you do not change you may delete. Keys that are not set are commented out.
"""

# What a key means, where its model does not say so by a description of its own.
MEANING = {
    "data.name": "`fedaudit list data` names them; `npz` is a file of your own",
    "data.path": "the file, relative to this one; only for data that is read from a file",
    "data.task": "npz: is y a class or a value",
    "data.x_key": "npz: the array of records",
    "data.y_key": "npz: the array of labels, or of values",
    "data.id_key": "npz: stable names of the records; without them the content is the name",
    "data.subject_key": "npz: whose record it is; records of one subject are not independent",
    "data.attribute_key": "npz: an attribute that an adversary may want to guess",
    "federation.parties": "how many parties share the records",
    "federation.partition": "how the records are shared out",
    "federation.beta": 'partition "dirichlet": how even the labels are, small is uneven',
    "federation.column": 'partition "column": label, subject or an attribute',
    "federation.members": "the fraction of its records that a party trains on",
    "federation.nonmembers": "the fraction that is kept out and reported on; the rest sets thresholds",
    "federation.member_subjects": 'partition "subjects": the fraction of subjects that are trained on',
    "federation.held_out": 'partition "subjects": the fraction that is reported on as outsiders',
    "federation.participation": "the fraction of parties that take part in a round",
    "federation.sampling": "who takes part: always as many, or each by its own coin",
    "federation.rounds": "how often models are exchanged",
    "federation.local_epochs": "passes over its records that a party makes in a round",
    "federation.batch_size": "records in one step of training",
    "federation.algorithm": "what the server does with what it receives",
    "federation.optimizer": "of the parties, fresh in every round",
    "federation.lr": "learning rate of the parties",
    "federation.seed": "everything random follows from it",
    "model.name": "`fedaudit list models` names them; `package.module:factory` is your own",
    "model.hidden": "mlp: the widths of its hidden layers",
    "model.filters": "cnn: filters of its first layer",
    "model.norm": "resnets: what normalises between layers",
    "model.options": "passed on to a model of your own",
    "audit.vantages": "who looks: a participant (client), the server, ...",
    "audit.attacks": "`fedaudit list attacks` names them; not set: all that cost at most one local epoch a round",
    "audit.fpr": "false-positive rates; not set: 0.001 and 0.01 where there are enough records to calibrate",
    "audit.confidence": "of every interval",
    "audit.keep": "what is stored of each round: what the attacks read, or every model that was exchanged",
    "audit.adversary": "somebody with data and a shadow model: the server, honest or not, or a party",
    "audit.fusion.attacks": "whose scores are added up",
    "audit.fusion.weights": "one for each; not set: all alike",
    "audit.reference.models": "how many; an even number, half of them had a record",
    "audit.reference.alpha": "how much of the target's answer is in their labels",
    "audit.reference.variance": "one for all records, or each its own; not set: one for all up to 16 models",
    "audit.reference.defended": "they train under the parties' own defence",
    "audit.attribute.name": "which attribute is guessed",
    "audit.attribute.column": "where it stands among the inputs, if it does",
    "defences.name": "which one",
    "defences.epsilon": "dp-sgd, dp-fedavg: the guarantee to reach; or give noise",
    "defences.delta": "of the guarantee",
    "defences.noise": "dp-sgd, dp-fedavg: noise in units of the clip; or give epsilon",
    "defences.clip": "the largest norm that passes",
    "defences.local": "dp-fedavg: noise is added by each party, not by the server",
    "defences.strength": "of the others",
}


def template() -> str:
    """The configuration file that `fedaudit init` writes; read again it is the default configuration."""
    return HEAD + "".join(f"{line}\n" for line in _section(Config, (), Config(), commented=False))


def write(path: Path) -> None:
    """Never over a file that is there."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise FedauditError("exists", f"{path} is there already", "Name another file, or move that one.") from None
    except OSError as error:
        raise FedauditError("unwritable", f"cannot write {path}: {error.strerror}", "Name another place.") from None


def _section(kind: type[BaseModel], path: tuple[str, ...], values: BaseModel | None, commented: bool) -> Iterator[str]:
    """Keys first, sections after them, as TOML wants it. A section that is off by default is commented out whole."""
    sections = []
    for name, field in kind.model_fields.items():
        value = getattr(values, name) if values is not None else _default(field)
        inner, many = _model_in(field.annotation)
        if inner is None or (many and value):
            yield from _key((*path, name), field, value, commented)
        else:
            sections.append((name, inner, many, value))
    for name, inner, many, value in sections:
        off = commented or not isinstance(value, BaseModel)
        title = ".".join((*path, name))
        yield ""
        yield from _about(inner)
        yield f"{'# ' * off}{f'[[{title}]]' if many else f'[{title}]'}"
        yield from _section(inner, (*path, name), value if isinstance(value, BaseModel) else None, off)


def _about(kind: type[BaseModel]) -> list[str]:
    if kind.__doc__ is None:
        return []
    text = re.sub(r"^\[+.*?\]+ *", "", kind.__doc__.strip())  # the section's own name, which follows anyway
    return [f"# {line.strip()}".rstrip() for line in text.splitlines()]


def _key(path: tuple[str, ...], field: FieldInfo, value: Any, commented: bool) -> list[str]:
    words = [field.description or MEANING.get(".".join(path), ""), _allowed(field)]
    comment = " ".join("; ".join(word for word in words if word).split())
    unset = value is None or value is ...
    assignment = f"{'# ' * (commented or unset)}{path[-1]} =" + ("" if unset else f" {toml(value)}")
    return [f"{assignment}  # {comment}" if comment else assignment]


def _allowed(field: FieldInfo) -> str:
    """The words a key may take, and bounds of numbers."""
    for annotation in (field.annotation, *get_args(field.annotation)):
        if get_origin(annotation) is Literal:
            return " | ".join(toml(choice) for choice in get_args(annotation))
    bounds = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    parts = [
        f"{word} {getattr(rule, name)}"
        for name, word in bounds.items()
        for rule in field.metadata
        if getattr(rule, name, None) is not None and getattr(rule, name) < 2**62
    ]
    return ", ".join(parts)


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section behind `Section`, `Section | None` or a list of sections, and whether it is a list."""
    origin, parts = get_origin(annotation), get_args(annotation)
    many = origin in (list, tuple)
    kinds = [part for part in parts if part not in (type(None), ...)]
    only = annotation if not parts else kinds[0] if len(kinds) == 1 and (many or origin in (Union, UnionType)) else None
    return (only, many) if isinstance(only, type) and issubclass(only, BaseModel) else (None, False)


def _default(field: FieldInfo) -> Any:
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def toml(value: Any) -> str:
    """A value as TOML writes it on one line. JSON's strings, numbers and lists are TOML's."""
    plain = to_jsonable_python(value)
    if isinstance(plain, Mapping):
        items = ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in plain.items() if v is not None)
        return f"{{ {items} }}" if items else "{}"
    if isinstance(plain, list):
        return f"[{', '.join(toml(item) for item in plain)}]"
    return json.dumps(plain, ensure_ascii=False)
