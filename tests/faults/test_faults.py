"""Faults from their YAML, and what they cover."""

from typing import Any

import pytest
import torch
from support.injecting import DTYPES, layout_of, ranks_of, strike

from paftbench import specs
from paftbench.faults.cover import Cover
from paftbench.faults.fault import Fault, RandomRanks, fault_spec, parse_fault
from paftbench.faults.strikes import strikes_at
from paftbench.ranks.axis import Ranks
from paftbench.ranks.layout import Layout
from paftbench.ranks.sites import Site

FULL = {
    "name": "flips", "model": "bit_flip", "degree": 1e-3, "unit": "per_bit", "bits": "exponent", "site": "contribution",
    "ranks": {"random": 2}, "parameters": ["*.bias", "second.*"], "persistence": "permanent",
    "schedule": {"kind": "burst", "every": 50, "length": 1, "offset": 0},
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"ranks": [0, 2]}, {"ranks": "all"}, {"parameters": "*"}, {"bits": 30}, {"schedule": "every_step"},
        {"persistence": "transient"}, {"site": "result"}, {"name": "other"},
    ],
    ids=str,
)  # fmt: skip
def test_a_fault_and_its_spec_are_inverses(changes: dict[str, Any]) -> None:
    spec = {**FULL, **changes}
    fault = parse_fault(spec, "fault")
    assert fault_spec(fault) == spec
    assert parse_fault(fault_spec(fault), "fault") == fault


def test_a_fault_has_defaults_and_the_models_name() -> None:
    fault = specs.fault("gaussian_noise", degree=1)
    assert (fault.name, fault.site, fault.ranks, fault.parameters) == ("gaussian_noise", Site.RESULT, "all", "*")
    assert fault.persistence == "transient" and type(fault.model.degree) is float
    assert specs.fault("bit_flip", degree=0.1, ranks=3).ranks == (3,)
    assert specs.fault("bit_flip", degree=0.1, ranks=[2, 0]).ranks == (0, 2)
    assert specs.fault("bit_flip", degree=0.1, ranks={"random": 1}).ranks == RandomRanks(count=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bitflip"}, "no fault model 'bitflip'; did you mean 'bit_flip'"),
        ({"model": 3}, "no fault model 3"),
        ({"model": ["bit_flip"]}, r"no fault model \['bit_flip'\]"),
        ({"degre": 1}, r"unknown key 'degre'; did you mean 'degree'\? Known: bits, degree, model, name, parameters"),
        ({"unit": "std"}, "unit 'std' is not one of bit_flip; Known: per_bit, per_element"),
        ({"degree": -1}, r"degree \(per_bit\) must be within \[0, 1\], got -1"),
        ({"degree": "much"}, r"fault \(bit_flip\).degree: .*got 'much'"),
        ({"site": "results"}, "fault.site: 'results' is not a site; did you mean 'result'"),
        ({"site": ["result"]}, r"fault.site: \['result'\] is not a site"),
        ({"site": "sync"}, "fault.site: 'sync' cannot be struck yet; .* contribution, optimizer_state, .*, result"),
        ({"ranks": "some"}, r"fault.ranks: expected all, a list of ranks or {random: k}, got 'some'"),
        ({"ranks": [1, 1]}, "fault.ranks: a rank is listed twice"),
        ({"ranks": [-1]}, r"fault.ranks: expected .* got \[-1\]"),
        ({"ranks": []}, "fault.ranks: expected"),
        ({"ranks": {"random": 0}}, "fault.ranks: expected"),
        ({"ranks": {"random": 1, "of": 2}}, "fault.ranks: expected"),
        ({"parameters": 3}, "fault.parameters: expected a glob or a list of globs over parameter names, got 3"),
        ({"parameters": []}, "fault.parameters: expected"),
        ({"persistence": "forever"}, "fault.persistence: expected transient or permanent, got 'forever'"),
        ({"schedule": "sometimes"}, "fault.schedule: 'sometimes' is not a schedule"),
        ({"name": ""}, "fault.name: expected a name, got ''"),
        ({"name": 7}, "fault.name: expected a name, got 7"),
    ],
    ids=str,
)  # fmt: skip
def test_a_fault_that_means_nothing_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, LookupError), match=message) as error:
        parse_fault({**FULL, **changes}, "fault")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spec", [{}, "bit_flip", None, ["bit_flip"]], ids=str)
def test_a_fault_without_a_model_is_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match="fault: expected a mapping with a fault model under 'model', got"):
        parse_fault(spec, "fault")


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("*", ["first.weight", "first.bias", "second.weight", "last.scale"]),
        ("*.weight", ["first.weight", "second.weight"]),
        (["last.*", "first.bias"], ["first.bias", "last.scale"]),
        ("?irst.[bw]*", ["first.weight", "first.bias"]),
    ],
    ids=str,
)
def test_parameters_are_selected_by_globs_in_registration_order(patterns: Any, names: list[str]) -> None:
    fault = specs.fault("bit_flip", degree=0.1, parameters=patterns)
    assert [slot.name for slot in Cover.of(fault, layout_of(), 0).slots] == names


