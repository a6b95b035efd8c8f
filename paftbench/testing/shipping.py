"""What a test and the processes of its ranks hand each other, in files of one folder.

Functions of a test module go to processes that have never seen it by module and name, with the file to load.
"""

import importlib
import importlib.util
import io
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from paftbench.errors import Refused

PARCEL = "parcel"  # the task; a rank's files end in its number
PID, STACK, FAILURE, OUTCOME = "pid", "stack", "failure", "outcome"
MAIN = "__main__"


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A pickled value, and where to find the modules that it names; itself plain enough to be pickled anywhere."""

    path: list[str]
    modules: dict[str, str]
    payload: bytes

    @classmethod
    def of(cls, value: Any) -> "Parcel":
        """`pickle.PicklingError`, `AttributeError` or `TypeError` for what has no importable name."""
        buffer = io.BytesIO()
        pickler = _Naming(buffer)
        pickler.dump(value)
        # A script's own functions say __main__, which in the other process is another program: its file is shipped.
        if MAIN in pickler.modules and _file(MAIN) is None:
            raise pickle.PicklingError("what an interactive session defines is in no file")
        files = {name: _file(name) for name in sorted(pickler.modules)}
        modules = {name: file for name, file in files.items() if file}
        return cls(path=list(sys.path), modules=modules, payload=buffer.getvalue())

    def open(self) -> Any:
        """The value, its modules imported as the sender had them."""
        # The payload is bytes until here, so that nothing is unpickled before its modules can be found.
        sys.path[:] = self.path
        for name, file in self.modules.items():
            _import(name, file)
        return pickle.loads(self.payload)


def check_importable(name: str, function: Any) -> None:
    """`ValueError` for a function that another process cannot import."""
    __tracebackhide__ = True
    try:
        Parcel.of(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        called = getattr(function, "__qualname__", type(function).__name__)
        raise Refused(
            f"{name} must be a top-level function of a module where ranks are processes (ranks_as='torchrun'), which "
            f"import it by name; {called} is not: move it to the top of its file, or use ranks_as='threads'"
        ) from None


def leave(path: Path, value: Any) -> None:
    """Write a value whole or not at all: the other side may look at any time."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(pickle.dumps(value))
    unfinished.rename(path)


def found(path: Path) -> Any:
    """What was left, or None."""
    return pickle.loads(path.read_bytes()) if path.exists() else None


class _Naming(pickle.Pickler):
    """Notes the modules of the functions and classes that are pickled by name."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        """Only looks: pickling goes on as usual."""
        # The one hook that the C pickler calls for functions and classes, which it writes as module and name.
        if isinstance(value, FunctionType | type):
            self.modules.add(value.__module__)
        return NotImplemented


def _file(name: str) -> str | None:
    file = getattr(sys.modules.get(name), "__file__", None)
    return str(Path(file).resolve()) if file and Path(file).is_file() else None


def _import(name: str, file: str) -> None:
    try:
        if name != MAIN and _file(importlib.import_module(name).__name__) == file:
            return
    except ImportError:
        pass
    # pytest may have loaded the file under a name that no search path gives. A script must not take itself for the one
    # that was started: it would start its ranks again.
    spec = importlib.util.spec_from_file_location("__paftbench_main__" if name == MAIN else name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {name} from {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
