"""`paftbench.attach` on a user's own loop: what is refused, and what detaching leaves."""

import copy
import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.processes import together
from support.user_loop import Net, bits, build, loss_of, sgd, silent_static_graph, train
from torch.nn.parallel import DistributedDataParallel

import paftbench

NOISE = {"degree": 1e-2, "unit": "std", "site": "result"}


def noise(**fields: Any) -> list[Any]:
    return [paftbench.Fault("gaussian_noise", **{**NOISE, **fields})]


def sync(**fields: Any) -> list[Any]:
    return [paftbench.Mitigation("paft_sync", **fields)]


def refusal(action: Callable[[], Any]) -> str:
    """The error of an action, or nothing."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# --- refused -----------------------------------------------------------------------------------------------------


def refusals() -> dict[str, str]:
    ddp, other = build(), build()
    optimizer = sgd(ddp)
    found = {
        "not DDP": refusal(lambda: paftbench.attach(ddp.module, optimizer)),
        "foreign optimizer": refusal(lambda: paftbench.attach(ddp, sgd(other))),
        "scaler": refusal(lambda: paftbench.attach(ddp, optimizer, object())),  # type: ignore[arg-type]
        "accumulation": refusal(lambda: paftbench.attach(ddp, optimizer, accumulation=0)),
        "one fault": refusal(lambda: paftbench.attach(ddp, optimizer, faults=noise()[0])),
        "read once": refusal(lambda: paftbench.attach(ddp, optimizer, faults=iter(noise()))),  # type: ignore[arg-type]
        "mapping": refusal(lambda: paftbench.attach(ddp, optimizer, mitigations=[{"name": "paft_sync"}])),  # type: ignore[list-item]
        "seed": refusal(lambda: paftbench.attach(ddp, optimizer, seed="0")),  # type: ignore[arg-type]
        "rank": refusal(lambda: paftbench.attach(ddp, optimizer, faults=noise(ranks=[1]))),
        "pattern": refusal(lambda: paftbench.attach(ddp, optimizer, faults=noise(parameters="embed.wieght"))),
    }
    attached = paftbench.attach(ddp, optimizer)
    found["second"] = refusal(lambda: paftbench.attach(ddp, optimizer))
    attached.detach()
    found["after detach"] = refusal(lambda: paftbench.attach(ddp, optimizer))
    hooked = build()
    hooked.register_comm_hook(None, _foreign)
    found["foreign hook"] = refusal(lambda: paftbench.attach(hooked, sgd(hooked)))
    part = Net()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(part, ["scale"])
    partly = DistributedDataParallel(part)
    found["left to each rank"] = refusal(lambda: paftbench.attach(partly, sgd(partly)))
    builtin = build()
    builtin._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    found["built-in hook"] = refusal(lambda: paftbench.attach(builtin, sgd(builtin)))
    return found


def _foreign(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def test_what_cannot_be_attached_is_refused_with_the_reason() -> None:
    (found,) = together(refusals, 1)
    expected = {
        "not DDP": "Refused: the model must be wrapped in DistributedDataParallel, got Net",
        "left to each rank": "Refused: DDP leaves parameter 'scale' to each rank",
        "foreign optimizer": "Refused: the optimizer does not update parameter 'scale' of the model",
        "scaler": "Refused: scaler: ",
        "accumulation": "Refused: accumulation (backward passes per step) must be >= 1, got 0",
        "one fault": "Refused: faults must be a list of paftbench.Fault(...), got Fault(name='gaussian_noise'",
        "read once": "Refused: faults must be a list of paftbench.Fault(...), got <list_iterator",
        "mapping": "Refused: mitigations must be a list of paftbench.Mitigation(...), got [{",
        "seed": "Refused: seed must be a whole number, got '0'",
        "rank": "Refused: fault 'gaussian_noise': rank 1 is not below world_size 1",
        "pattern": "Refused: parameters: 'embed.wieght' matches no parameter; did you mean 'embed.weight'?",
        "second": "Refused: the model is attached already",
        "foreign hook": "Refused: the model already has a communication hook (_foreign)",
        "built-in hook": "Refused: the model's communication hook cannot be set: ",
    }
    for case, start in expected.items():
        assert found.pop(case).startswith(start), case
    assert found == {"after detach": ""}


def disagreeing() -> dict[str, str]:
    ddp, rank = build(), dist.get_rank()
    optimizer = sgd(ddp)
    scaler = torch.amp.GradScaler("cpu", enabled=rank == 0)
    cases: dict[str, Callable[[], Any]] = {
        "seed": lambda: paftbench.attach(ddp, optimizer, faults=noise(), seed=rank),
        "faults": lambda: paftbench.attach(ddp, optimizer, faults=noise(ranks=(rank,))),
        "mitigations": lambda: paftbench.attach(ddp, optimizer, mitigations=sync(period=2 + rank // 2)),
        "accumulation": lambda: paftbench.attach(ddp, optimizer, accumulation=1 + rank),
        "scaler": lambda: paftbench.attach(ddp, optimizer, scaler),
        "nothing": lambda: paftbench.attach(ddp, optimizer, faults=noise(), seed=1).detach(),
    }
    return {name: refusal(case) for name, case in cases.items()}


def test_arguments_that_differ_between_ranks_are_refused_on_all_of_them() -> None:
    for rank, found in enumerate(together(disagreeing, 3)):
        assert found.pop("nothing") == ""
        assert found["seed"].endswith(f"differ; on this rank {rank}")
        for name, message in found.items():
            assert message.startswith(f"Refused: {name}: all ranks must attach with the same, but they differ"), name


def never_called(how: str) -> str:
    ddp = build()
    optimizer = sgd(ddp)

    def loop() -> None:
        with paftbench.attach(ddp, optimizer, faults=noise()):
            if how == "module":
                train(ddp.module, optimizer, range(2))
            elif how == "no_sync":
                with ddp.no_sync():
                    train(ddp, optimizer, range(2))

    return refusal(loop)


@pytest.mark.parametrize("how", ["module", "no_sync", "nothing"])
def test_a_hook_that_was_never_called_is_an_error(how: str) -> None:
    (found,) = together(never_called, 1, how)
    assert found.startswith("RuntimeError: the hook was never called: no gradient went through the attached DDP model")


def out_of_step() -> str:
    ddp = build()
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, accumulation=2) as attached:
        found = refusal(lambda: train(ddp, optimizer, range(2)))
        loss_of(ddp, 1).backward()
        optimizer.step()
        assert attached.steps == 1
    return found


def test_an_optimizer_out_of_step_with_accumulation_is_an_error() -> None:
    (found,) = together(out_of_step, 1)
    assert found == (
        "RuntimeError: accumulation (backward passes per step) is 2, but the optimizer stepped after 1; passes inside "
        "no_sync() do not count"
    )


def miscounted() -> dict[str, str]:
    """Backward passes that all reduce, two or four to an update, against what the attachment was told."""
    found = {}
    for rounds, accumulation in [(2, 1), (4, 2), (2, 2), (4, 4)]:
        for scaled in (False, True):
            ddp = build()
            optimizer, scaler = sgd(ddp), torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)

            def loop(
                rounds: int = rounds,
                accumulation: int = accumulation,
                ddp: Any = ddp,
                optimizer: Any = optimizer,
                scaler: Any = scaler,
            ) -> None:
                with paftbench.attach(ddp, optimizer, scaler, mitigations=sync(period=2), accumulation=accumulation):
                    for step in range(2):
                        optimizer.zero_grad()
                        for part in range(rounds):
                            scaler.scale(loss_of(ddp, step, part)).backward()
                        scaler.step(optimizer)
                        scaler.update()

            found[f"{rounds} for {accumulation}, {scaled}"] = refusal(loop)
    for to_none in (True, False):
        ddp = build()
        optimizer = sgd(ddp)

        def skips(ddp: Any = ddp, optimizer: Any = optimizer, to_none: bool = to_none) -> None:
            with paftbench.attach(ddp, optimizer, mitigations=sync(period=2)):
                for step in range(6):
                    optimizer.zero_grad(set_to_none=to_none)
                    loss_of(ddp, step).backward()
                    if step % 3 == 2:
                        optimizer.step()

        found[f"skipped, {to_none}"] = refusal(skips)
    return found


def test_backward_passes_that_pile_up_uncounted_are_an_error_and_skipped_updates_are_not() -> None:
    for found in together(miscounted, 2):
        for case in ("2 for 1", "4 for 2"):
            for scaled in (False, True):
                passes, told = case[0], case[-1]
                assert found.pop(f"{case}, {scaled}") == (
                    f"RuntimeError: accumulation (backward passes per step) is {told}, but the optimizer got the "
                    f"gradients of {passes}: no zero_grad() came between them; passes inside no_sync() do not count"
                )
        assert set(found.values()) == {""} and len(found) == 6


def past_the_hook(how: str, scaled: bool) -> tuple[str, int]:
    """One good step, then an update of gradients that were never averaged, or were used already."""
    ddp = build()
    optimizer, scaler = sgd(ddp), torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)

    def step(how: str) -> None:
        if how != "twice":
            optimizer.zero_grad()
            with ddp.no_sync() if how == "no_sync" else nullcontext():
                scaler.scale(loss_of(ddp.module if how == "module" else ddp, 0)).backward()
        scaler.step(optimizer)
        scaler.update()

    with paftbench.attach(ddp, optimizer, scaler, faults=noise()) as attached:
        step("well")
        found = refusal(lambda: step(how))
        step("well")
    return found, attached.steps


@pytest.mark.parametrize("how", ["no_sync", "module", "twice"])
@pytest.mark.parametrize("scaled", [False, True])
def test_an_update_with_gradients_that_did_not_come_through_the_hook_since_the_last_one_is_an_error(
    how: str, scaled: bool
) -> None:
    for found, steps in together(past_the_hook, 2, how, scaled):
        assert found.startswith("RuntimeError: the optimizer took gradients that did not come through the hook since")
        assert steps == 2


def without_gradients(to_none: bool) -> int:
    """An optimizer that also holds another model's parameters, stepped for that one alone."""
    ddp, other = build(), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD([*(p for p in ddp.parameters() if p.requires_grad), *other.parameters()], lr=0.1)
    with paftbench.attach(ddp, optimizer, faults=noise()) as attached:
        for step in range(3):
            train(ddp, optimizer, [step])
            optimizer.zero_grad(set_to_none=to_none)
            other(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    return attached.steps


@pytest.mark.parametrize("to_none", [True, False])
def test_an_update_without_a_gradient_of_the_model_is_none_of_its_steps(to_none: bool) -> None:
    assert together(without_gradients, 1, to_none) == [3]


def overtaking(scaled: bool) -> tuple[str, int]:
    """A forward pass with gradients between backward and step, then one without."""
    ddp = build()
    optimizer, scaler = sgd(ddp), torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)

    def step(looking: bool) -> None:
        optimizer.zero_grad()
        scaler.scale(loss_of(ddp, 0)).backward()
        with torch.set_grad_enabled(looking):
            loss_of(ddp, 1)
        scaler.step(optimizer)
        scaler.update()

    with paftbench.attach(ddp, optimizer, scaler, faults=noise(), mitigations=sync(period=1)) as attached:
        step(looking=False)
        assert attached.divergence() == 0.0
        return refusal(lambda: step(looking=True)), attached.syncs


