"""GPT-2 (Radford et al., 2019) as transformers builds it: tied head, dropout 0.1."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from paftbench.workloads.language import LanguageModel, TextShape


@dataclass(frozen=True, kw_only=True)
class Gpt2(LanguageModel):
    """GPT-2 of a `size` on text; `context` 0: the size's; `vocab` 0: bytes, or a token file's ids; more: a BPE."""

    name: ClassVar[str] = "gpt2"
    imports: ClassVar[tuple[str, ...]] = ("transformers.models.gpt2.modeling_gpt2",)
    sizes: ClassVar[Mapping[str, str]] = {
        "nano": "2 layers of width 64, 0.12 million parameters in 28 tensors",
        "124m": "GPT-2 small: 12 layers of width 768, 124 million parameters",
    }
    shapes: ClassVar[Mapping[str, TextShape]] = {
        "nano": TextShape(layers=2, heads=4, width=64, hidden=256, positions=64, context=32),
        "124m": TextShape(layers=12, heads=12, width=768, hidden=3072, positions=1024, context=1024, vocab=50257),
    }

    def network(self, vocab: int) -> nn.Module:
        # Here, not above: the import takes seconds, which a trial of another workload should not pay.
        from transformers import GPT2Config, GPT2LMHeadModel

        shape = self.shape
        config = GPT2Config(
            vocab_size=vocab, n_positions=shape.positions, n_embd=shape.width, n_layer=shape.layers,
            n_head=shape.heads, n_inner=shape.hidden, use_cache=False, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        return GPT2LMHeadModel(config)
