"""A bounds-checked, memory-mapped reader of GGUF model files, versions 2 and 3, little-endian.

For: metadata as Python values and tensors as read-only NumPy views that stay packed as they are in the file.
Not for: writing files, nor computing with weights (quantization.py does).

Everything the header says is checked against the size of the file before a byte of tensor data is mapped, and
no count is believed before the bytes it promises are known to be there.  Every defect of a file is a LoadError.
Source: the GGUF specification (docs/gguf.md of ggml).
"""
from __future__ import annotations

import math
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minivt.errors import LoadError
from minivt.models.quantization import FORMATS, Format

HEADER_LIMIT = 256 << 20            # bytes; the largest vocabularies in use need about 20 MiB
DEFAULT_ALIGNMENT = 32              # bytes, where general.alignment is absent
MAX_DIMENSIONS = 4
MAX_NESTING = 4                     # arrays of arrays

# Value types of metadata: the number in the file -> how one value is stored.
SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
BOOL, STRING, ARRAY = 7, 8, 9
SMALLEST = {**{kind: np.dtype(code).itemsize for kind, code in SCALARS.items()}, BOOL: 1, STRING: 8, ARRAY: 12}

# Tensor types: the number in the file -> its name.  Those in quantization.FORMATS can be loaded.
TENSOR_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}
SMALLEST_TENSOR_INFO = 8 + 4 + 8 + 4 + 8        # empty name, one dimension


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor: `shape` is the logical one, last axis contiguous; `data` is a read-only view of the file.

    data: float32 or float16 in `shape`, or uint8 (..., blocks, block_bytes) for a block format.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass(frozen=True)
class GGUF:
    """An open model file: its metadata by key and its tensors by name, both in file order."""

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]

    def field(self, key: str, kind: type, default: Any = None) -> Any:
        """The metadata value at `key`, of type `kind`; LoadError where absent with no default, or of another type."""
        value = self.metadata.get(key, default)
        if value is None:
            raise LoadError(f'{self.path.name}: metadata "{key}" is missing')
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise LoadError(f'{self.path.name}: metadata "{key}" is of type {type(value).__name__}, '
                            f'{kind.__name__} is needed')
        return value

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(tensor.data.nbytes for tensor in self.tensors.values())

    @property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())


def open_gguf(path: str | os.PathLike) -> GGUF:
    """Open a GGUF file.

    Tensor data is mapped, not read: pages come in when they are first used.
    Errors: LoadError, for a path that is no readable regular file and for any defect of its contents.
    """
    path = Path(path)
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
        file = open(path, "rb") if regular else None
    except (OSError, ValueError) as error:             # ValueError: a NUL in the path
        raise LoadError(f"{path}: cannot be opened: {getattr(error, 'strerror', None) or error}") from error
    if file is None:
        raise LoadError(f"{path}: not a regular file; give the path of a .gguf file")
    with file:
        return read_gguf(file, path)


