"""What a pickle holds, without running any of it: arrays, numbers, texts, lists, tuples and dicts, and nothing else.

A pickle is a program, and loading it runs it. Here its instructions are read one by one, and the few that put plain
values together are followed. The only names that may occur are those by which numpy's arrays are pickled; they stand
for themselves and are never looked up. Anything else is refused.
"""

from __future__ import annotations

import pickletools
from typing import Any, cast

import numpy as np

MOST = 2**20  # instructions: a batch of CIFAR has some thirty thousand
ARRAY, DTYPE = "array", "dtype"
NAMES = {
    "numpy.core.multiarray _reconstruct": ARRAY,
    "numpy._core.multiarray _reconstruct": ARRAY,
    "numpy ndarray": "ndarray",
    "numpy dtype": DTYPE,
}
LITERALS = {
    "BININT", "BININT1", "BININT2", "INT", "LONG1", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "UNICODE",
}  # fmt: skip
PLAIN = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
DAMAGED = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError, SyntaxError, RecursionError,
)  # fmt: skip
KINDS = "biufSU"  # of arrays: numbers and text, no objects


class PickleRefused(ValueError):
    """It holds something else than plain values, or is no pickle."""


class _Made:
    """An array or a type of one, on its way: `build` says what is in it."""

    def __init__(self, kind: str, given: tuple[Any, ...]):
        self.kind = kind
        self.value: Any = None
        if kind == DTYPE:
            name = given[0] if given and isinstance(given[0], str) else ""
            if not name or np.dtype(name).kind not in KINDS:
                raise PickleRefused("an array of objects")
            self.value = np.dtype(name)

    def build(self, state: Any) -> None:
        if self.kind == DTYPE:  # its byte order
            if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
                self.value = self.value.newbyteorder(state[1]) if state[1] in "<>" else self.value
            return
        _, shape, dtype, fortran, content = state
        content = content.encode("latin-1") if isinstance(content, str) else content
        flat = np.frombuffer(content, dtype.value)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


def plain_values(content: bytes) -> Any:
    """The value that was pickled. Raises PickleRefused."""
    try:
        return _read(content)
    except PickleRefused:
        raise
    except DAMAGED as error:
        raise PickleRefused(f"it cannot be read ({type(error).__name__})") from None


def _read(content: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        begin = marks.pop()
        found = stack[begin:]
        del stack[begin:]
        return found

    for number, (code, given, _) in enumerate(pickletools.genops(content)):
        name, argument = code.name, cast(Any, given)
        if number > MOST:
            raise PickleRefused("too many values")
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return _finished(stack.pop(), {})
        if name in LITERALS:
            stack.append(argument)
        elif name in PLAIN:
            stack.append(PLAIN[name])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE"):
            stack.append({"EMPTY_LIST": [], "EMPTY_DICT": {}, "EMPTY_TUPLE": ()}[name])
        elif name in ("LIST", "TUPLE"):
            stack.append((list if name == "LIST" else tuple)(since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("APPEND", "APPENDS"):
            more = since_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(more)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = since_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            if not all(isinstance(key, str | bytes | int) for key in pairs[::2]):
                raise PickleRefused("a key is no text or number")
            stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(argument)])
        elif name == "GLOBAL" and argument in NAMES:
            stack.append(NAMES[argument])
        elif name == "STACK_GLOBAL" and (named := _named(stack[-2:])) in NAMES:
            stack[-2:] = [NAMES[named]]
        elif name == "REDUCE" and stack[-2] in (ARRAY, DTYPE):
            arguments = stack.pop()
            stack.append(_Made(stack.pop(), arguments))
        elif name == "BUILD" and isinstance(stack[-2], _Made):
            state = stack.pop()
            stack[-1].build(state)
        else:
            raise PickleRefused(f"the instruction {name}")
    raise PickleRefused("it ends too early")


def _finished(value: Any, known: dict[int, Any]) -> Any:
    """With arrays in place of what they were made of. What occurs several times is looked at once: a few lists that
    hold one another could else unfold into billions."""
    if isinstance(value, _Made):
        return value.value
    if isinstance(value, dict | list | tuple) and id(value) not in known:
        known[id(value)] = None  # a list that holds itself
        known[id(value)] = (
            {_text(key): _finished(each, known) for key, each in value.items()}
            if isinstance(value, dict)
            else type(value)(_finished(each, known) for each in value)
        )
    return known[id(value)] if isinstance(value, dict | list | tuple) else value


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key


def _named(two: list[Any]) -> str:
    """A module and a name in it. Both must be text: other values could print endlessly."""
    return " ".join(two) if all(isinstance(one, str) for one in two) else ""
