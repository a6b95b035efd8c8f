"""What the built-in workloads are called."""

from typing import Final

from paftbench.looks.look import Look

RESNET: Final = Look(title="ResNet", order=1)
GPT2: Final = Look(title="GPT-2", order=2)
LLAMA2: Final = Look(title="LLaMA-2", order=3)