def read_gguf(file: BinaryIO, path: Path) -> GGUF:
    header = HeaderReader(file, path.name)
    version = read_version(header)
    tensor_count = header.count("tensor count", SMALLEST_TENSOR_INFO)
    metadata_count = header.count("metadata count", SMALLEST[STRING] + 4 + 1)
    metadata = read_metadata(header, metadata_count)
    alignment = read_alignment(header, metadata)
    infos = read_tensor_infos(header, tensor_count, alignment)
    start = -(-header.position // alignment) * alignment
    check_extents(infos, header, start)
    return GGUF(path, version, metadata, map_tensors(file, infos, start))


class HeaderReader:
    """Reads little-endian values in order and refuses to pass the end of the file or of the header limit."""

    def __init__(self, file: BinaryIO, name: str):
        self.file, self.name, self.position = file, name, 0
        self.size = os.fstat(file.fileno()).st_size
        self.end = min(self.size, HEADER_LIMIT)

    def fail(self, message: str) -> LoadError:
        return LoadError(f"{self.name}: {message}")

    def require(self, nbytes: int, what: str) -> None:
        if nbytes > self.end - self.position:
            raise self.fail(f"{what} needs {nbytes} bytes at byte {self.position}, the file has "
                            f"{self.size} and its header may take {HEADER_LIMIT}; download it again")

    def take(self, nbytes: int, what: str) -> bytes:
        self.require(nbytes, what)
        data = self.file.read(nbytes)
        if len(data) != nbytes:                        # somebody shortened the file since it was opened
            raise self.fail(f"{what} ends early: {len(data)} of {nbytes} bytes came")
        self.position += nbytes
        return data

    def u32(self, what: str) -> int:
        return struct.unpack("<I", self.take(4, what))[0]

    def u64(self, what: str) -> int:
        return struct.unpack("<Q", self.take(8, what))[0]

    def count(self, what: str, smallest: int) -> int:
        """A 64-bit count of items that take at least `smallest` bytes each and follow somewhere in the header."""
        count = self.u64(what)
        if count > (self.end - self.position) // smallest:
            raise self.fail(f"{what} is {count}, more than the file's {self.size} bytes can hold")
        return count

    def string(self, what: str) -> str:
        data = self.take(self.u64(what), what)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8: byte {error.start} of {len(data)} is {data[error.start]:#04x}") \
                from error

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """One metadata value: a Python scalar, a str, a NumPy array of scalars, or a list of str or arrays."""
        if kind in SCALARS:
            return self.numbers(SCALARS[kind], 1, what)[0].item()
        if kind == BOOL:
            return bool(self.bools(1, what)[0])
        if kind == STRING:
            return self.string(what)
        if kind == ARRAY:
            return self.array(what, depth)
        raise self.fail(f"{what} has value type {kind}, allowed are 0 to 12")

    def array(self, what: str, depth: int) -> Any:
        if depth == MAX_NESTING:
            raise self.fail(f"{what} nests arrays more than {MAX_NESTING} deep")
        kind = self.u32(what)
        if kind not in SMALLEST:
            raise self.fail(f"{what} has elements of value type {kind}, allowed are 0 to 12")
        count = self.count(f"{what}: its length", SMALLEST[kind])
        if kind in SCALARS:
            return self.numbers(SCALARS[kind], count, what)
        if kind == BOOL:
            return self.bools(count, what)
        return [self.value(kind, what, depth + 1) for _ in range(count)]

    def numbers(self, code: str, count: int, what: str) -> np.ndarray:
        dtype = np.dtype(code)
        return np.frombuffer(self.take(count * dtype.itemsize, what), dtype)

    def bools(self, count: int, what: str) -> np.ndarray:
        values = self.numbers("u1", count, what)
        if count and values.max() > 1:
            raise self.fail(f"{what} holds byte {values.max()} as a bool, allowed are 0 and 1")
        return values.astype(bool)


def read_version(header: HeaderReader) -> int:
    magic = header.take(4, "magic")
    if magic != b"GGUF":
        raise header.fail(f"is not a GGUF file: it begins with {magic!r}, not b'GGUF'")
    version = header.u32("version")
    if version in (2 << 24, 3 << 24):
        raise header.fail("is a big-endian GGUF file; only little-endian ones are supported")
    if version not in (2, 3):
        raise header.fail(f"has GGUF version {version}, supported are 2 and 3")
    return version


def read_metadata(header: HeaderReader, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for number in range(count):
        key = header.string(f"metadata key {number}")
        if key in metadata:
            raise header.fail(f'metadata "{key}" appears twice')
        what = f'metadata "{key}"'
        metadata[key] = header.value(header.u32(what), what)
    return metadata


def read_alignment(header: HeaderReader, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 8 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise header.fail(f'metadata "general.alignment" is {alignment!r}, a power of two from 8 to 2**20 is needed')
    return alignment


@dataclass(frozen=True)
class TensorInfo:
    """What the header says of one tensor; `offset` counts from the start of the data section."""

    name: str
    format: Format
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) // self.format.block * self.format.block_bytes


def read_tensor_infos(header: HeaderReader, count: int, alignment: int) -> list[TensorInfo]:
    infos: dict[str, TensorInfo] = {}
    for number in range(count):
        name = header.string(f"name of tensor {number}")
        if name in infos:
            raise header.fail(f'tensor "{name}" appears twice')
        infos[name] = read_tensor_info(header, name, alignment)
    return list(infos.values())


def read_tensor_info(header: HeaderReader, name: str, alignment: int) -> TensorInfo:
    what = f'tensor "{name}"'
    rank = header.u32(what)
    if not 1 <= rank <= MAX_DIMENSIONS:
        raise header.fail(f"{what} has {rank} dimensions, allowed are 1 to {MAX_DIMENSIONS}")
    dimensions = struct.unpack(f"<{rank}Q", header.take(8 * rank, what))
    if 0 in dimensions:
        raise header.fail(f"{what} has dimensions {dimensions}, each must be at least 1")
    format = read_format(header, what)
    if dimensions[0] % format.block:
        raise header.fail(f"{what} has rows of {dimensions[0]} elements, {format.name} packs blocks of {format.block}")
    offset = header.u64(what)
    if offset % alignment:
        raise header.fail(f"{what} starts at offset {offset}, a multiple of {alignment} is needed")
    return TensorInfo(name, format, dimensions[::-1], offset)      # the file lists the fastest axis first


def read_format(header: HeaderReader, what: str) -> Format:
    number = header.u32(what)
    name = TENSOR_TYPES.get(number, f"number {number}")
    if name not in FORMATS:
        raise header.fail(f"{what} has type {name}, supported are {', '.join(FORMATS)}")
    return FORMATS[name]


def check_extents(infos: list[TensorInfo], header: HeaderReader, start: int) -> None:
    """Every tensor lies inside the file and no two share a byte."""
    end, owner = 0, ""
    for info in sorted(infos, key=lambda info: info.offset):
        if info.offset < end:
            raise header.fail(f'tensor "{info.name}" at offset {info.offset} overlaps tensor "{owner}", '
                              f"which ends at {end}")
        end, owner = info.offset + info.nbytes, info.name
        if start + end > header.size:
            raise header.fail(f'tensor "{info.name}" ends at byte {start + end}, the file has {header.size}; '
                              "download it again")


def map_tensors(file: BinaryIO, infos: list[TensorInfo], start: int) -> dict[str, GGUFTensor]:
    if not infos:
        return {}
    data = np.memmap(file, np.uint8, "r", start, max(info.offset + info.nbytes for info in infos))
    tensors = {}
    for info in infos:
        view = data[info.offset:info.offset + info.nbytes].view(info.format.storage)
        view = view.reshape(info.format.storage_shape(info.shape)).view(np.ndarray)
        tensors[info.name] = GGUFTensor(info.name, info.format.name, info.shape, view)
    return tensors
