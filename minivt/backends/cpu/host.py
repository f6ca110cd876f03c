"""What this machine's processor offers, as data: the instruction set that kernels may use and its cache sizes.

`MINIVT_CPU` picks a weaker instruction set than the host's, so that one machine tests them all.
Not for deciding tiles; code generation does that from these facts.
"""

import functools
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from minivt.errors import BackendError


@dataclass(frozen=True)
class InstructionSet:
    """A level to compile for: LLVM's name of a processor that has it, and the host features that it takes."""

    cpu: str
    vector_bits: int
    requires: frozenset[str]


_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi2"})
_AVX512 = _AVX2 | {"avx512f", "avx512vl", "avx512bw", "avx512dq"}

# Strongest first: "native" takes its width from the first that the host has.
INSTRUCTION_SETS = {
    "x86_64": {
        "avx512": InstructionSet("x86-64-v4", 512, _AVX512),
        "avx2": InstructionSet("x86-64-v3", 256, _AVX2),
        "sse2": InstructionSet("x86-64", 128, frozenset()),
    },
    "aarch64": {"neon": InstructionSet("generic", 128, frozenset())},
}


@dataclass(frozen=True)
class HostTarget:
    """A processor to compile for. Sizes are bytes per core; a shared cache counts as its share."""

    name: str  # "avx512", "avx2", "sse2", "neon", or "native" with all that the host has
    triple: str
    cpu: str  # LLVM's name
    features: str  # LLVM's list, "+a,-b"; empty: what `cpu` implies
    vector_bits: int  # 512, 256 or 128
    has_fma: bool
    has_bf16_dot: bool  # products of bfloat16 pairs summed in float32: vdpbf16ps, bfdot
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int

    @property
    def fast_bf16_dot(self) -> bool:
        """Whether those products beat widening and fused multiply-adds: twice their rate on Zen 4 and later, half of it
        on the Intel cores measured."""
        return self.has_bf16_dot and self.cpu.startswith("znver")


def host_target() -> HostTarget:
    """The target that MINIVT_CPU names ("native" when unset). Raises BackendError for one that the host lacks."""
    return _host_target(os.environ.get("MINIVT_CPU", "") or "native")


@functools.cache
def _host_target(name: str) -> HostTarget:
    from llvmlite import binding

    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    if machine not in INSTRUCTION_SETS:
        raise BackendError(f"cpu: the processor is {machine}; the cpu backend takes {', '.join(INSTRUCTION_SETS)}: "
                           "choose another MINIVT_BACKEND")
    host = dict(binding.get_host_cpu_features())
    levels = {key: level for key, level in INSTRUCTION_SETS[machine].items()
              if all(host.get(feature, False) for feature in level.requires)}
    if name != "native" and name not in levels:
        raise BackendError(f"MINIVT_CPU is {name!r}; this processor has {', '.join(levels)}: choose one of them, "
                           "or native for all that it has")
    native = name == "native"
    level = next(iter(levels.values())) if native else levels[name]
    l1d, l2, l3 = cache_bytes_per_core()
    return HostTarget(
        name=name,
        triple=binding.get_process_triple(),
        cpu=binding.get_host_cpu_name() if native else level.cpu,
        features=_feature_string(host) if native else "",
        vector_bits=level.vector_bits,
        has_fma=machine == "aarch64" or "fma" in level.requires,
        has_bf16_dot=native and host.get({"x86_64": "avx512bf16", "aarch64": "bf16"}[machine], False),
        l1d_bytes=l1d, l2_bytes=l2, l3_bytes=l3)


def _feature_string(host: dict[str, bool]) -> str:
    return ",".join(("+" if on else "-") + feature for feature, on in sorted(host.items()))


def cache_bytes_per_core(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[int, int, int]:
    """(L1 data, L2, L3) bytes that one core can count on; modest guesses for what the system does not say."""
    levels = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size, shared = ((index / item).read_text().strip()
                                         for item in ("level", "type", "size", "shared_cpu_list"))
            if kind != "Instruction":
                levels[int(level)] = (_parse_size(size), _count_cpus(shared))
        except (OSError, ValueError):
            continue
    siblings = levels.get(1, (0, 1))[1]  # hardware threads of one core: they share its L1
    guesses = {1: 32 << 10, 2: 512 << 10, 3: 1 << 20}
    found = {level: size * min(siblings, sharers) // sharers for level, (size, sharers) in levels.items()}
    return tuple(found.get(level) or guess for level, guess in guesses.items())


def _parse_size(text: str) -> int:
    """Bytes of "48K" or "2M"."""
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    return int(text.rstrip("KMG")) << unit


def _count_cpus(ranges: str) -> int:
    """CPUs in a list such as "0-3,8"."""
    bounds = [part.split("-") for part in ranges.split(",")]
    return sum(int(bound[-1]) - int(bound[0]) + 1 for bound in bounds)
