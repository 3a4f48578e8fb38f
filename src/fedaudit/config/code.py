"""Whose code is imported, and from where: only what a configuration names, and only while the name is resolved.

The folder of a configuration that the user gave is searched first, as a script's folder is. The current folder is
searched last, and only for names of a configuration: a run that somebody sent may come with a `jinja2.py`, which must
not take the place of what is installed. What a *recorded* run names is not imported at all, unless
the user trusts it.
"""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from fedaudit.errors import OF_OTHERS, FedauditError


@dataclass(frozen=True)
class Received:
    """A recorded run that is looked at, and what the user named on top of it."""

    run: Path
    named: Collection[str]


_folders: list[str] = []  # of the configurations that were given
_received: list[Received] = []  # the innermost comes last


def folders() -> list[str]:
    """For other processes, which are given the same configuration."""
    return list(_folders)


def found_in(*more: str) -> None:
    """Names of a configuration are looked for in these folders, too."""
    _folders.extend(folder for folder in more if folder not in _folders)


@contextmanager
def received(run: Path, trusted: bool, named: Collection[str] = ()) -> Iterator[None]:
    """Inside the block, of the names in a recorded run nothing is imported unless it is trusted. What the user `named`
    on the command line is."""
    if trusted:
        yield
        return
    _received.append(Received(run, named))
    try:
        yield
    finally:
        _received.pop()


def imported(name: str, code: str) -> Any:
    """What "package.module:name" names. `code` is that of the error if there is no such thing."""
    if _received and name not in _received[-1].named:
        what = f"{_received[-1].run} names {name!r}: code outside fedaudit, and a recorded run may be anybody's"
        raise FedauditError("untrusted-code", what, "If you know that code, add --trust-code.")
    module, _, attribute = name.partition(":")
    try:
        with _importable():
            found = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        todo = "Check the name, and put the module beside the configuration or into the current folder, or install it."
        raise FedauditError(code, f"cannot import {name!r}: {error}", todo) from None
    except OF_OTHERS as error:  # what it says may quote data
        what = f"cannot import {name!r}: the module raised {type(error).__name__}"
        raise FedauditError(code, what, "Import it yourself to see why.") from error
    return found


@contextmanager
def _importable() -> Iterator[None]:
    before = list(sys.path)
    sys.path[:] = [*_folders, *before, str(Path.cwd())]
    try:
        yield
    finally:
        added = [entry for entry in sys.path if entry not in [*_folders, *before, str(Path.cwd())]]
        sys.path[:] = [*before, *added]  # what the module itself added stays
