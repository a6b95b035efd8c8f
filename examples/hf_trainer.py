"""Hugging Face's Trainer on a small GPT-2, with noisy gradients and PAFT-Sync: a callback attaches and detaches.

    torchrun --standalone --nproc-per-node 2 examples/hf_trainer.py
    torchrun --standalone --nproc-per-node 2 examples/hf_trainer.py --unprotected

The Trainer wraps the model in DDP when training begins, so the callback asks for `model_wrapped` only then. Nothing is
downloaded: the model is made from a configuration, the sequences by counting.
"""

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import paftbench

FAULTS = [paftbench.Fault("gaussian_noise", degree=1.0, unit="rms", site="result")]
MITIGATIONS = [paftbench.Mitigation("paft_sync", period=5, state="all")]

VOCAB, LENGTH = 32, 16


class Paftbench(TrainerCallback):
    """Faults and mitigations from the first step of training to the last."""

    def __init__(self, trainer: Trainer, mitigations: Sequence[Any]) -> None:
        self.trainer = trainer
        self.mitigations = mitigations

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        ddp, optimizer = self.trainer.model_wrapped, self.trainer.optimizer
        self.attached = paftbench.attach(ddp, optimizer, faults=FAULTS, mitigations=self.mitigations, seed=0)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        self.attached.detach()


class Counting(Dataset):
    """Every sequence counts upwards in a stride of its own."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (index + (1 + index % 5) * torch.arange(LENGTH)) % VOCAB
        return {"input_ids": tokens, "labels": tokens}


def build(steps: int, folder: str) -> Trainer:
    set_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=False,
        max_steps=steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=5e-3,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Counting())


def main(steps: int = 40, *, unprotected: bool = False) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = build(steps, folder)
        callback = Paftbench(trainer, [] if unprotected else MITIGATIONS)
        trainer.add_callback(callback)
        trainer.train()
    attached = callback.attached
    divergence = attached.divergence()
    if trainer.is_world_process_zero():
        print(f"strikes on rank 0: {attached.strikes.landed}")
        print(f"synchronisations: {attached.syncs}")
        print(f"divergence: {divergence:.3e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--unprotected", action="store_true", help="the same faults without the mitigation")
    options = parser.parse_args()
    main(options.steps, unprotected=options.unprotected)
    dist.barrier()
    dist.destroy_process_group()
