"""Makes the figures of docs/one-update.md about whole records and words.

    python docs/make_inputs.py runs --data FOLDER --out inputs.jsonl
    python docs/make_inputs.py words --out inputs.jsonl
    python docs/make_inputs.py table --out inputs.jsonl

FOLDER holds adult.npz, mnist.npz and hapt_windows.npz (docs/figures.md); what is not there is left out. One line a run:
a federation of four parties with 300 records each (100 for breast cancer) makes 0 or 10 rounds of one epoch of SGD at
0.1 in batches of 64, MLP 512-256-128 unless said. A fifth party with b records then trains from the global model, and
its update is read. 500 further records are the outsiders. `words`: a transformer with one block, 5,000 words, 12
positions, width 128, and one step of SGD on sentences of random words.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.data.records import dataset
from fedaudit.federation.simulate import Trainer, federate
from fedaudit.learn.tasks import TorchTask, Training, build_task
from fedaudit.questions.update import UpdateSection
from fedaudit.questions.update.inputs import PART, records_beside, words_beside
from fedaudit.questions.update.parts import CannotTell, Known, OneUpdate
from fedaudit.stats import clopper_pearson
from fedaudit.types import Dataset, Plan, Records, State

PARTIES, OUTSIDERS = 4, 500
MODELS: dict[tuple[Any, ...], State] = {}  # by data, rounds, hidden layers and seed: cells share them


def of_data(name: str, folder: Path) -> Dataset | None:
    if name in ("baskets", "digits", "breast-cancer"):
        found = load(parse({"data": {"name": name}}).data)
        x = found.records.x
        if name != "baskets":
            x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-6) if name == "breast-cancer" else x / x.max()
        return dataset(name, x.astype(np.float32), found.records.y)
    path = folder / {"adult": "adult.npz", "mnist": "mnist.npz", "hapt": "hapt_windows.npz"}[name]
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        if name == "mnist":
            return dataset(name, (file["x_train"][:6000, None] / 255).astype(np.float32), file["y_train"][:6000])
        if name == "hapt":
            x = file["x"].reshape(len(file["x"]), -1).astype(np.float32)
            return dataset(name, x, np.unique(file["activity"], return_inverse=True)[1])
        numeric = file["numeric"].astype(np.float64)
        codes = [np.eye(int(c.max()) + 2)[c] for c in file["categorical"].T]
        x = np.column_stack([(numeric - numeric.mean(axis=0)) / numeric.std(axis=0), *codes])
        return dataset(name, x.astype(np.float32), file["y"])


def one_run(data: Dataset, cell: dict[str, Any], seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, 7])
    records, b, each = data.records, cell["b"], 100 if len(data.records) < 1500 else 300
    order = rng.permutation(len(records))
    shape, hidden = data.input_shape, cell.get("hidden", [512, 256, 128])
    task = build_task("mlp", shape, data.classes, {"hidden": hidden})
    parts = [records.take(np.sort(order[k * each : (k + 1) * each])) for k in range(PARTIES)]
    rest = order[PARTIES * each :]
    outsiders, mine = records.take(np.sort(rest[: min(OUTSIDERS, len(rest) // 2)])), records.take(np.sort(rest[-b:]))
    if cell.get("near"):  # two records that differ in one column only
        x = mine.x.copy()
        x[1] = x[0]
        flat = x[1].reshape(-1)
        flat[int(np.argmax(flat != 0))] = outsiders.x.reshape(len(outsiders), -1)[0].max() if flat.max() <= 0 else 0.0
        mine = Records(x, mine.y, mine.id)
    how = Training("sgd", 0.1)
    trainers = [Trainer(f"p{k}", part, how) for k, part in enumerate(parts)]
    key = (data.name, cell["round"], tuple(hidden), seed)
    if key not in MODELS:
        made = federate(task, trainers, [Plan(tuple(t.name for t in trainers))] * cell["round"], seed)
        MODELS[key] = [task.initial(seed), *(round.aggregate for round in made)][-1]
    model = MODELS[key]
    steps = {"optimizer": "sgd", "lr": 0.1, "epochs": 1, "batch_size": b} | cell.get("training", {})
    sent = task.train(model, mine, Training(**steps), rng).state
    update = OneUpdate(received=model, sent=sent, task=task, examples=b)
    known = Known(outsiders=outsiders, classes=data.classes, seed=seed)
    started = time.process_time()
    try:
        table = PART.look(update, known, UpdateSection())
        beside = records_beside(table, mine, outsiders)
        listed, true, blind = int(beside.listed.sum()), int(beside.true.sum()), int((beside.blind & beside.true).sum())
        right, way = int((beside.listed & beside.true).sum()), str(table["inputs-way"][0])
    except CannotTell as why:
        listed = right = blind = 0
        true, way = len(np.unique(mine.x.reshape(b, -1), axis=0)), why.code
    seconds = time.process_time() - started
    return {
        **cell, "seed": seed, "listed": listed, "right": right, "of": true, "blind": blind, "way": way,
        "seconds": round(seconds, 2),
    }  # fmt: skip


def cells() -> list[tuple[dict[str, Any], int]]:
    """Each cell, and how many seeds it has."""
    found: list[tuple[dict[str, Any], int]] = []
    found += [({"data": "baskets", "round": 0, "b": b}, 6) for b in (2, 4, 6, 8, 12, 16)]
    found += [({"data": "baskets", "round": 10, "b": b}, 6) for b in (2, 4, 6, 8)]
    for name in ("adult", "mnist", "digits", "hapt", "breast-cancer"):
        found += [({"data": name, "round": r, "b": b}, 3) for r in (0, 10) for b in (2, 4, 8)]
    several = {"epochs": 3, "batch_size": 4}
    found += [({"data": name, "round": 0, "b": 8, "training": several}, 4) for name in ("baskets", "digits", "mnist")]
    adam = {"optimizer": "adam", "lr": 1e-3}
    found += [({"data": name, "round": 0, "b": 4, "training": adam}, 4) for name in ("baskets", "digits", "adult")]
    more = {"optimizer": "adam", "lr": 1e-3, "epochs": 3, "batch_size": 2}
    found += [({"data": name, "round": 0, "b": 4, "training": more}, 4) for name in ("baskets", "adult")]
    found += [({"data": n, "round": 0, "b": 4, "hidden": [256]}, 4) for n in ("adult", "breast-cancer", "baskets")]
    found += [({"data": name, "round": 0, "b": 4, "near": True}, 4) for name in ("baskets", "hapt", "breast-cancer")]
    return found


def runs(folder: Path, out: Path, names: list[str]) -> None:
    known: dict[str, Dataset | None] = {}
    with out.open("a") as file:
        for cell, seeds in (one for one in cells() if not names or one[0]["data"] in names):
            if cell["data"] not in known:
                known[cell["data"]] = of_data(cell["data"], folder)
            data = known[cell["data"]]
            if data is None:
                continue
            for seed in range(seeds):
                file.write(json.dumps(one_run(data, cell, seed)) + "\n")
                file.flush()


# ------------------------------------------------------------------ words


class Block(nn.Module):
    """Words and positions are added up; one block of attention; the next word."""

    def __init__(self, words: int, positions: int, width: int):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=False)
        self.head = nn.Linear(width, words)
        self.positions = positions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.words(x) + self.places(torch.arange(x.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        found: torch.Tensor = self.head(self.block(hidden, src_mask=mask))
        return found


def of_words(sentences: int, seed: int, words: int = 5000, positions: int = 12, width: int = 128) -> dict[str, Any]:
    rng = np.random.default_rng([seed, 11])
    often = 1 / (np.arange(words) + 10.0)
    x: NDArray[Any] = rng.choice(words, (sentences + 300, positions), p=often / often.sum())
    rows = Records(x, x, np.array([f"s{k:04d}" for k in range(len(x))]))
    order = rng.permutation(len(rows))
    mine, outsiders = rows.take(np.sort(order[:sentences])), rows.take(np.sort(order[sentences:]))
    task = TorchTask(lambda: Block(words, positions, width), words)
    model = task.initial(seed)
    how = Training("sgd", 0.1, 1, sentences)
    sent = task.train(model, mine, how, rng).state
    update = OneUpdate(received=model, sent=sent, task=task, examples=sentences)
    try:
        beside = words_beside(
            PART.look(update, Known(outsiders=outsiders, classes=words), UpdateSection()), mine, outsiders
        )
    except CannotTell as why:
        return {"words": sentences, "seed": seed, "why": why.code, "of": len(np.unique(mine.x))}
    return {
        "words": sentences, "seed": seed, "listed": int(beside.listed.sum()), "of": int(beside.true.sum()),
        "right": int((beside.listed & beside.true).sum()), "blind": int((beside.blind & beside.true).sum()),
    }  # fmt: skip


# ------------------------------------------------------------------ the tables


def counted(hits: int, of: int) -> str:
    """A share with its 95 % interval (Clopper-Pearson)."""
    low, high = clopper_pearson(hits, of, 0.025, 0.025)
    return f"{hits} of {of} ({100 * low:.0f}–{100 * high:.0f} %)"


def table(out: Path) -> None:
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    of_records = [line for line in lines if "data" in line]
    print("| records, model | b | complete runs | records read off | of as many guesses right | false |")
    print("|---|---|---|---|---|---|")
    keys = dict.fromkeys(
        json.dumps({k: v for k, v in line.items() if k in CELL}, sort_keys=True) for line in of_records
    )
    for key in keys:
        cell = json.loads(key)
        mine = [o for o in of_records if {k: v for k, v in o.items() if k in CELL} == cell]
        complete = sum(one["right"] == one["of"] for one in mine)
        right, of, blind = (sum(one[k] for one in mine) for k in ("right", "of", "blind"))
        false = sum(one["listed"] - one["right"] for one in mine)
        more = ", ".join(f"{k} {v}" for k, v in cell.items() if k not in ("data", "round", "b"))
        at = f"{cell['data']}, {'fresh' if not cell['round'] else 'after 10 rounds'}{', ' + more if more else ''}"
        print(f"| {at} | {cell['b']} | {counted(complete, len(mine))} | {counted(right, of)} | {blind} | {false} |")
    false = [one for one in of_records if one["listed"] > one["right"]]
    print(f"\nRuns in which a record was accepted that is not there: {counted(len(false), len(of_records))}.\n")
    print("| sentences of 12 words | words read off | of as many guesses right | false words |\n|---|---|---|---|")
    for many in sorted({line["words"] for line in lines if "words" in line}):
        mine = [line for line in lines if line.get("words") == many]
        told = [line for line in mine if "listed" in line]
        right, of, blind = (sum(one[k] for one in told) for k in ("right", "of", "blind"))
        said = counted(right, of) if told else f"cannot tell ({mine[0]['why']})"
        false_words = sum(one["listed"] - one["right"] for one in told)
        print(f"| {many} ({len(told)} of {len(mine)} runs tell) | {said} | {blind} | {false_words} |")


CELL = ("data", "round", "b", "hidden", "training", "near")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["runs", "words", "table"])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("inputs.jsonl"))
    parser.add_argument("--only", nargs="*", default=[], help="these data sets")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.what == "table":
        table(asked.out)
    elif asked.what == "runs":
        runs(asked.data, asked.out, asked.only)
    else:
        with asked.out.open("a") as file:
            for many in (1, 2, 4, 8, 12):
                for seed in range(6):
                    file.write(json.dumps(of_words(many, seed)) + "\n")


if __name__ == "__main__":
    main()
