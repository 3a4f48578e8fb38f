"""Makes the table of docs/adapters.md: what fine-tuning together gives away, on lines of Shakespeare's plays.

    python docs/make_adapters.py run --data PATH/TO/shakespeare_roles.json.gz --out FOLDER [--seeds 3] [CELLS]
    python docs/make_adapters.py table --out FOLDER
    python docs/make_adapters.py small --data PATH/TO/shakespeare_roles.json.gz --out FOLDER

A record is the beginning of a speech: 33 tokens (BPE, 495 of them, learnt on the public plays). Half of the plays are
public: the base has learnt from them. Of the others 4,400 are drawn: four parties train on 250 lines each, 400 are
reported on, and 3,000 set thresholds. Roles are the subjects; a line is a document and is never on both sides. Global
models are looked at with the first seed alone, because that takes as long as all the rest. In the cells of people, a
role is a member or not, and the adversary has the lines that were trained on, or as many others of the same roles.
What is there is not made again: the command can be stopped and started. A few minutes a cell on one quiet core.
"""

import argparse
import gzip
import json
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedaudit.config.schema import parse
from fedaudit.data import load
from fedaudit.results.document import load as results_of
from fedaudit.session.run import run
from fedaudit.stats import Block, auc, tpr_at_fpr

TOKENS, LENGTH, PARTIES, LINES, MEMBERS, REPORTED = 495, 32, 4, 4400, 1000, 400
WIDTH, LAYERS = 96, 2
ATTACKS: list[Any] = [
    "loss", "min-k", "zlib-ratio", "base-gain", "fta-loss", "round-gain", "gradient-cosine", "projres",
    "matched-filter", {"name": "matched-filter", "layer": "all"}, "unmix",
]  # fmt: skip
LORA = {f"lora-{r}": {"adapter": {"r": r, "alpha": 2 * r, "targets": ["query_key_value"]}} for r in (4, 8, 16)}
OF_PEOPLE = ["subject-loss", "subject-fta", "subject-cosine", "subject-matched", "subject-unmix"]
FRESH = {"people": 0.0, "people-fresh": 0.5}  # of a role's lines, the share that only the adversary has
# model, learning rate, rounds
CELLS: dict[str, tuple[dict[str, Any], float, int]] = {
    **{name: ({"name": "causal-lm", **options}, 1e-3, 3) for name, options in LORA.items()},
    "whole": ({"name": "causal-lm"}, 1e-4, 2),
    "scratch": ({"name": "gpt", "width": WIDTH, "layers": LAYERS}, 1e-3, 3),
    "lstm": ({"name": "lstm", "embedding": 32, "units": 128, "layers": 1}, 3e-3, 3),
    **{name: ({"name": "causal-lm", **LORA["lora-8"]}, 1e-3, 3) for name in FRESH},
}


