"""LLaMA-2 (Touvron et al., 2023, https://arxiv.org/abs/2307.09288) as transformers builds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import nn

from paftbench.workloads.language import LanguageModel, TextShape

_shape = partial(TextShape, matrices=3)


@dataclass(frozen=True, kw_only=True)
class Llama2(LanguageModel):
    """LLaMA-2 of a `size` on text; `context` 0: the size's; `vocab` 0: bytes, or a token file's ids; more: a BPE."""

    name: ClassVar[str] = "llama2"
    imports: ClassVar[tuple[str, ...]] = ("transformers.models.llama.modeling_llama",)
    sizes: ClassVar[Mapping[str, str]] = {
        "nano": "2 layers of width 64, 0.13 million parameters in 21 tensors",
        "124m": "12 layers of width 768, GPT-2's vocabulary and tied head, 124 million parameters",
        "7b": "LLaMA-2-7B: 32 layers of width 4096, 6.7 billion parameters",
    }
    shapes: ClassVar[Mapping[str, TextShape]] = {
        "nano": _shape(layers=2, heads=4, width=64, hidden=172, positions=64, context=32),
        "124m": _shape(layers=12, heads=12, width=768, hidden=2048, positions=1024, context=1024, vocab=50257),
        "7b": _shape(layers=32, heads=32, width=4096, hidden=11008, positions=4096, context=4096, vocab=32000),
    }

    def network(self, vocab: int) -> nn.Module:
        # Here, not above: the import takes seconds, which a trial of another workload should not pay.
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = self.shape
        config = LlamaConfig(
            vocab_size=vocab, max_position_embeddings=shape.positions, hidden_size=shape.width,
            intermediate_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
            rms_norm_eps=1e-5, tie_word_embeddings=self.size == "124m", use_cache=False, bos_token_id=None,
            eos_token_id=None, pad_token_id=None,
        )  # fmt: skip
        return LlamaForCausalLM(config)
