"""Processes forked from a server that has imported torch and the package: commands without their seconds of imports.

`Popen` and `run` stand in for those of `subprocess` where a command is `[python, "-m", MODULE, *ARGUMENTS]` and what
is tested is not how a fresh interpreter starts. The module's `main()` runs in a fork of the server.
"""

import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from paftbench.process import announced, announcing
from paftbench.workloads.gpt2 import Gpt2
from paftbench.workloads.llama2 import Llama2
from paftbench.workloads.resnet import ResNet

PRELOAD = [
    "paftbench.sweep.engines.preload", *ResNet.imports, *Gpt2.imports, *Llama2.imports, "support.late_imports",
]  # fmt: skip
FREE = 200  # descriptors from here on are nobody's
WITHIN = {"paftbench.verify.child": ("paftbench.verify.processes",)}  # what a module's process starts is warm, too


def context() -> ForkServerContext:
    """The server's; it is shared with the engine under test, and imports what the first to ask for it names."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOAD)
    return found


def start() -> None:
    """Start the server; it imports meanwhile."""
    context()
    with announcing():
        forkserver.ensure_running()


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` of `[python, "-m", MODULE, *ARGUMENTS]`, warm."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any) -> None:
        pass_fds, cwd, env, _, _, _, into, ours_in, ours_out, out, ours_err, err, *more = rest
        assert preexec_fn is None
        options, _, tail = " ".join(args[1:]).partition("-m ")
        module, arguments = args[args.index("-m") + 1], args[args.index("-m") + 2 :]
        assert tail and options in ("", "-P "), args
        given = [stream if stream >= 0 else number for number, stream in enumerate((into, out, err))]
        self._process = context().Process(
            target=_become,
            args=(
                module, arguments, dict(os.environ if env is None else env), str(cwd or Path.cwd()), not options,
                {number: _Sent(stream) for number, stream in (*enumerate(given), *((fd, fd) for fd in pass_fds))},
                bool(more[-2]),
            ),
        )  # fmt: skip
        with announcing():
            self._process.start()
        assert self._process.pid is not None
        self.pid, self._child_created = self._process.pid, True
        for theirs, own in ((into, ours_in), (out, ours_out), (err, ours_err)):
            if theirs >= 0 and own >= 0:
                os.close(theirs)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            self.returncode = self._process.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._process.join(timeout)
        if self._internal_poll() is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


def run(
    command: list[str], *, check: bool = False, timeout: float | None = None, capture_output: bool = False, **more: Any
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run`, warm."""
    if capture_output:
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Sent:
    """A descriptor on its way to a process that is being started."""

    def __init__(self, number: int) -> None:
        self._number: Any = number

    def __getstate__(self) -> Any:
        return multiprocessing.reduction.DupFd(self._number)

    def __setstate__(self, sent: Any) -> None:
        self._number = sent

    def detach(self) -> int:
        return int(self._number.detach())


def _become(
    module: str, arguments: list[str], env: dict[str, str], cwd: str, here: bool, fds: dict[int, _Sent], session: bool
) -> None:
    """In the fork: what a fresh interpreter would find, then the module's `main()`."""
    import fcntl

    from paftbench import installed

    aside = {number: fcntl.fcntl(sent.detach(), fcntl.F_DUPFD, FREE) for number, sent in fds.items()}
    for number, descriptor in aside.items():
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.environ.update({name: str(os.getppid()) for name in announced() if name in env})
    os.chdir(cwd)
    sys.path[:0] = [cwd] * here + [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    for cached in (installed.registered, installed.load, installed.usable):
        cached.cache_clear()
    # What this process forks comes from the server that it came from itself.
    forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    loaded = importlib.import_module(module)
    sys.argv = [str(loaded.__file__), *arguments]
    with standing_in(*map(importlib.import_module, WITHIN.get(module, ()))):
        sys.exit(loaded.main())


@contextmanager
def standing_in(*modules: Any) -> Iterator[None]:
    """Modules that start processes start them warm."""
    fields = {name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "STDOUT", "TimeoutExpired")}
    warm = type("Warm", (), {**fields, "Popen": Popen, "run": staticmethod(run)})
    before = [module.subprocess for module in modules]
    for module in modules:
        module.subprocess = warm
    try:
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            module.subprocess = own
