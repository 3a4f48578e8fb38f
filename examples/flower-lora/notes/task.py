"""Model, data and training, as in any Flower app that fine-tunes with LoRA.

The notes are made up, so that the example ships no text of anybody's. The base is a Llama of 53,000 weights: the
example trains it itself, on public notes, and keeps it in Flower's folder. Nothing is downloaded.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import fedaudit

LENGTH, IGNORED = 80, -100
CHARACTERS = sorted(" ,.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\n")
PUBLIC = 2000  # notes that the base has learnt from
PRIVATE = 700  # of a party: three fifths are trained on, the others are set aside

FIRST = ("mar", "jo", "el", "pe", "an", "lu", "ro", "ka", "ti", "be", "sa", "vi")
LAST = ("son", "ler", "rick", "ton", "berg", "dine", "mond", "ville", "ster", "win")
COMPLAINTS = ("a cough", "chest pain", "a fever", "back pain", "dizziness", "a rash", "a sore throat", "headaches")
DRUGS = ("rest", "aspirin", "an inhaler", "penicillin", "iron", "physiotherapy", "a salve", "fluids")


def note(rng: np.random.Generator) -> str:
    """What somebody came with, and got."""

    def name() -> str:
        return "".join(rng.choice(FIRST, rng.integers(1, 3))).capitalize() + str(rng.choice(LAST))

    age, pulse = rng.integers(18, 95), rng.integers(50, 120)
    return f"{name()}, {age}, has {rng.choice(COMPLAINTS)}, pulse {pulse}, gets {rng.choice(DRUGS)}.\n"


def tokens(notes: list[str]):
    """A record is a note, filled up; its label at every position the character that follows there."""
    place = {character: number for number, character in enumerate(CHARACTERS)}
    x, y = np.zeros((len(notes), LENGTH), np.int64), np.full((len(notes), LENGTH), IGNORED)
    for row, text in enumerate(notes):
        coded = [place[character] for character in text[: LENGTH + 1]]
        x[row, : len(coded) - 1], y[row, : len(coded) - 1] = coded[:-1], coded[1:]
    return x, y


def load_data(partition: int, partitions: int):
    """What this party trains on, and the game that audits it: notes are set aside before any training."""
    rng = np.random.default_rng([1, partition])
    return fedaudit.set_aside(*tokens([note(rng) for _ in range(PRIVATE)]), party=f"party-{partition}", seed=0)


# ------------------------------------------------------------------ the model


def base() -> LlamaForCausalLM:
    folder = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr")) / "flower-lora-base"
    if not (folder / "config.json").is_file():
        made = _trained_base()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as beside:  # parties may come at the same time
            made.save_pretrained(Path(beside) / "base")
            if not folder.exists():
                os.rename(Path(beside) / "base", folder)
    return LlamaForCausalLM.from_pretrained(folder, local_files_only=True)


def _trained_base() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(CHARACTERS), hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=LENGTH, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model, rng = LlamaForCausalLM(config), np.random.default_rng(0)
    train(model, *tokens([note(rng) for _ in range(PUBLIC)]), epochs=3, lr=0.005)
    return model


def adapted() -> nn.Module:
    """The base, frozen, with an adapter that is trained and exchanged."""
    torch.manual_seed(0)
    return get_peft_model(base(), LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))


def ask(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """How the audit asks the model: tokens in, logits out."""
    return model(input_ids=x, use_cache=False).logits


def train(model: nn.Module, x: np.ndarray, y: np.ndarray, epochs: int, lr: float) -> float:
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    loss = torch.zeros(())
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(inputs)), 16):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ask(model, inputs[batch]).flatten(0, 1), labels[batch].flatten())
            loss.backward()
            optimizer.step()
    return float(loss.detach())
