"""Language models of transformers, whole and with LoRA: built offline, trained, and every per-record gradient known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.adversary.signals import ghost
from fedaudit.adversary.signals.outputs import from_outputs
from fedaudit.config.schema import parse
from fedaudit.data.records import dataset
from fedaudit.errors import FedauditError
from fedaudit.learn.models.language import AdapterOptions
from fedaudit.learn.tasks import TorchTask, Training, build_task, loss_of_batch, loss_of_records, tensor
from fedaudit.types import IGNORED, Records

TOKENS, LENGTH = 11, 6
SMALL = {"width": 8, "layers": 1, "heads": 2}
LORA = {"adapter": AdapterOptions(r=2)}


def some_text(n: int = 24) -> Records:
    """Windows of unequal length."""
    rng = np.random.default_rng(0)
    windows = rng.integers(0, TOKENS, (n, LENGTH + 1))
    y = windows[:, 1:].copy()
    for row, length in enumerate(rng.integers(1, LENGTH + 1, n)):
        y[row, length:] = IGNORED
    y[0, :2] = windows[0, 1:3]
    return dataset("text", windows[:, :-1], y, tokens=True).records


def saved(folder: Path, kind: str = "GPT2") -> Path:
    """A base as save_pretrained leaves it; GPT-2 keeps its weights the other way round, and ties its embeddings."""
    import transformers

    if kind == "GPT2":
        config = transformers.GPT2Config(vocab_size=TOKENS + 2, n_positions=8, n_embd=8, n_layer=1, n_head=2,
                                         bos_token_id=None, eos_token_id=None)  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(vocab_size=TOKENS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                          intermediate_size=12, bos_token_id=None, eos_token_id=None)  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return folder


def task_of(name: str, options: dict[str, Any]) -> TorchTask:
    return build_task(name, (LENGTH,), TOKENS, options)


@pytest.mark.parametrize(("name", "options", "slow"), [
    ("gpt", SMALL, set()), ("gpt", SMALL | LORA, set()), ("llama", SMALL, set()), ("llama", SMALL | LORA, set()),
    ("GPT2", {}, {"transformer.wte"}), ("GPT2", {"adapter": AdapterOptions(r=2, alpha=4, targets=("c_attn",))}, set()),
    ("lstm", {"units": 4, "embedding": 3}, set()),
])  # fmt: skip
def test_models_train_on_text_and_know_every_gradient(
    name: str, options: dict[str, Any], slow: set[str], tmp_path: Path
) -> None:
    if name == "GPT2":
        name, options = "causal-lm", {**options, "path": saved(tmp_path)}
    task, rows = task_of(name, options), some_text()
    state = task.initial(0)
    task.check(state, rows)
    task.check_trains(state, rows)
    assert bool(task.base) == ("adapter" in options)
    trained = task.train(state, rows, Training("adam", 1e-2, 4, 8), np.random.default_rng(0)).state

    def mean_loss(of: Any) -> float:
        return float(from_outputs(task.outputs(of, rows.x), rows.y, ["loss"])["loss"].mean())

    assert mean_loss(trained) < mean_loss(state)
    # `verify` raises where a fast gradient differs from one backward pass for each record, in float64, by 1e-8.
    assert set(ghost.verify(task.fresh(trained), task.losses, tensor(rows.x), tensor(rows.y)).slow) == slow
    if "adapter" in options:  # the obvious way, by the formula: G_P = s Q' g h', G_Q = s g (P h)'
        assert all("lora_" in each for each in state)


def test_the_factors_of_lora_follow_its_formula() -> None:
    """W0 + s Q P: two linear layers, with (Q' g, h) and (g, P h)."""
    task, rows = task_of("gpt", SMALL | LORA), some_text(4)
    state = task.train(task.initial(0), rows, Training("sgd", 0.5, 2, 4), np.random.default_rng(0)).state
    module = task.fresh(state).double().eval()
    name = next(each.removesuffix(".lora_A.default.weight") for each in state if "lora_A" in each)
    layer: Any = module.get_submodule(name)
    seen: dict[str, torch.Tensor] = {}

    def keep(_: Any, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        out.retain_grad()
        seen.update(h=inputs[0].detach(), z=out)

    layer.register_forward_hook(keep)
    for i in range(len(rows)):
        module.zero_grad()
        torch.autograd.backward(task.losses(module(tensor(rows.x[i : i + 1])), tensor(rows.y[i : i + 1])).sum())
        h, g = seen["h"][0], seen["z"].grad[0]  # type: ignore[index]
        p, q = layer.lora_A.default.weight, layer.lora_B.default.weight
        s = layer.scaling["default"]
        assert torch.allclose(p.grad, s * (g @ q).mT @ h, rtol=1e-6, atol=1e-12)
        assert torch.allclose(q.grad, s * g.mT @ (h @ p.mT), rtol=1e-6, atol=1e-12)


def test_a_masked_loss_is_the_mean_over_its_tokens() -> None:
    """In float64, token by token; positions that do not count change nothing."""
    rng, rows = np.random.default_rng(1), some_text()
    z = rng.normal(size=(len(rows), LENGTH, TOKENS))
    found = from_outputs(z, rows.y, ["loss", "confidence", "logit", "modified-entropy", "gradient-norm"],
                         rng.normal(size=(len(rows), LENGTH, 3)))  # fmt: skip
    for i in range(len(rows)):
        counted = [t for t in range(LENGTH) if rows.y[i, t] != IGNORED]
        each = [float(np.log(np.exp(z[i, t]).sum()) - z[i, t, rows.y[i, t]]) for t in counted]
        assert found["loss"][i] / LENGTH == pytest.approx(np.mean(each), rel=1e-12)
        assert found["confidence"][i] == pytest.approx(np.exp(-np.mean(each)), rel=1e-12)
    other = np.where((rows.y == IGNORED)[..., None], 1e3 * rng.normal(size=z.shape), z)
    again = from_outputs(other, rows.y, list(found)[:4])
    assert all(np.array_equal(again[name], found[name]) for name in again)
    # In training the positions are summed, as ever, so that a record's gradient is the sum over its tokens.
    summed = loss_of_records(tensor(z), tensor(rows.y), TOKENS)
    count = (rows.y != IGNORED).sum(axis=1)
    assert summed.numpy() * LENGTH / count == pytest.approx(found["loss"], rel=1e-12)
    assert float(loss_of_batch(tensor(z), tensor(rows.y), TOKENS)) == pytest.approx(float(summed.mean()), rel=1e-12)


def test_a_base_from_a_folder_serves_every_seed(tmp_path: Path) -> None:
    options = {"path": saved(tmp_path, "Llama"), **LORA}
    one, two = task_of("causal-lm", options), task_of("causal-lm", options)
    assert all(np.array_equal(one.base[name], two.base[name]) for name in one.base)
    a, b = one.initial(0), one.initial(1)
    assert any(not np.array_equal(a[name], b[name]) for name in a)
    assert all(not value.any() for name, value in a.items() if "lora_B" in name)


def test_wrong_use_is_told(tmp_path: Path) -> None:
    with pytest.raises(FedauditError, match=r"gpt needs sequences of tokens.*records of shape \(3, 8\)"):
        build_task("gpt", (3, 8), 5, {})
    with pytest.raises(FedauditError, match=r"there is no config.json"):
        task_of("causal-lm", {"path": tmp_path})
    folder = saved(tmp_path, "Llama")
    with pytest.raises(FedauditError, match="knows 11 tokens and 2048 positions, the records have 12 and 6"):
        build_task("causal-lm", (LENGTH,), TOKENS + 1, {"path": folder})
    with pytest.raises(FedauditError, match="no layers named nowhere"):
        task_of("gpt", SMALL | {"adapter": AdapterOptions(targets=("nowhere",))})
    (folder / "config.json").write_text("{")
    with pytest.raises(FedauditError, match="cannot be read as a causal language model"):
        task_of("causal-lm", {"path": folder})


def test_an_adapter_in_a_configuration() -> None:
    asked = parse({"model": {"name": "gpt", "width": 16, "adapter": {"r": 4, "targets": ["query_key_value"]}}})
    assert asked.model.arguments()["adapter"] == AdapterOptions(r=4, targets=("query_key_value",))
    assert asked.as_dict()["model"]["adapter"] == {"r": 4, "targets": ["query_key_value"]}
    with pytest.raises(FedauditError, match=r"model.adapter.rank"):
        parse({"model": {"name": "gpt", "adapter": {"rank": 4}}})
