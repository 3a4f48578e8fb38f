"""Architectures as people have them: opened, and audited on forty records.

Random weights, built offline with small configurations. Of each: what it costs (the dearest attack of those that run
unless told, and what opening takes, in local epochs), the peak of memory above what was there before, as a share of
the training's, and the share of the weights that no gradient attack looks at; or why it is refused, in one sentence.

    python -m tests.learn.architectures [NAME ...]

Models of timm are built where timm is installed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedaudit
from fedaudit.errors import FedauditError

RECORDS, CLASSES, EPOCHS = 40, 4, 3
SIDE, LENGTH, TOKENS = 64, 24, 96
Made = tuple[nn.Module, Callable[..., Tensor] | None]


def logits(model: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = model(x).logits
    return out


def hugging(kind: str, head: str, **options: Any) -> Callable[[], Made]:
    """Of transformers, by the names of its configuration and of its head."""

    def build() -> Made:
        import transformers

        config = getattr(transformers, f"{kind}Config")(num_labels=CLASSES, **options)
        return getattr(transformers, f"{kind}For{head}")(config), logits

    return build


def of_timm(name: str, **options: Any) -> Callable[[], Made]:
    def build() -> Made:
        timm = import_module("timm")

        return timm.create_model(name, pretrained=False, num_classes=CLASSES, **options), None

    return build


VISION, TEXT = "ImageClassification", "SequenceClassification"
WIDE: dict[str, Any] = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
SEEN: dict[str, Any] = {**WIDE, "image_size": SIDE, "patch_size": 8}
READ: dict[str, Any] = {**WIDE, "vocab_size": TOKENS, "pad_token_id": 0}
CAUSAL: dict[str, Any] = {**READ, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}

PICTURES: dict[str, Callable[[], Made]] = {
    "ViT": hugging("ViT", VISION, **SEEN),
    "DeiT": hugging("DeiT", VISION, **SEEN),
    "BEiT": hugging("Beit", VISION, **SEEN),
    "ViT-MSN": hugging("ViTMSN", VISION, **SEEN),
    "DINOv2": hugging("Dinov2", VISION, **SEEN),
    "Swin": hugging("Swin", VISION, image_size=SIDE, embed_dim=24, depths=[1, 1], num_heads=[2, 4], window_size=4),
    "Swin v2": hugging("Swinv2", VISION, image_size=SIDE, embed_dim=24, depths=[1, 1], num_heads=[2, 4], window_size=4),
    "ConvNeXT": hugging("ConvNext", VISION, hidden_sizes=[24, 48], depths=[1, 1], num_stages=2),
    "ConvNeXT v2": hugging("ConvNextV2", VISION, hidden_sizes=[24, 48], depths=[1, 1], num_stages=2),
    "ResNet": hugging("ResNet", VISION, embedding_size=24, hidden_sizes=[48, 96], depths=[1, 1]),
    "RegNet": hugging("RegNet", VISION, embedding_size=24, hidden_sizes=[48, 96], depths=[1, 1], groups_width=24),
    "BiT": hugging("Bit", VISION, embedding_size=32, hidden_sizes=[128, 256], depths=[1, 1]),
    "MobileNet v1": hugging("MobileNetV1", VISION, image_size=SIDE, depth_multiplier=0.25),
    "MobileNet v2": hugging("MobileNetV2", VISION, image_size=SIDE, depth_multiplier=0.35),
    "MobileViT": hugging(
        "MobileViT", VISION, image_size=SIDE, hidden_sizes=[24, 36, 48], neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 96]
    ),
    "SegFormer": hugging("Segformer", VISION, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
    "PVT": hugging("Pvt", VISION, image_size=SIDE, hidden_sizes=[16, 32, 80, 64], depths=[1, 1, 1, 1]),
    "PoolFormer": hugging("PoolFormer", VISION, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
    "LeViT": hugging(
        "Levit",
        VISION,
        image_size=SIDE,
        hidden_sizes=[32, 48, 64],
        num_attention_heads=[2, 3, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
    ),
    "EfficientNet": hugging(
        "EfficientNet", VISION, image_size=SIDE, width_coefficient=0.3, depth_coefficient=0.3, hidden_dim=384
    ),
    "CvT": hugging("Cvt", VISION, embed_dim=[16, 32, 48], num_heads=[1, 2, 3], depth=[1, 2, 3]),
}
TEXTS: dict[str, Callable[[], Made]] = {
    "BERT": hugging("Bert", TEXT, **READ),
    "DistilBERT": hugging("DistilBert", TEXT, vocab_size=TOKENS, dim=96, hidden_dim=192, n_layers=3, n_heads=4),
    "RoBERTa": hugging("Roberta", TEXT, **READ),
    "ALBERT": hugging("Albert", TEXT, **READ, embedding_size=48),
    "ELECTRA": hugging("Electra", TEXT, **READ, embedding_size=48),
    "DeBERTa v2": hugging("DebertaV2", TEXT, **READ),
    "MPNet": hugging("MPNet", TEXT, **READ),
    "XLNet": hugging("XLNet", TEXT, vocab_size=TOKENS, d_model=96, n_layer=3, n_head=4, d_inner=192),
    "FNet": hugging("FNet", TEXT, **READ),
    "T5": hugging(
        "T5",
        TEXT,
        vocab_size=TOKENS,
        d_model=96,
        d_kv=24,
        d_ff=192,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        decoder_start_token_id=0,
        eos_token_id=2,
    ),
    "GPT-2": hugging(
        "GPT2", TEXT, vocab_size=TOKENS, n_embd=96, n_layer=3, n_head=4, pad_token_id=0, bos_token_id=1, eos_token_id=2
    ),
    "GPT-NeoX": hugging("GPTNeoX", TEXT, **READ),
    "OPT": hugging(
        "OPT",
        TEXT,
        vocab_size=TOKENS,
        hidden_size=96,
        ffn_dim=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        word_embed_proj_dim=96,
        pad_token_id=0,
    ),
    "BLOOM": hugging("Bloom", TEXT, vocab_size=TOKENS, hidden_size=96, n_layer=3, n_head=4, pad_token_id=0),
    "Llama": hugging("Llama", TEXT, **CAUSAL),
    "Mistral": hugging("Mistral", TEXT, **CAUSAL),
    "Qwen2": hugging("Qwen2", TEXT, **CAUSAL),
    "Gemma": hugging("Gemma", TEXT, **CAUSAL, head_dim=24),
    "Phi": hugging("Phi", TEXT, **CAUSAL),
}
TIMM: dict[str, Callable[[], Made]] = {
    name: of_timm(name, **options)
    for name, options in {
        "vit_tiny_patch16_224": {"img_size": 128},
        "vit_small_patch16_224": {"img_size": SIDE},
        "deit3_small_patch16_224": {"img_size": SIDE},
        "resnet18": {},
        "resnet50": {},
        "convnext_atto": {},
        "mobilenetv3_small_050": {},
        "efficientnet_b0": {},
        "regnetx_002": {},
        "densenet121": {},
        "mixer_s32_224": {"img_size": SIDE},
        "resmlp_12_224": {"img_size": SIDE},
        "swin_tiny_patch4_window7_224": {"img_size": SIDE, "window_size": 4},
        "nf_resnet26": {},
        "resnetv2_50": {},
        "vgg11": {},
        "ghostnet_050": {},
        "edgenext_xx_small": {},
        "poolformer_s12": {},
        "cait_xxs24_224": {"img_size": SIDE},
    }.items()
}


ALL = {**PICTURES, **TEXTS, **({f"timm {name}": build for name, build in TIMM.items()} if find_spec("timm") else {})}


def inputs(name: str, records: int = RECORDS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(records) % CLASSES
    if name in TEXTS:
        x = rng.integers(3, TOKENS, (records, LENGTH))
        x[:, -1] = 2  # where a text ends
        return x, y
    side = 128 if "vit_tiny" in name else SIDE
    return rng.normal(size=(records, 3, side, side)).astype(np.float32), y


def peak() -> Callable[[], float]:
    """The most memory in MB since now, above what there is now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")

    def status(line: str) -> float:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(float(each.split()[1]) / 1024 for each in lines if each.startswith(line))

    before = status("VmRSS")
    return lambda: status("VmHWM") - before