@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_that_a_forward_pass_closed_too_early_is_an_error(scaled: bool) -> None:
    for found, syncs in together(overtaking, 2, scaled):
        assert found.startswith("RuntimeError: a forward pass with gradients came between backward() and the") and syncs


def incomplete() -> tuple[int, int, float]:
    """The last window of the loop is incomplete, and the user drops it."""
    ddp = build()
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, accumulation=2, faults=noise(), mitigations=sync(period=2)) as attached:
        train(ddp, optimizer, range(4), rounds=2, sync="all")
        loss_of(ddp, 4).backward()
    return attached.steps, attached.syncs, attached.divergence()


def test_a_last_window_without_an_update_is_no_error() -> None:
    assert together(incomplete, 2) == [(4, 2, 0.0)] * 2


# --- used --------------------------------------------------------------------------------------------------------


def looking_in_a_closure() -> str:
    """The closure computes the loss once more, and no gradients."""
    ddp = build()
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, faults=noise()) as attached:
        loss = loss_of(ddp, 0)
        loss.backward()
        optimizer.step(lambda: loss.item())
        assert attached.steps == 1
        optimizer.zero_grad()
        loss_of(ddp, 1).backward()
        return refusal(lambda: optimizer.step(lambda: loss_of(ddp, 1).item()))


