"""Which processor this is, and the switches that make its libraries take other paths on it.

The bits of a sum hang on both: oneDNN and MKL choose their code by vendor and model, by caches, and by variables of
their own, none of which torch's `get_cpu_capability` knows.
"""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")
CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
# What Linux calls them, on x86 and on Arm, whose model is a part in a variant.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "variant": ("CPU variant",),
    "stepping": ("stepping", "CPU revision"),
    "name": ("model name",),
}
_FLAGS: Final = ("flags", "Features")
_PREFIXES: Final = (
    "ACL_", "ARMPL_", "ATEN_", "BLIS_", "CUBLAS_", "DNNL_", "GOMP_", "KMP_", "MKL_", "NPY_", "NVIDIA_TF32", "OMP_",
    "ONEDNN_", "OPENBLAS_", "TORCH_ALLOW_TF32", "TORCH_MKLDNN", "VECLIB_",
)  # fmt: skip
_SAYS_ONLY: Final = ("VERBOSE", "DISPLAY", "DUMP", "PROFILE", "PROF_")  # what is printed or written, maybe to a path


def processor(cpuinfo: Path = CPUINFO, caches: Path = CACHES) -> dict[str, str] | None:
    """Vendor, family, model, stepping and name, a hash of the flags, the caches; what is known of them, or None.

    A machine with cores of several kinds has the values of each.
    """
    try:
        found = _of_linux(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        name = _asked()
        return {"name": name} if name else None
    sizes = [_line(path / "size") for path in sorted(caches.glob("index*"))]
    return found | ({"caches": " ".join(sizes)} if any(sizes) else {}) if found else None


def switches(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that are set and choose paths, by name; those that only make a library say something left out."""
    names = sorted(os.environ if environ is None else environ)
    values = os.environ if environ is None else environ
    return {
        name: values[name]
        for name in names
        if name.startswith(_PREFIXES) and not any(part in name for part in _SAYS_ONLY) and "/" not in values[name]
    }


def _of_linux(text: str) -> dict[str, str]:
    lines = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in text.splitlines())]
    found = {name: _joined(value for key, value in lines if key in keys) for name, keys in _NAMES.items()}
    flags = _joined(" ".join(sorted(value.split())) for key, value in lines if key in _FLAGS)
    if flags:
        found["flags"] = hashlib.sha256(flags.encode()).hexdigest()[:16]
    return {name: value for name, value in found.items() if value}


def _joined(values: Iterable[str]) -> str:
    """Every value once, in the order of the cores."""
    return ", ".join(dict.fromkeys(values))


def _asked() -> str:
    """What a system without /proc calls its processor."""
    try:
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return platform.processor()


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
