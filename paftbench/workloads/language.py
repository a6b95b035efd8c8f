"""What the language models share: text data, next-token loss, held-out loss. Shapes: B = batch, T = context."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional

from paftbench.errors import Refused
from paftbench.suggest import did_you_mean
from paftbench.workloads.contract import Batch, Cost, DataId, Shard, Workload
from paftbench.workloads.data import KNOWN, data_id, require_kind
from paftbench.workloads.evaluation import evaluating
from paftbench.workloads.streams import Stream
from paftbench.workloads.text import BYTES, HELD_OUT_TOKENS, Corpus, TextShard, load_corpus

EVALUATION_TOKENS = 1024


@dataclass(frozen=True, kw_only=True)
class TextShape:
    """A transformer's shape; `positions` is the longest context, `vocab` the real model's (0: the data's).

    `matrices` is how many the feed-forward part has between `width` and `hidden`: 2, or 3 with a gate.
    """

    layers: int
    heads: int
    width: int
    hidden: int
    positions: int
    context: int
    vocab: int = 0
    matrices: int = 2


@dataclass(frozen=True, kw_only=True)
class LanguageModel(Workload):
    """Next-token prediction on `data`; `context` 0 is the size's own, `vocab` 0 bytes (or a token file's own ids)."""

    metric: ClassVar[str] = "val_loss"
    direction: ClassVar[Literal["max", "min"]] = "min"
    shapes: ClassVar[Mapping[str, TextShape]]

    size: str = "nano"
    data: str = "pydoc"
    context: int = 0
    vocab: int = 0

    def __post_init__(self) -> None:
        if self.size not in self.shapes:
            raise Refused(f"size {self.size!r} is none of {self.name}{did_you_mean(self.size, self.shapes)}")
        require_kind(self.data, ["text", "tokens"])
        if self.context and not 2 <= self.context <= self.shape.positions:
            raise Refused(
                f"context (tokens of a window; 0 = the size's own) must be 0 or within [2, {self.shape.positions}], "
                f"got {self.context}"
            )
        least = BYTES if KNOWN[self.data].kind == "text" else 2
        if self.vocab and self.vocab < least:
            raise Refused(f"vocab (token ids; 0 = the data's own) must be 0 or >= {least}, got {self.vocab}")

    @property
    def shape(self) -> TextShape:
        return self.shapes[self.size]

    @property
    def window(self) -> int:
        """Tokens a model reads at once."""
        return self.context or self.shape.context

    @property
    def tokens_per_item(self) -> int:
        return self.window

    @property
    def data_name(self) -> str:
        return self.data

    def corpus(self) -> Corpus:
        return load_corpus(self.data, self.vocab or (BYTES if KNOWN[self.data].kind == "text" else 0))

    @abstractmethod
    def network(self, vocab: int) -> nn.Module:
        """The model with `vocab` token ids; called with token ids [B, T] it gives an object with `logits`."""

    def data_id(self) -> DataId:
        return data_id(self.data)

    def train_items(self) -> int:
        return self.corpus().windows(self.window)

    @property
    def chance(self) -> float:
        return log(self.corpus().vocab)

    def model(self) -> nn.Module:
        vocab, own = self.corpus().vocab, self.shape.vocab
        if own and vocab > own:
            raise Refused(f"vocab: {self.name} of size {self.size} has {own} token ids, the data has {vocab}")
        return self.network(own or vocab)

    def skeleton(self) -> nn.Module:
        return self.network(self.shape.vocab) if self.shape.vocab else self.model()

    def cost(self) -> Cost:
        """Every token meets each weight matrix once and, as attention is computed in full, every other token twice."""
        shape, tokens = self.shape, self.window
        layer = 4 * shape.width**2 + shape.matrices * shape.width * shape.hidden + 2 * tokens * shape.width
        head = (shape.vocab or self.vocab or BYTES) * shape.width
        return Cost(
            multiply_adds=tokens * (shape.layers * layer + head), evaluated=max(1, HELD_OUT_TOKENS // self.window)
        )

    def shard(self, rank: int, world_size: int, batch: int, seed: int) -> Shard:
        stream = Stream(items=self.train_items(), rank=rank, world_size=world_size, batch=batch, seed=seed)
        return TextShard(corpus=self.corpus(), context=self.window, stream=stream)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        (tokens,) = batch
        return _cross_entropy(model, tokens, "mean")

    def examples(self) -> int:
        """Windows of text."""
        return len(self.corpus().evaluation(self.window))

    def evaluate(self, model: nn.Module) -> float:
        windows = self.corpus().evaluation(self.window)
        total = 0.0
        with evaluating(model) as (device, _):
            for chunk in windows.split(max(1, EVALUATION_TOKENS // self.window)):
                total += float(_cross_entropy(model, chunk.to(device), "sum"))
        # A sum divided once: the mean of the chunks' means would weigh a shorter last chunk too much.
        return total / (len(windows) * self.window)


def _cross_entropy(model: nn.Module, tokens: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    """Loss of predicting tokens [B, T + 1] each from those before it, in float32."""
    logits = model(input_ids=tokens[:, :-1]).logits
    return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction=reduction)
