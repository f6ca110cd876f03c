"""The CUDA device: pycuda for memory, modules and launches, NVRTC for compiling, cuTensorMap for copy descriptors.

Thin: what a kernel does is decided and printed by codegen. Packages load on first use; a machine without a driver gets
one sentence. Not for several devices at once, nor yet for driver graphs.
"""
from __future__ import annotations

import atexit
import ctypes
from dataclasses import dataclass, replace
from functools import cache
from typing import Sequence

import numpy as np

from minivt import dtypes
from minivt.codegen.distribute import distribute
from minivt.codegen.render.cuda import render
from minivt.codegen.target import SM_80, SM_90A, Target
from minivt.codegen.thread import Box, ThreadProgram
from minivt.codegen.tile import TileProgram
from minivt.dtypes import DType
from minivt.errors import BackendError, CompileError, MemoryLimitError
from minivt.graph import Node
from minivt.runtime.cache import content_key, disk_cache
from minivt.runtime.seam import Backend, Call, Progress, Runnable
from minivt.schedule.schedule import Launch
from minivt.symbolic import evaluate

DESCRIPTOR_BYTES = 128
CHOOSE = "or choose MINIVT_BACKEND=cpu"


def open_backend(device: str) -> CudaBackend:
    """The backend of "cuda" or "cuda:N"; BackendError where the driver, a package or the device is missing."""
    number = device.partition(":")[2] or "0"
    if not number.isdigit():
        raise BackendError(f"cuda: {device!r} is no device; write cuda or cuda:0, {CHOOSE}")
    return CudaBackend(int(number))


@dataclass
class Executable:
    """A loaded kernel; text and artifact are what was compiled."""
    program: ThreadProgram
    text: str
    artifact: bytes
    function: object


class CudaBackend(Backend):
    """One NVIDIA GPU. Work runs in order on one stream."""
    name = "cuda"

    def __init__(self, number: int):
        self.driver = _driver()
        if number >= self.driver.Device.count():
            raise BackendError(f"cuda: device {number} was asked for, {self.driver.Device.count()} are there; "
                               f"choose a lower number {CHOOSE}")
        device = self.driver.Device(number)
        context = device.retain_primary_context()
        context.push()
        atexit.register(context.pop)
        self.target = device_target(device.compute_capability(), device.multiprocessor_count,
                                    device.max_shared_memory_per_block_optin)
        self.stream = self.driver.Stream()
        self.loaded: dict[Node, Executable] = {}

    def allocate(self, nbytes: int):
        try:
            return self.driver.mem_alloc(max(1, nbytes))
        except self.driver.MemoryError:
            free, total = self.driver.mem_get_info()
            raise MemoryLimitError(f"cuda: {nbytes:,} bytes were asked for, {free:,} of {total:,} are free; "
                                   "use smaller sizes or free tensors") from None

    def from_host(self, array: np.ndarray):
        memory = self.allocate(array.nbytes)
        if array.nbytes:
            self.driver.memcpy_htod(memory, np.ascontiguousarray(array))
        return memory

    def to_host(self, memory, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        out = np.empty(shape, dtype.storage)
        if out.nbytes:
            self.driver.memcpy_dtoh(out, memory)
        return out

    def compile(self, launches: Sequence[Launch], progress: Progress | None = None) -> list[Executable]:
        for done, launch in enumerate(launches, 1):
            if launch.source not in self.loaded:
                self.loaded[launch.source] = self.load(launch.program)
            if progress:
                progress(done, len(launches))
        return [self.loaded[launch.source] for launch in launches]

    def load(self, program: TileProgram) -> Executable:
        """The kernel of a tile program, ready to launch."""
        lowered = distribute(program, self.target)
        text = render(lowered, self.target)
        cubin = compile_cubin(text, self.target.name)
        function = self.driver.module_from_buffer(cubin).get_function(lowered.name)
        attribute = self.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        if lowered.dynamic_shared_bytes:
            function.set_attribute(attribute, lowered.dynamic_shared_bytes)
        pointers = len(lowered.params) + bool(lowered.boxes)
        function.prepare("P" * pointers + "".join("q" if _wide(v) else "i" for v in lowered.variables))
        return Executable(lowered, text, cubin, function)

    def prepare(self, calls: list[Call]) -> Runnable:
        return Launches(self, calls)


class Launches(Runnable):
    """Calls in order on the backend's stream; descriptors are written again where memory or a size changed."""

    def __init__(self, backend: CudaBackend, calls: list[Call]):
        self.backend, self.calls = backend, [Call(c.executable, list(c.memories)) for c in calls]
        self.descriptors: list = [None] * len(calls)
        self.described: list = [None] * len(calls)

    def rebind(self, call: int, slot: int, memory) -> None:
        self.calls[call].memories[slot] = memory
        self.described[call] = None

    def run(self, values: dict[str, int]) -> None:
        for number, call in enumerate(self.calls):
            self._launch(number, call, values)
        self.backend.stream.synchronize()

    def _launch(self, number: int, call: Call, values: dict[str, int]) -> None:
        program: ThreadProgram = call.executable.program
        blocks = evaluate(program.blocks, values)
        if blocks == 0:
            return
        arguments = [call.memories[p.slot] for p in program.params]
        if program.boxes:
            arguments.insert(0, self._describe(number, call, values))
        call.executable.function.prepared_async_call(
            (blocks, 1), (program.threads, 1, 1), self.backend.stream, *arguments,
            *(values[v.arg[0]] for v in program.variables), shared_size=program.dynamic_shared_bytes)

    def _describe(self, number: int, call: Call, values: dict[str, int]):
        """Device memory with the call's copy descriptors."""
        boxes = call.executable.program.boxes
        sizes = tuple(tuple(evaluate(s, values) for s in box.sizes) for box in boxes)
        if self.described[number] != sizes:
            maps = b"".join(tensor_map(box, s, int(call.memories[box.param.slot])) for box, s in zip(boxes, sizes))
            if self.descriptors[number] is None:
                self.descriptors[number] = self.backend.allocate(len(maps))
            self.backend.driver.memcpy_htod(self.descriptors[number], maps)
            self.described[number] = sizes
        return self.descriptors[number]


# --- driver and compiler ---------------------------------------------------------------------------------------------

@cache
def _driver():
    """pycuda's driver module, initialised."""
    try:
        import pycuda.driver as driver
    except ModuleNotFoundError:
        raise BackendError("cuda: pycuda is not installed; in the clone of minivt, pip install -e '.[cuda]', "
                           f"{CHOOSE}") from None
    except ImportError:
        raise BackendError(f"cuda: libcuda.so.1 was not found; install the NVIDIA driver {CHOOSE}") from None
    try:
        driver.init()
    except driver.Error as error:
        raise BackendError(f"cuda: the driver found no usable device ({error}); check nvidia-smi {CHOOSE}") from None
    return driver


def device_target(capability: tuple[int, int], units: int, shared_bytes: int) -> Target:
    """What code is generated for: Hopper's own instructions on 9.0, warp-wide products from 8.0, else plain CUDA."""
    if capability == (9, 0):
        return replace(SM_90A, units=units)
    name = f"sm_{capability[0]}{capability[1]}"
    matrix = SM_80.matrix if capability >= (8, 0) else ()
    return replace(SM_80, name=name, shared_bytes=shared_bytes, units=units, matrix=matrix)


def compile_cubin(text: str, architecture: str) -> bytes:
    """Machine code of CUDA C++ text for an architecture such as "sm_90a"; needs no driver. Cached on disk.

    Raises CompileError with the compiler's first complaint.
    """
    nvrtc = _nvrtc()
    key = content_key("nvrtc", "%d.%d" % _checked(nvrtc.nvrtcVersion()), architecture, text)
    found = disk_cache().get(key)
    if found is None:
        found = _compile(nvrtc, text, architecture)
        disk_cache().put(key, found)
    return found


def _compile(nvrtc, text: str, architecture: str) -> bytes:
    program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    options = [f"--gpu-architecture={architecture}".encode(), b"-std=c++17"]
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), options)[0].value:
            log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
            log = bytes(log)
            nvrtc.nvrtcGetProgramLog(program, log)
            lines = [line for line in log.decode(errors="replace").splitlines() if "error" in line]
            raise CompileError(f"cuda: NVRTC rejected a kernel's code: {lines[0] if lines else 'no reason given'}; "
                               "this is a fault in minivt: please report it with the output of minivt.explain")
        code = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@cache
