"""A training that survives: `for step, batch in run.steps(loader, until=...)`, `run.step(loss)` after each backward."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paftbench.errors import Refused
from paftbench.ranks.axis import Ranks
from paftbench.resilience.anomaly import Anomaly, Robust, Rule, Vitals
from paftbench.resilience.batches import Batches
from paftbench.resilience.checkpoints import Checkpoints, Loaded, opened_in
from paftbench.resilience.events import Events
from paftbench.resilience.order import Answer
from paftbench.resilience.random_states import random_states, set_random_states
from paftbench.resilience.rungs import Action, Recovery, Rungs
from paftbench.resilience.state_tree import difference
from paftbench.telling import reason_of


class GaveUp(RuntimeError):
    """Every rung of the recovery was tried: what is wrong is not passing."""


class Stateful(Protocol):
    """Anything that a checkpoint holds a part of."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


class ResilientRun:
    """What watches, recovers, saves and logs a user's own training loop, on every rank alike.

    `model` is the DDP model (or any module where there is one process), `optimizer` updates it. `scheduler`, `sampler`,
    `scaler`, `attached` and further `parts` are saved and loaded with them. The directory holds `checkpoints/` and
    `events.jsonl`. `ValueError` where it cannot be written, or holds a checkpoint of another model.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any = None,
        sampler: Any = None,
        scaler: Any = None,
        attached: Stateful | None = None,
        parts: dict[str, Stateful] | None = None,
        checkpoints: Checkpoints | None = None,
        monitor: Rule | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.model, self.optimizer, self.scheduler, self.scaler = model, optimizer, scheduler, scaler
        self.sampler = sampler
        self.monitor = monitor or Robust()
        self.rungs = Rungs(recovery or Recovery())
        self.completed = 0
        self._ranks = _ranks()
        self._saver = opened_in(self.directory / "checkpoints", self._ranks, checkpoints or Checkpoints())
        named = {"scheduler": scheduler, "scaler": scaler, "attached": attached, "sampler": sampler, **(parts or {})}
        self._parts: dict[str, Stateful] = {name: part for name, part in named.items() if part is not None}
        self._events = Events(
            self.directory, run=self.directory.name, generation=self._saver.fence.generation, rank=self._ranks.local[0]
        )
        self._since = time.monotonic()
        self._healthy_since: int | None = None
        self._saved: deque[int] = deque()
        self._earned: int | None = None
        self._batch = 0

    def steps(self, loader: Iterable[Any], until: int) -> Iterator[tuple[int, Any]]:
        """(step, batch) from the newest checkpoint on, or from 0, until `until` steps are completed.

        With a `sampler` the loader is taken up where its state says; without one it is read from its beginning, as many
        batches as steps were completed, before random states are restored.
        """
        loaded = self._load(self._saver.load())
        # Before random states are restored: a loader draws from them when it begins, as it did when the run began.
        batches = Batches(loader, skipped=0 if "sampler" in self._parts else self.completed)
        if loaded is not None:
            set_random_states(loaded.state["random"])
        self._events.say("started", step=self.completed, until=until, world_size=self._ranks.world_size)
        try:
            while self.completed < until:
                step, batch = self.completed, next(batches)
                self._batch = getattr(loader, "batch_size", None) or 1
                yield step, batch
            self._events.say("finished", step=self.completed)
        finally:
            self._told(self._saver.close())

    def __enter__(self) -> "ResilientRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the save in flight, and say what ended the run."""
        if error is not None:
            self._events.failed(error, step=self.completed)
        self._told(self._saver.close())
        self._events.close()

    def step(self, loss: Tensor) -> Action:
        """Judge the step with all ranks, and update the model, or do what recovery says; call it after each backward.

        Gradients are zero afterwards. Gives what was done. `GaveUp` after the last rung.
        """
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        vitals = self._vitals(loss)
        anomaly = None if self.scaler is not None and not vitals.finite else self.monitor.judge(vitals)
        action = self.rungs.climb(anomaly)
        self._consumed()
        if anomaly is not None:
            self._events.say(
                "anomaly", step=self.completed, kind=anomaly.kind, value=anomaly.value, limit=anomaly.limit,
                of_rank=anomaly.rank, action=action, multiplier=self.rungs.multiplier,
            )  # fmt: skip
        if action == "give up":
            raise GaveUp(
                f"step {self.completed}: {anomaly}; every rung of the recovery was tried, see {self.directory}"
            )
        if action == "roll back":
            self.optimizer.zero_grad()
            self._roll_back(anomaly)
            return action
        if action == "update" or (action == "cool" and vitals.finite):
            self._update(clip=None if anomaly is None else anomaly.limit)
            if anomaly is None:
                self.monitor.accept(vitals)
        self.optimizer.zero_grad()
        self._complete(vitals, healthy=anomaly is None)
        return action

    def _complete(self, vitals: Vitals, *, healthy: bool) -> None:
        now = time.monotonic()
        if self._ranks.hosts_first:
            seconds = now - self._since
            self._events.say("step", step=self.completed, loss=vitals.loss, grad_norm=vitals.norm, seconds=seconds)
        self._since = now
        self.completed += 1
        self._healthy_since = (self._healthy_since or self.completed) if healthy else None
        self._mark_stable()
        self._told(self._saver.poll())
        every = self._saver.config.every
        if every and self.completed % every == 0:
            self._saved.append(self.completed)
            self._told(self._saver.save(self.completed, self._state(), {"completed": self.completed}))

    def _update(self, clip: float | None) -> None:
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * self.rungs.multiplier
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        if self.scheduler is not None:
            self.scheduler.step()

    def _vitals(self, loss: Tensor) -> Vitals:
        """One small collective: this rank's loss and gradient norm, beside every other's."""
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients) if gradients else torch.zeros(())
        own = torch.stack([loss.detach().double().cpu().mean(), norm.detach().double().cpu()])
        every = self._ranks.gather(own.expand(len(self._ranks.local), 2).contiguous()).tolist()
        return Vitals(losses=tuple(row[0] for row in every), norms=tuple(row[1] for row in every))

    def _consumed(self) -> None:
        if self.sampler is not None and hasattr(self.sampler, "consumed"):
            self.sampler.consumed += self._batch * self._ranks.world_size

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            "monitor": self.monitor.state_dict(),
            "rungs": self.rungs.state_dict(),
            "random": random_states(),
        }

    def _load(self, loaded: Loaded | None) -> Loaded | None:
        """Take a checkpoint up, all of it or nothing."""
        for path, why in self._saver.passed_over:
            self._events.say("set aside", path=str(path), why=why)
        if loaded is None:
            return None
        state = loaded.state
        found = difference(self.model.state_dict(), state["model"], "model")
        if found is None and state["parts"].keys() != self._parts.keys():
            found = f"it has the parts {sorted(state['parts'])} and the run {sorted(self._parts)}"
        if found is not None:
            raise Refused(f"{self._saver.shelf.folder} holds checkpoints of another training: {found}")
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except (ValueError, KeyError) as error:
            raise Refused(f"the checkpoint is of another optimizer: {reason_of(error)}") from error
        self.model.load_state_dict(state["model"])
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self.monitor.load_state_dict(state["monitor"])
        self.rungs.load_state_dict(state["rungs"])
        self.completed = loaded.step
        self._events.say("loaded", step=loaded.step, world_size=loaded.world_size)
        return loaded

    def _roll_back(self, anomaly: Anomaly | None) -> None:
        """To the newest stable checkpoint, or the newest; data go on, so that what was harmful is not seen again."""
        self._told(self._saver.close())
        self._mark_stable()
        self._ranks.barrier()
        loaded = self._saver.load(stable=True)
        if loaded is None:
            raise GaveUp(f"step {self.completed}: {anomaly}; there is no checkpoint to go back to")
        since, rungs = self.completed, self.rungs.state_dict()
        consumed = getattr(self.sampler, "consumed", None)
        self._load(loaded)
        # What the incident has taught stays: the rungs tried, and the place in the data.
        self.rungs.load_state_dict(rungs)
        if self.sampler is not None and consumed is not None:
            self.sampler.consumed = consumed
        self._healthy_since = None
        self._saved.clear()
        self._events.say("recovery", step=self.completed, rolled_back_from=since, cause=str(anomaly))

    def _mark_stable(self) -> None:
        """The newest checkpoint that enough healthy steps in a row have followed, once it is published."""
        enough = self.completed - self._saver.config.stable_after
        while self._saved and self._saved[0] <= enough:
            step = self._saved.popleft()
            if self._healthy_since is not None and self._healthy_since <= step:
                self._earned = step
        if self._earned is None or self._earned == self._saver.in_flight:
            return
        if self._ranks.hosts_first:
            for item in self._saver.shelf.newest_first():
                if item.step == self._earned:
                    self._saver.shelf.mark_stable(item)
                    break
        self._earned = None

    def _told(self, answer: Answer | None) -> None:
        """An asynchronous save's end, at the step after which it is known."""
        if answer is None:
            return
        if answer.error is not None:
            self._events.say("checkpoint lost", step=self.completed, of_step=answer.step, why=answer.error)
        else:
            self._events.say("checkpoint", step=self.completed, of_step=answer.step, seconds=answer.seconds)


def _ranks() -> Ranks:
    """Those of the default process group; one where there is none."""
    if not dist.is_initialized():
        return Ranks.virtual(1)
    group = dist.group.WORLD
    assert group is not None
    return Ranks.of_group(dist.get_world_size(), group)