def test_a_closure_whose_forward_pass_closes_the_step_is_an_error() -> None:
    (found,) = together(looking_in_a_closure, 1)
    assert found.startswith("RuntimeError: a forward pass with gradients came between backward() and the optimizer")


def inside_backward() -> str:
    """An update as soon as one gradient is there: before the last bucket has come."""
    ddp = build()
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, faults=noise()) as attached:
        train(ddp, optimizer, range(2))
        hook = ddp.module.embed.weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
        optimizer.zero_grad()
        found = refusal(lambda: loss_of(ddp, 2).backward())
        hook.remove()
        assert attached.steps == 2
        attached.detach()
    return found


def test_an_optimizer_that_is_stepped_inside_backward_is_an_error() -> None:
    (found,) = together(inside_backward, 1)
    assert found.startswith("RuntimeError: the optimizer was stepped inside backward(), before all gradients were")


def by_closure(closure: bool) -> tuple[list[bytes], int]:
    ddp = build()
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=2)) as attached:
        for step in range(5):
            optimizer.zero_grad()

            def backward(step: int = step) -> Any:
                loss = loss_of(ddp, step)
                loss.backward()
                return loss

            if closure:
                optimizer.step(backward)
            else:
                backward()
                optimizer.step()
    return bits(ddp), attached.steps