def _nvrtc():
    try:
        from cuda.bindings import nvrtc
        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):
        raise BackendError("cuda: NVRTC was not found; in the clone of minivt, pip install -e '.[cuda]', "
                           f"{CHOOSE}") from None
    return nvrtc


def _checked(result: tuple):
    """The values after a status; BackendError where the status is not success."""
    if result[0].value:
        raise BackendError(f"cuda: a call failed with {result[0]!r}; check the driver and nvidia-smi")
    return result[1] if len(result) == 2 else result[1:]


def tensor_map(box: Box, sizes: tuple[int, ...], address: int) -> bytes:
    """The 128 bytes of a bulk-copy descriptor of a parameter at a device address (CUDA driver API, tensor maps)."""
    from cuda.bindings import driver
    kinds = driver.CUtensorMapDataType
    kind = {dtypes.bfloat16: kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            dtypes.float16: kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            dtypes.float32: kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT32}[box.param.dtype]
    spans = driver.CUtensorMapSwizzle
    swizzle = {128: spans.CU_TENSOR_MAP_SWIZZLE_128B, 64: spans.CU_TENSOR_MAP_SWIZZLE_64B,
               32: spans.CU_TENSOR_MAP_SWIZZLE_32B}[box.span]
    itemsize = box.param.dtype.itemsize
    made = _checked(driver.cuTensorMapEncodeTiled(
        kind, len(sizes), address + box.offset * itemsize, [driver.cuuint64_t(max(1, s)) for s in sizes],
        [driver.cuuint64_t(s * itemsize) for s in box.strides], [driver.cuuint32_t(b) for b in box.box],
        [driver.cuuint32_t(1)] * len(sizes), driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
    return ctypes.string_at(made.getPtr(), DESCRIPTOR_BYTES)


def _wide(variable) -> bool:
    return variable.arg[2] >= 1 << 31
