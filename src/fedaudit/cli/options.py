"""Options that several groups of commands have."""

from typing import Annotated

import typer

Set = Annotated[
    list[str] | None, typer.Option("--set", help="Override one key: --set federation.rounds=10. Repeatable.")
]