def test_an_optimizer_that_calls_a_closure_is_attached_like_any_other() -> None:
    with_closure, without = together(by_closure, 2, True), together(by_closure, 2, False)
    assert with_closure == without and with_closure[0][1] == 5


def skipping() -> dict[str, Any]:
    """Every third backward pass the user decides against an update, and backward passes once more."""
    ddp = build()
    optimizer = sgd(ddp)
    found = []
    with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=3)) as attached:
        for step in range(9):
            optimizer.zero_grad()
            loss_of(ddp, step).backward()
            if (step + 1) % 3:
                optimizer.step()
            elif step < 8:
                loss = loss_of(ddp, 100 + step)
                optimizer.zero_grad()
                loss.backward()
            found.append((attached.steps, attached.divergence() == 0.0))
        rows = attached.injections()
    rows += attached.injections()  # of the last, which nobody has taken until the end
    counts = vars(attached.strikes)
    return {"found": found, "steps": attached.steps, "syncs": attached.syncs, "counts": counts, "rows": rows}


def test_gradients_that_nobody_takes_are_no_step_and_what_struck_them_did_not_land() -> None:
    """Six updates of eleven backward passes: the period of 3 counts updates."""
    for found in together(skipping, 3):
        assert [steps for steps, _ in found["found"]] == [1, 2, 2, 3, 4, 4, 5, 6, 6]
        assert [equal for _, equal in found["found"]] == [False, False, False, True, False, False, False, True, True]
        assert (found["steps"], found["syncs"]) == (6, 2)
        counts, rows = found["counts"], found["rows"]
        assert counts["drawn"] == counts["landed"] + counts["discarded"] == 11 * counts["landed"] // 6
        assert [row["landed"] for row in rows].count(True) == 6 and len(rows) == 11
        again = [(row["step"], row["attempt"]) for row in rows]
        assert again == sorted(set(again)) and max(attempt for _, attempt in again) == 2


