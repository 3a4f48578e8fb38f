"""Language models of the package `transformers`: small ones by configuration, or one from a local folder; with LoRA on
request (package `peft`). Nothing is downloaded.

The small GPT is a GPT-NeoX, because all of its layers are plain linear ones: every per-record gradient then has a fast
rule. Its input and output embeddings are two matrices, for the same reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from fedaudit.config.registry import MODELS, Options
from fedaudit.config.section import Count, Section
from fedaudit.errors import FedauditError

if TYPE_CHECKING:
    from torch import Tensor, nn

WIDTH, LAYERS, HEADS = 96, 2, 4
RANK = 8


class AdapterOptions(Section):
    """LoRA: what is trained and exchanged in place of the whole model."""

    r: Count = Field(RANK, description="its rank")
    alpha: Annotated[float, Field(gt=0)] | None = Field(None, description="its scale is alpha / r; not set: 2 r")
    targets: tuple[str, ...] | None = Field(
        None, description="the layers that get one, by the ends of their names; not set: PEFT's choice for the model"
    )


class AdaptableOptions(Options):
    adapter: AdapterOptions | None = Field(None, description="LoRA; not set: the whole model is trained and exchanged")


class SmallOptions(AdaptableOptions):
    width: Count | None = Field(None, description=f"numbers that stand for a token; not set: {WIDTH}")
    layers: Count | None = Field(None, description=f"transformer layers; not set: {LAYERS}")
    heads: Count | None = Field(None, description=f"attention heads of a layer; not set: {HEADS}")


class FolderOptions(AdaptableOptions):
    path: Path = Field(description="the folder that holds it (config.json, model.safetensors), relative to this file")


@MODELS.register(
    "gpt", f"for text: a small GPT (GPT-NeoX), {LAYERS} layers, width {WIDTH} unless set; adapter = LoRA", SmallOptions
)
def gpt(
    input_shape: tuple[int, ...],
    classes: int,
    width: int = WIDTH,
    layers: int = LAYERS,
    heads: int = HEADS,
    adapter: AdapterOptions | None = None,
) -> nn.Module:
    length = _length("gpt", input_shape, classes)
    config = _transformers().GPTNeoXConfig(
        vocab_size=classes, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, max_position_embeddings=length, bos_token_id=None, eos_token_id=None,
        tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    return _asked(_transformers().GPTNeoXForCausalLM(config), adapter, classes)


@MODELS.register(
    "llama", f"for text: a small Llama, {LAYERS} layers, width {WIDTH} unless set; adapter = LoRA", SmallOptions
)
def llama(
    input_shape: tuple[int, ...],
    classes: int,
    width: int = WIDTH,
    layers: int = LAYERS,
    heads: int = HEADS,
    adapter: AdapterOptions | None = None,
) -> nn.Module:
    length = _length("llama", input_shape, classes)
    config = _transformers().LlamaConfig(
        vocab_size=classes, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=8 * width // 3, max_position_embeddings=length, bos_token_id=None, eos_token_id=None,
        tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    return _asked(_transformers().LlamaForCausalLM(config), adapter, classes)


@MODELS.register(
    "causal-lm",
    "for text: any causal language model of transformers, from a local folder; adapter = LoRA",
    FolderOptions,
)
def causal_lm(
    input_shape: tuple[int, ...], classes: int, path: Path, adapter: AdapterOptions | None = None
) -> nn.Module:
    import torch

    length = _length("causal-lm", input_shape, classes)
    if not (path / "config.json").is_file():
        what = f"{path} holds no model of transformers: there is no config.json"
        raise FedauditError("model-folder", what, "Give the folder that save_pretrained(...) wrote.")
    try:
        made = _transformers().AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, use_safetensors=True, dtype=torch.float32, attn_implementation="eager"
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        what = f"{path} cannot be read as a causal language model ({type(error).__name__})"
        raise FedauditError("model-folder", what, "Save it anew with save_pretrained(...), as safetensors.") from error
    tokens, longest = made.config.vocab_size, getattr(made.config, "max_position_embeddings", length)
    if tokens < classes or longest < length:
        what = f"the model knows {tokens} tokens and {longest} positions, the records have {classes} and {length}"
        raise FedauditError("model-shape", what, "Set data.tokenizer to the model's own, or a smaller data.length.")
    return _asked(made, adapter, classes)


def _length(name: str, input_shape: tuple[int, ...], classes: int) -> int:
    if len(input_shape) != 1 or not classes:
        what = "values to predict" if not classes else f"records of shape {input_shape}"
        raise FedauditError(
            "model-shape",
            f"{name} needs sequences of tokens, each with the next one as its label, and these are {what}",
            "Use `mlp`, or data such as `text` (npz: tokens = true, and y in the shape of x).",
        )
    return input_shape[0]


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        what = "this model needs the package `transformers`, which is not installed"
        raise FedauditError("no-transformers", what, "Install it: pip install 'fedaudit[text]'.") from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _asked(model: nn.Module, adapter: AdapterOptions | None, classes: int) -> nn.Module:
    """Tokens in, logits out; with LoRA where that is wanted."""
    from fedaudit.learn.tasks import with_forward

    return with_forward(model if adapter is None else with_lora(model, adapter), logits_of(classes))


def with_lora(model: nn.Module, adapter: AdapterOptions) -> nn.Module:
    """The same model, frozen, with an adapter that is trained in its place."""
    try:
        import peft
    except ImportError:
        what = "[model.adapter] needs the package `peft`, which is not installed"
        raise FedauditError("no-peft", what, "Install it: pip install 'fedaudit[text]'.") from None
    config = peft.LoraConfig(
        r=adapter.r,
        lora_alpha=adapter.alpha or 2 * adapter.r,
        target_modules=list(adapter.targets) if adapter.targets else None,
        lora_dropout=0.0,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: nn.Module = peft.get_peft_model(model, config)
    except ValueError as error:
        what = f"LoRA finds no layers named {', '.join(adapter.targets or ['as PEFT expects'])} in this model"
        raise FedauditError(
            "adapter-targets", what, "Name some of its linear layers in model.adapter.targets."
        ) from error
    return made


def logits_of(classes: int) -> Callable[[Any, Tensor], Tensor]:
    """How such a model is asked. Positions are given for each record: shared ones would tie the records of a batch.
    A vocabulary that was rounded up has logits for tokens that do not exist."""

    def ask(model: Any, x: Tensor) -> Tensor:
        import torch

        positions = torch.arange(x.shape[1]).expand(len(x), -1)
        found: Tensor = model(input_ids=x, position_ids=positions, use_cache=False).logits
        return found if found.shape[-1] == classes else found[..., :classes]

    return ask
