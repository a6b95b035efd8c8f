"""What the built-in workloads are called."""

from typing import Final

from paftbench.looks.look import Look

GPT2: Final = Look(title="GPT-2")
LLAMA2: Final = Look(title="LLaMA-2")
RESNET: Final = Look(title="ResNet")