def look_at(name: str) -> dict[str, Any]:
    """One architecture, in this process."""
    torch.manual_seed(0)
    module, forward = ALL[name]()
    row = {"name": name, "weights": sum(p.numel() for p in module.parameters())}
    return row | rounds(module, forward, *inputs(name))


def rounds(module: nn.Module, forward: Callable[..., Tensor] | None, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """A round of one local epoch, and its audit."""
    members, game = fedaudit.set_aside(x, y)
    start = {key: value.clone() for key, value in module.state_dict().items()}
    mine, labels = torch.from_numpy(members.x), torch.from_numpy(np.asarray(members.y))

    def train() -> float:
        optimizer, began = torch.optim.Adam(module.parameters(), lr=1e-3), time.perf_counter()
        for some in torch.split(torch.arange(len(mine)), 16):
            optimizer.zero_grad()
            out = forward(module, mine[some]) if forward else module(mine[some])
            torch.autograd.backward(F.cross_entropy(out, labels[some]))
            optimizer.step()
        return time.perf_counter() - began

    most = peak()
    row: dict[str, Any] = {"epoch": [train() for _ in range(EPOCHS)][-1]}
    row["training MB"], most, began = most(), peak(), time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            recording = fedaudit.record(
                module, game, out=folder, rounds=2, forward=forward, vantages=["server"], max_cost=1.0
            )
            row["opening"] = time.perf_counter() - began
            with recording as audit:
                audit.observe(0, start)
                for number in (1, 2):
                    state = {key: value.clone() for key, value in module.state_dict().items()}
                    audit.clock = time.perf_counter() - row["epoch"]
                    began = time.perf_counter()
                    audit.observe(number, state, updates={"party": state})
                    row[f"round {number}"] = (time.perf_counter() - began) / row["epoch"]
                    train()
            document = audit.document
    except FedauditError as error:
        return row | {"refused": str(error)}
    row["audit MB"] = most()
    told = {told.code: told.data for told in document.told}
    left = told.get("attacks-dear", {}).get("epochs", {})
    gradients = sorted({result.attack for result in document.results} | left.keys())
    row["unseen"] = told.get("layers-unseen", {}).get("share", 0.0)
    row["layers"] = told.get("layers-unseen", {}).get("layers", [])
    row["unfit"] = {tuple(data["attacks"]): data["why"] for code, data in told.items() if code == "attacks-unfit"}
    row["unfit"] = {", ".join(names): why for names, why in row["unfit"].items()}
    row["ran"], row["dear"] = gradients, left
    return row | {"failed": {one.attack: one.reason for one in document.failed}}


def warm() -> None:
    """What is loaded once is nobody's."""
    x, y = inputs(next(iter(PICTURES)))
    rounds(nn.Sequential(nn.Flatten(), nn.Linear(x[0].size, CLASSES)), None, x, y)


def apart(name: str) -> dict[str, Any]:
    """The same in a process of its own, which may end in any way."""
    here, there = Pipe(duplex=False)

    def work() -> None:
        there.send(look_at(name))

    process = get_context("fork").Process(target=work)
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv()
    except EOFError:
        found = {"name": name, "died": True}
    process.join()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm()
    for one in sys.argv[1:] or ALL:
        print(json.dumps(apart(one), default=str), flush=True)