def prepare(data: Path, out: Path) -> None:
    """Tokenizer, private lines and base, in the folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    out.mkdir(parents=True, exist_ok=True)
    with gzip.open(data) as file:
        plays: dict[str, list[str]] = json.load(file)
    names = sorted({role.partition("|")[0] for role in plays})
    public = {name for place, name in enumerate(names) if place % 2}
    speeches = [(role, speech) for role, own in sorted(plays.items()) for speech in own]
    known = [speech for role, speech in speeches if role.partition("|")[0] in public]
    if not (out / "tokenizer.json").is_file():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.train_from_iterator(known, trainers.BpeTrainer(vocab_size=TOKENS, initial_alphabet=alphabet))
        tokenizer.save(str(out / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    lines = [
        {"text": speech, "role": role}
        for role, speech in speeches
        if role.partition("|")[0] not in public and len(tokenizer.encode(speech).ids) > LENGTH
    ]
    drawn = sorted(np.random.default_rng(0).permutation(len(lines))[:LINES].tolist())
    (out / "lines.jsonl").write_text("\n".join(json.dumps(lines[place]) for place in drawn), encoding="utf-8")
    if not (out / "base/config.json").is_file():
        (out / "public.jsonl").write_text("\n".join(json.dumps({"text": speech}) for speech in known), encoding="utf-8")
        train_base(out)


def data_of(path: Path, out: Path) -> dict[str, Any]:
    return {"name": "text", "path": str(path), "tokenizer": str(out / "tokenizer.json"), "length": LENGTH, "windows": 1}


def train_base(out: Path) -> None:
    from fedaudit.learn.tasks import Training, build_task

    public = load(parse({"data": data_of(out / "public.jsonl", out)}).data)  # the first window of every speech
    task = build_task("gpt", (LENGTH,), public.classes, {"width": WIDTH, "layers": LAYERS})
    how = Training("adam", 2e-3, 3, 64)
    state = task.train(task.initial(0), public.records, how, np.random.default_rng(0)).state
    model: Any = task.fresh(state)
    type(model).__mro__[1].save_pretrained(model, out / "base")


def make(cell: str, seed: int, out: Path) -> None:
    model, lr, rounds = CELLS[cell]
    folder = out / f"{cell}-{seed}"
    if (folder / "results.json").is_file():
        return
    model = {**model, "path": str(out / "base")} if model["name"] == "causal-lm" else model
    game = {"members": MEMBERS / LINES, "nonmembers": REPORTED / LINES, "split_subjects": True}
    attacks = [one for one in ATTACKS if one != "base-gain" or "path" in model]
    if cell in FRESH:
        game = {"partition": "subjects", "member_subjects": 0.3, "nonmember_subjects": 0.3, "fresh": FRESH[cell]}
        attacks = OF_PEOPLE
    config = parse({
        "data": {**data_of(out / "lines.jsonl", out), "author": "role"},
        "model": model,
        "federation": {
            "parties": PARTIES, "rounds": rounds, "local_epochs": 1, "batch_size": 16, "lr": lr, "seed": seed, **game
        },
        "audit": {"attacks": attacks, "vantages": ["server"] if seed else ["client", "server"],
                  "fpr": [0.05 if cell in FRESH else 0.01]},
    })  # fmt: skip
    run(config, folder, lambda *_: nullcontext(lambda: None), tell=lambda line: None)


# ------------------------------------------------------------------ small local batches

FEW_LINES, STEPS, OUTSIDERS, RATE = (1, 2, 4, 8, 16, 64), (1, 4, 16), 200, 0.02
LOOKED_AT = {  # what is looked at of a model that is fine-tuned whole
    "projres, 96 inputs": "lm_head",
    "projres, 384 inputs": "gpt_neox.layers.1.mlp.dense_4h_to_h",
    "token-presence": "gpt_neox.embed_in",
}


def small(out: Path, seed: int = 0) -> None:
    """A party takes so many steps of SGD on all of so few lines, again and again with other lines."""
    from fedaudit.adversary.signals import matched, text
    from fedaudit.learn.tasks import Training, build_task, tensor

    lines = load(parse({"data": data_of(out / "lines.jsonl", out)}).data)
    task = build_task("causal-lm", (LENGTH,), lines.classes, {"path": out / "base"})
    base, rng = task.initial(0), np.random.default_rng(seed)
    for few, steps in ((few, steps) for few in FEW_LINES for steps in STEPS):
        found: dict[str, list[Block]] = {name: [] for name in LOOKED_AT}
        for _ in range(max(2, 32 // few)):
            drawn = lines.records.take(rng.permutation(len(lines.records))[: few + OUTSIDERS])
            sent = task.train(base, drawn.take(np.arange(few)), Training("sgd", RATE, steps, few), rng).state
            view: Any = SimpleNamespace(task=task, received=base, weights=sent)
            for name, layer in LOOKED_AT.items():
                if name == text.PRESENCE:
                    (scores,) = text.measure_presence([name], view, drawn, np.zeros(0, bool), rng).values()
                else:
                    update = tensor(base[f"{layer}.weight"] - sent[f"{layer}.weight"])
                    scores = matched.projection(task.fresh(base), tensor(drawn.x), update, layer).numpy()
                middle = few + OUTSIDERS // 2
                found[name].append(Block(scores[:few], scores[few:middle], scores[middle:]))
        for name, blocks in found.items():
            area, rate = auc(blocks), tpr_at_fpr(blocks, 0.01)
            rates = f"{100 * (rate.value or 0.0):.0f} | {100 * (rate.realised_fpr or 0.0):.1f}"
            print(
                f"| {name} | {few} | {steps} | {area.value:.3f} ({area.low:.3f}-{area.high:.3f}) | {rates} |",
                flush=True,
            )


# ------------------------------------------------------------------ what was found


def table(out: Path) -> None:
    for folder in sorted(out.glob("*-[0-9]")):
        if not (folder / "results.json").is_file():
            continue
        document = results_of(folder)
        for one in document.results:
            if one.party is not None or "auc" not in one.estimates:
                continue
            auc, tpr = one.estimates["auc"], one.estimates.get("tpr@0.01")
            found = f"AUC {auc.value:.3f} ({auc.low:.3f}-{auc.high:.3f})" if auc.value is not None else "none"
            if tpr is not None and tpr.value is not None:
                found += f" | {100 * tpr.value:.1f} % ({100 * tpr.low:.1f}-{100 * tpr.high:.1f})"
                found += f" | realised {100 * (tpr.realised_fpr or 0):.2f} % | {tpr.n_pos}/{tpr.n_neg}/{tpr.n_cal}"
            print(f"| {folder.name} | {one.attack} | {one.model} | {found} | {one.cost.epochs:.2f} E |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "small"])
    parser.add_argument("cells", nargs="*", help=f"of {', '.join(CELLS)} (default: all)")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    if asked.what == "table":
        table(asked.out)
        return
    if asked.data is None:
        parser.error(f"{asked.what} needs --data")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    prepare(asked.data, asked.out)
    if asked.what == "small":
        small(asked.out)
        return
    for seed in range(asked.seeds):
        for cell in asked.cells or CELLS:
            make(cell, seed, asked.out)
            print(cell, seed, flush=True)


if __name__ == "__main__":
    main()
