"""What a mitigation's `aggregate` returns, and what it may not touch anywhere. Shapes: L = ranks, n = elements."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paftbench.mitigations import Mitigation, Step
from paftbench.ranks.axis import Ranks
from paftbench.testing.streams import seed_streams, streams_untouched
from paftbench.verify.mitigation_case import STEPS, MitigationCase
from paftbench.verify.planted_fault import planted
from paftbench.verify.promise import NotTried, expect, promise
from paftbench.verify.random_states import States, moved, states
from paftbench.verify.small_training import SmallTraining, same_numbers


@promise()
def aggregate_is_declared_where_it_is_overridden(case: MitigationCase) -> None:
    if case.overrides_aggregate:
        expect(case.cls.aggregates, "aggregates = True beside an aggregate() of its own", "False: it is never called")
    else:
        expect(not case.cls.aggregates, "an aggregate() of its own beside aggregates = True", "the mean")
    legal = case.cls.scope in ("element", "whole")
    expect(legal, "scope to be element or whole", repr(case.cls.scope))


@promise()
def aggregate_returns_one_row_or_one_a_rank_in_the_same_dtype(case: MitigationCase) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for elements in (1, 13):
            grad_Ln = _gradients(case, elements).to(dtype)
            result = case.mean_of(grad_Ln)
            where = f"for {list(grad_Ln.shape)} of {dtype}"
            expect(isinstance(result, Tensor), f"a tensor {where}", f"a {type(result).__name__}")
            expect(result.dtype == dtype, f"{dtype} {where}", result.dtype)
            legal = list(result.shape) in ([1, elements], list(grad_Ln.shape))
            expect(legal, f"shape [1, {elements}] or {list(grad_Ln.shape)} {where}", list(result.shape))


@promise()
def a_rule_for_elements_does_not_see_how_buckets_cut(case: MitigationCase) -> None:
    if not case.overrides_aggregate or case.cls.scope != "element":
        raise NotTried("it has no aggregate() of scope element")
    grad_Ln = _gradients(case, 12)
    # Uneven parts, one of them a single element: a rule that looks at a norm or a mean of all gives other numbers.
    one = case.mean_of(grad_Ln)
    parts = torch.cat([case.mean_of(part) for part in grad_Ln.split([5, 1, 6], dim=1)], dim=1)
    got = "another in buckets: scope = 'whole' would see all of it at once"
    expect(same_numbers([one], [parts]), "the same result in one piece and in buckets", got)


@promise()
def it_neither_uses_nor_moves_a_global_random_generator(case: MitigationCase) -> None:
    ends, seen = [], set()
    for seed in (5, 6):
        with streams_untouched():
            guards = _guards(seed)
            ranks = Ranks.virtual(case.worlds[0])
            training = SmallTraining([guards[0], case.make(), guards[1]], [planted()], ranks=ranks).run(STEPS)
            training.virtual.pipeline.flush()
            ends.append(training.parameters())
            seen |= guards[1].moved
            if case.overrides_aggregate:
                seed_streams(seed)
                before = states()
                ends[-1].append(case.mean_of(_gradients(case, 12)))
                seen |= {moved(before, states())} - {""}
    expect(not seen, "every global random generator left alone", f"{' and '.join(sorted(seen))} moved")
    same = same_numbers(*ends)
    expect(same, "the same trajectory wherever the global random generators stand", "another after reseeding them")


@dataclass(frozen=True, kw_only=True)
class _Guard(Mitigation):
    """Stands before or after the mitigation on trial and compares the global generators around it."""

    name = "guard"
    seed: int
    before: bool
    kept: dict[str, States]
    moved: set[str]

    def on_contribution(self, step: Step, row: int, pieces: Any) -> None:
        self._guard("on_contribution")

    def on_gradients(self, step: Step) -> None:
        self._guard("on_gradients")

    def on_step(self, step: Step) -> None:
        self._guard("on_step")

    def flush(self, step: Step) -> None:
        self._guard("flush")

    def _guard(self, moment: str) -> None:
        if self.before:
            # Elsewhere in each of the two trainings: they part where the mitigation draws from a global generator.
            seed_streams(self.seed)
            self.kept[moment] = states()
        else:
            self.moved.update({moved(self.kept[moment], states())} - {""})


def _guards(seed: int) -> tuple[_Guard, _Guard]:
    kept: dict[str, States] = {}
    found: set[str] = set()
    return tuple(_Guard(seed=seed, before=before, kept=kept, moved=found) for before in (True, False))  # type: ignore[return-value]


def _gradients(case: MitigationCase, elements: int) -> Tensor:
    generator = torch.Generator().manual_seed(elements)
    return torch.randn((case.worlds[0], elements), generator=generator)