def test_a_pattern_that_matches_nothing_names_the_nearest_parameter() -> None:
    fault = specs.fault("bit_flip", degree=0.1, parameters=["*", "frist.weight"])
    with pytest.raises(
        ValueError, match=r"parameters: 'frist.weight' matches no parameter; did you mean 'first.weight'"
    ):
        Cover.of(fault, layout_of(), 0)


def test_a_large_models_nearest_parameters_are_named_and_not_all_of_them() -> None:
    layout = layout_of(shapes={f"layer.{i}.{kind}": (1,) for i in range(60) for kind in ("weight", "bias")})
    with pytest.raises(ValueError, match=r"did you mean 'layer.7.weight'.*nearest of 120") as error:
        layout.select("layer.7.wieght")
    assert len(str(error.value)) < 400


def test_a_dtype_that_a_model_cannot_strike_is_refused_by_name() -> None:
    fault = specs.fault("bit_flip", degree=0.1, name="flips")
    with pytest.raises(ValueError, match=r"fault 'flips': fault model bit_flip cannot strike torch.int32 gradients"):
        Cover.of(fault, layout_of(torch.int32), 0)


def mixed(*dtypes: torch.dtype) -> Layout:
    slots = [layout_of(dtype, {f"p{i}": (100,)}).slots[0] for i, dtype in enumerate(dtypes)]
    moved = [
        type(s)(name=s.name, start=i * 100, stop=i * 100 + 100, shape=s.shape, dtype=s.dtype)
        for i, s in enumerate(slots)
    ]
    return Layout(moved)


def test_every_dtype_of_a_mixed_model_is_checked() -> None:
    layout = mixed(torch.float64, torch.float32)
    with pytest.raises(ValueError, match=r"torch.float32 has bits 0 to 31, got 40"):
        Cover.of(specs.fault("bit_flip", degree=0.1, bits=40), layout, 0)
    with pytest.raises(ValueError, match="per_bit needs gradients of one dtype"):
        Cover.of(specs.fault("bit_flip", degree=0.1, unit="per_bit"), layout, 0)
    Cover.of(specs.fault("bit_flip", degree=0.1, bits=31), layout, 0)


def ranks_struck(fault: Fault, steps: int, world_size: int = 4, attempt: int = 0) -> list[frozenset[int]]:
    cover = Cover.of(fault, layout_of(), 0)
    return [cover.ranks_at(step, attempt, world_size) for step in range(steps)]


def test_random_ranks_are_drawn_anew_at_every_step_and_uniformly() -> None:
    chosen = ranks_struck(specs.fault("bit_flip", degree=0.1, ranks={"random": 2}), 2_000)
    assert {len(ranks) for ranks in chosen} == {2}
    for rank in range(4):
        assert abs(sum(rank in ranks for ranks in chosen) - 1_000) < 4 * 500**0.5
    assert len(set(chosen)) == 6


def test_all_ranks_and_processes_share_a_schedules_decision() -> None:
    fault = specs.fault("bit_flip", degree=0.5, schedule={"kind": "probability", "p": 0.3})
    cover = Cover.of(fault, layout_of(), 0)
    decisions = ranks_struck(fault, 300)
    assert set(decisions) == {frozenset(), frozenset(range(4))}
    assert abs(sum(map(bool, decisions)) - 90) < 4 * 63**0.5
    for local in ([0], [1, 2], [3]):
        here = [{s.draws.rank for s in strikes_at(cover, ranks_of(4, local), step, 0)} for step in range(300)]
        assert here == [set(local) if ranks else set() for ranks in decisions]


def test_a_transient_faults_ranks_and_schedule_are_drawn_again_in_a_repetition_a_permanent_ones_not() -> None:
    fields = {"degree": 0.1, "ranks": {"random": 1}, "schedule": {"kind": "probability", "p": 0.5}}
    transient = specs.fault("bit_flip", **fields)
    assert ranks_struck(transient, 50) != ranks_struck(transient, 50, attempt=1)
    permanent = specs.fault("bit_flip", **fields, persistence="permanent")
    assert ranks_struck(permanent, 50) == ranks_struck(permanent, 50, attempt=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_expected_strikes_are_what_is_drawn(dtype: torch.dtype) -> None:
    layout = layout_of(dtype, {"weight": (20_000,)})
    grads = torch.ones((4, 1, 20_000), dtype=dtype)
    for model, fields in {
        "bit_flip": {"degree": 0.01}, "gaussian_noise": {"degree": 0.5}, "stale_shard": {"degree": 0.5, "delay": 2},
    }.items():  # fmt: skip
        fault = specs.fault(model, **fields)
        expected = sum(fault.model.expected(20_000, step, dtype) for step in range(4))
        assert strike([fault], layout, grads).injector.counts.drawn == pytest.approx(expected, rel=0.15)
    per_bit = specs.fault("bit_flip", degree=0.001, unit="per_bit")
    drawn = strike([per_bit], layout, grads).injector.counts.drawn
    assert drawn == pytest.approx(4 * per_bit.model.expected(20_000, 0, dtype), rel=0.2)


def test_the_sites_of_the_design_are_all_named() -> None:
    assert [str(site) for site in Site] == [
        "contribution", "reduce_scatter", "all_gather", "result", "parameter", "optimizer_state", "sync",
    ]  # fmt: skip
    assert Ranks.virtual(2).local == (0, 1)