def observed() -> dict[str, Any]:
    """Divergence, strikes and steps as a user sees them, beside the same by hand."""
    ddp = build()
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, faults=noise(ranks=(1,))) as attached:
        train(ddp, optimizer, range(4))
        shown = attached.divergence()
    flat = torch.cat([p.detach().flatten() for p in ddp.parameters() if p.requires_grad]).double()
    rows = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, flat)
    away = torch.stack(rows) - torch.stack(rows).mean(0)
    return {
        "divergence": (shown, float(away.square().sum(1).mean().sqrt())),
        "strikes": vars(attached.strikes),
        "size": flat.numel(),
        "steps": attached.steps,
    }


def test_strikes_steps_and_divergence_are_there_to_read() -> None:
    for rank, found in enumerate(together(observed, 3)):
        shown, by_hand = found["divergence"]
        assert shown == pytest.approx(by_hand, rel=1e-12) and shown > 0
        assert found["strikes"]["landed"] == (4 * found["size"] if rank == 1 else 0)
        assert found["steps"] == 4


def resetting() -> list[float]:
    ddp = build()
    optimizer = torch.optim.Adam([p for p in ddp.parameters() if p.requires_grad], lr=1e-2)
    with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=2, state="reset")):
        train(ddp, optimizer, range(4))
    moments = [state[kind].abs().sum() for state in optimizer.state.values() for kind in ("exp_avg", "exp_avg_sq")]
    assert not any(moments)
    return [float(state["step"]) for state in optimizer.state.values()]


def test_a_reset_leaves_step_counters_also_of_a_parameter_that_is_a_number() -> None:
    for counters in together(resetting, 2):
        assert counters == [4.0] * len(counters)


def unused_in_static_graph(model: str, site: str) -> dict[str, Any]:
    silent_static_graph()
    ddp = build(idle=True, static_graph=True)
    optimizer = sgd(ddp)
    fault = paftbench.Fault(model, degree=0.5, site=site)
    with paftbench.attach(ddp, optimizer, faults=[fault]) as attached:
        train(ddp, optimizer, range(3))
    idle = [row for row in attached.injections() if not row["landed"]]
    strikes = attached.strikes
    lost = sum(row["elements"] or 1 for row in idle)
    size = sum(p.numel() for p in ddp.module.idle.parameters())
    return {"lost": lost, "missing": strikes.drawn - strikes.landed, "size": 3 * size}


@pytest.mark.parametrize("model", ["bit_flip", "gaussian_noise"])
@pytest.mark.parametrize("site", ["contribution", "result"])
def test_strikes_on_what_a_static_graph_never_uses_do_not_land(model: str, site: str) -> None:
    for found in together(unused_in_static_graph, 2, model, site):
        assert found["missing"] == found["lost"] > 0
        assert model == "bit_flip" or found["lost"] == found["size"]


def two_models() -> tuple[Any, ...]:
    first, second = build(), build(idle=True, find_unused_parameters=True)
    optimizers = sgd(first), sgd(second)
    with (
        paftbench.attach(first, optimizers[0], faults=noise(name="a")) as a,
        paftbench.attach(second, optimizers[1], mitigations=sync(period=2)) as b,
    ):
        for step in range(4):
            for ddp, optimizer in zip((first, second), optimizers, strict=True):
                train(ddp, optimizer, [step])
    return a.steps, a.strikes.landed > 0, b.steps, b.strikes.landed


def test_two_models_can_be_attached_at_a_time() -> None:
    assert together(two_models, 2) == [(4, True, 4, 0)] * 2


def on_a_part(members: list[int]) -> float | None:
    """DDP over a part of the world, with a synchronisation that overlaps."""
    group = dist.new_group(members)
    if dist.get_rank() not in members:
        return None
    torch.manual_seed(5)
    ddp = DistributedDataParallel(Net(), process_group=group)
    optimizer = sgd(ddp)
    with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=4, overlap=True)) as attached:
        train(ddp, optimizer, range(4))
        before = attached.divergence()
        assert attached.syncs == 0
    assert before > 0 and attached.syncs == 1
    return attached.divergence()


def test_a_model_on_a_part_of_the_world_is_attached_and_detaching_applies_what_is_pending() -> None:
    assert together(on_a_part, 3, [1, 2]) == [None, 0.0, 0.0]


