"""The examples of README and docs/commands.md run as printed, one after the other, in one folder."""

import json
import re
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from tests.pages import BLOCK, command

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
CODE = {language: text for language, text in BLOCK.findall(PAGE + COMMANDS_PAGE) if language}
COMMANDS = re.findall(r"^\| `(fedaudit .*?)` \|", COMMANDS_PAGE, re.MULTILINE)

# What a reader has and the page cannot print: data, scores, and checkpoints with the game that they were trained by.
READERS = """
import numpy as np, torch, fedaudit
from pathlib import Path
from safetensors.torch import save_file
from fedaudit.data.game_file import save_game
from fedaudit.learn.models.mlp import mlp

rng = np.random.default_rng(0)
x = rng.normal(size=(1600, 10)).astype(np.float32)
y = (x[:, 0] + rng.normal(size=1600) > 0).astype(int)
np.savez("my-data.npz", x=x, y=y)
with open("my-scores.csv", "w") as file:
    file.write("id,member,score\\n")
    file.writelines(f"r{i},{int(i < 300)},{rng.normal(i < 300)}\\n" for i in range(1200))
train, game = fedaudit.set_aside(x, y, party="north")
save_game(game, Path("game.npz"))
torch.manual_seed(0)
model = mlp((10,), 2)
optimizer = torch.optim.Adam(model.parameters())
for round in range(4):
    folder = Path(f"checkpoints/round-{round}")
    folder.mkdir(parents=True)
    for name in ("global", "north")[: 1 + (round > 0)]:  # a federation of one party: its model is the average
        save_file(model.state_dict(), folder / f"{name}.safetensors")
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.from_numpy(train.x)), torch.from_numpy(train.y)).backward()
    optimizer.step()
"""
LOOP = "import numpy as np, torch\nx, y = (np.load('my-data.npz')[k] for k in 'xy')\nmodel = torch.nn.Linear(10, 2)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("readme")
    with chdir(found):
        exec(READERS, {})
    (found / "my.toml").write_text(CODE["toml"])
    return found


@pytest.mark.evidence
def test_every_command_of_the_table_runs_as_printed(folder: Path) -> None:
    assert len(COMMANDS) == 17
    exits = {"gate": " # exits 0 or 1 or 3", "verify": " # exits 0 or 3"}
    for line in COMMANDS:
        command(line + exits.get(line.split()[1], ""), folder)
    for left in ("runs/my", "runs/short", "runs/short/seed-2", "runs/my/audit", "runs/private", "runs/imported"):
        assert (folder / left / "results.json").is_file(), left
    assert np.load(folder / "my-data.npz")["x"].shape[0] == 1600


def test_the_loop_of_ten_lines_runs_as_printed(folder: Path) -> None:
    with chdir(folder):
        exec(LOOP + CODE["python"], {})
    results = json.loads((folder / "runs/mine/results.json").read_text())
    assert results["run"]["rounds"] == 40
    # The ten lines hand over no updates, and the results say what that leaves out.
    assert all("No party's own model was observed" in line for line in results["degraded"])
    assert [party["name"] for party in results["run"]["parties"]] == ["hospital-3"]


@pytest.mark.evidence
def test_the_figures_at_the_top_are_those_that_the_demo_prints(tmp_path: Path) -> None:
    """To half a point: another processor rounds differently, and trains a slightly other model."""
    quote = " ".join(line.removeprefix("> ") for line in PAGE.splitlines() if line.startswith("> "))
    quoted = [float(number) for number in re.findall(r"pick out (\d+(?:\.\d)?) %", quote)]
    (line,) = re.findall(r"`(fedaudit demo --set .*?)`", PAGE)
    command(line, tmp_path)
    headlines = json.loads((tmp_path / "runs/demo/results.json").read_text())["headlines"]
    found = {h["vantage"]: 100 * h["estimates"]["tpr@0.01"]["value"] for h in headlines}
    assert quoted == pytest.approx([found["client"], found["server"]], abs=0.5)


def test_every_file_that_is_linked_is_there() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
