"""Text as tokens, and shards of windows. Shapes: B = batch, T = context."""

import os
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paftbench.errors import Refused
from paftbench.workloads.contract import Batch
from paftbench.workloads.data import KNOWN, Stamps, pydoc_text, stamps_of
from paftbench.workloads.streams import Stream

BYTES = 256
TRAIN_SHARE = 0.9
HELD_OUT_TOKENS = 4096


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Token ids, the first nine tenths to train on; `vocab` is how many ids there are."""

    train: NDArray[np.unsignedinteger]
    held_out: NDArray[np.unsignedinteger]
    vocab: int

    def windows(self, context: int) -> int:
        """Training windows of `context` tokens, each with the token after it; at least 1."""
        count = (len(self.train) - 1) // context
        if count < 1 or len(self.held_out) <= context:
            raise Refused(f"context (tokens of a window) {context} is too long for {len(self.train)} training tokens")
        return count

    def evaluation(self, context: int) -> Tensor:
        """The held-out windows [·, T + 1], int64: evenly spread, some 4,096 tokens of them."""
        # Whole windows, evenly spread: the first ones alone would be of one topic.
        available = (len(self.held_out) - 1) // context
        count = min(available, max(1, HELD_OUT_TOKENS // context))
        return windows_of(self.held_out, np.arange(count) * available // count, context)


@dataclass(frozen=True, kw_only=True)
class TextShard:
    """One rank's windows."""

    corpus: Corpus
    context: int
    stream: Stream

    def batch(self, step: int) -> Batch:
        """int64 token ids [B, T + 1]: inputs and, one place on, targets."""
        return (windows_of(self.corpus.train, self.stream.indices(step), self.context),)


def windows_of(tokens: NDArray[np.unsignedinteger], numbers_B: NDArray[np.int64], context: int) -> Tensor:
    # One more than the context: each token but the first is the target of those before it.
    places = numbers_B[:, None] * context + np.arange(context + 1)
    return torch.from_numpy(tokens[places].astype(np.int64))


def load_corpus(name: str, vocab: int) -> Corpus:
    """A text as tokens, read once per process; `LookupError` naming the command that gets a missing one.

    `vocab` 256 is bytes, more is a byte-level BPE of at most so many entries trained on the text itself; a token file
    has ids of its own, which must lie below `vocab` (0: the greatest of them sets it).
    """
    stamps = stamps_of(name)
    return _token_file(vocab, stamps) if KNOWN[name].kind == "tokens" else _text(vocab, stamps)


@cache
def _text(vocab: int, stamps: Stamps) -> Corpus:
    # The one text without files is Python's own.
    content = stamps[0][0].read_bytes() if stamps else pydoc_text()
    # Cut between lines, so that no character and, with BPE, no word is torn.
    cut = content.rfind(b"\n", 0, int(len(content) * TRAIN_SHARE)) + 1
    train, held_out = content[:cut], content[cut:]
    if vocab == BYTES:
        return Corpus(train=np.frombuffer(train, np.uint8), held_out=np.frombuffer(held_out, np.uint8), vocab=BYTES)
    return _bpe(train.decode(), held_out.decode(), vocab)


def _bpe(train: str, held_out: str, vocab: int) -> Corpus:
    """Byte-level BPE (Sennrich et al., 2016; over bytes as GPT-2 has it), trained on the training part alone."""
    # A trial is one thread: the library would start one per core, and warn wherever a process forks after it.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(train.splitlines(keepends=True), trainer)

    def encoded(part: str) -> NDArray[np.uint32]:
        lines = tokenizer.encode_batch_fast(part.splitlines(keepends=True))
        return np.concatenate([np.array(line.ids, dtype=np.uint32) for line in lines])

    return Corpus(train=encoded(train), held_out=encoded(held_out), vocab=tokenizer.get_vocab_size())


@cache
def _token_file(vocab: int, stamps: Stamps) -> Corpus:
    tokens = np.load(stamps[0][0], mmap_mode="r", allow_pickle=False)
    greatest = int(tokens.max())
    if vocab and greatest >= vocab:
        raise Refused(f"vocab (token ids below it) is {vocab}, but the token file has the id {greatest}")
    cut = int(len(tokens) * TRAIN_SHARE)
    return Corpus(train=tokens[:cut], held_out=tokens[cut:], vocab=vocab or greatest + 1)