# --- detached ----------------------------------------------------------------------------------------------------


def after_detaching(how: str) -> dict[str, Any]:
    """Train on after an attachment, beside DDP that never had one, from the same state."""
    ddp = build()
    optimizer = sgd(ddp)
    if how == "error":
        try:
            with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=2, overlap=True)):
                train(ddp, optimizer, range(3))
                raise KeyError("the user's own")
        except KeyError:
            pass
    else:
        with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=2, overlap=True)):
            train(ddp, optimizer, range(3))
    native = build()
    native.load_state_dict(ddp.state_dict())
    plain = sgd(native)
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # loading shares tensors
    train(ddp, optimizer, range(3, 8))
    train(native, plain, range(3, 8))
    return {"ours": bits(ddp), "native": bits(native), "hooks": len(optimizer._optimizer_step_post_hooks)}


@pytest.mark.parametrize("how", ["normally", "error"])
def test_detaching_leaves_plain_ddp_bit_for_bit(how: str) -> None:
    for found in together(after_detaching, 2, how):  # sums of two have one order, whatever the buckets
        assert found["ours"] == found["native"] and found["hooks"] == 0


def copied() -> list[Any]:
    """Copies of a model while it is attached and after: trained plainly, then attached themselves."""
    ddp = build()
    optimizer = sgd(ddp)
    models = []
    with paftbench.attach(ddp, optimizer, faults=noise(ranks=(1,))):
        train(ddp, optimizer, range(1))
        models.append(copy.deepcopy(ddp))
    models.append(copy.deepcopy(ddp))
    file = io.BytesIO()
    torch.save(ddp, file)
    file.seek(0)
    models.append(torch.load(file, weights_only=False))
    found = []
    for model in models:
        native, own = build(), sgd(model)
        native.load_state_dict(model.state_dict())
        train(native, sgd(native), range(2))
        train(model, own, range(2))
        alike = bits(native) == bits(model)
        with paftbench.attach(model, own, mitigations=sync(period=1)) as attached:
            train(model, own, range(1))
        found.append((alike, attached.steps, attached.divergence()))
    return found


def test_a_copy_of_an_attached_model_is_plain_ddp_and_can_be_attached() -> None:
    for found in together(copied, 2):
        assert found == [(True, 1, 0.0)] * 3


def overlapping_again() -> tuple[list[int], bool]:
    """Groups of this process after each of several attachments with an overlapped mean, then two such at a time."""
    ddp, other = build(), build()
    optimizer, optimizer_of_other = sgd(ddp), sgd(other)
    groups = []
    for _ in range(4):
        with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=1, overlap=True)):
            train(ddp, optimizer, range(2))
        groups.append(len(dist.distributed_c10d._world.pg_map))
    with (
        paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=1, overlap=True)) as first,
        paftbench.attach(other, optimizer_of_other, faults=noise(), mitigations=sync(period=1, overlap=True)) as second,
    ):
        for step in range(20):
            train(ddp, optimizer, [step])
            train(other, optimizer_of_other, [step])
    return groups, first.divergence() == second.divergence() == 0.0


def test_attachments_of_a_group_share_the_channel_of_their_overlapped_means() -> None:
    for groups, agree in together(overlapping_again, 3):
        assert groups == [2] * 4 and agree


def again() -> list[Any]:
    found: list[Any] = []
    ddp = build()
    optimizer = sgd(ddp)
    for _ in range(2):
        torch.manual_seed(5)
        ddp.module.load_state_dict(Net().state_dict())
        optimizer.state.clear()
        with paftbench.attach(ddp, optimizer, faults=noise(), mitigations=sync(period=2), seed=7) as attached:
            train(ddp, optimizer, range(5))
        found.append((bits(ddp), vars(attached.strikes), attached.steps))
    attached.detach()  # a second time: nothing happens
    return found


def test_attaching_again_after_detaching_starts_afresh() -> None:
    for first, second in together(again, 2):
        assert first == second and first[2] == 5
