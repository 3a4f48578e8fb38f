"""The command that shows runs in a browser."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedaudit.cli.terminal import console, show
from fedaudit.errors import FedauditError


def serve(
    folder: Annotated[Path, typer.Argument(help="A folder with runs and studies in it, or one of them.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any free port.")] = 8712,
    host: Annotated[str, typer.Option(help="Which address of this machine to listen on.")] = "127.0.0.1",
) -> None:
    """Runs in a browser, up to date while they train: `fedaudit serve runs`.

    Open the address that is printed. The list has every run, study and advice below the folder; one that is started
    later, by any process on the same disk, appears by itself. A run shows after each round what the leading attacks
    have found, who took part and what epsilon is spent; when it has ended, its verdict and its report. Several runs are
    compared in one chart. Nothing is written, and runs do not notice.

    Only this machine can reach it, and only with the token in the address, which is new at every start. To look from
    elsewhere: ssh -L 8712:127.0.0.1:8712 THERE. With --host other machines can reach it, and the token crosses the
    network unencrypted.

    Ctrl-C ends it. Needs the extra: pip install 'fedaudit[serve]'.
    """
    if not folder.is_dir():
        what = f"{folder} is a file" if folder.is_file() else f"there is no folder {folder}"
        raise FedauditError("no-folder", what, "Give the folder in which your runs are, such as `fedaudit serve runs`.")
    try:
        from fedaudit import server
    except ModuleNotFoundError as error:
        what = f"{error.name} is not installed"
        raise FedauditError("no-package", what, "Install it: pip install 'fedaudit[serve]'.") from None
    sock = server.listening(host, port)
    console.print(f"Runs below {escape(str(folder.resolve()))}. Ctrl-C ends it. Open:")
    server.serve(folder.resolve(), sock, show)
    console.print("Stopped. The runs go on by themselves.")
