"""Writes small GGUF files for tests: a valid file from metadata and tensors, field by field so that each can be bent.

Not for: anything but tests; the project itself only reads GGUF.
"""
from __future__ import annotations

import struct

import numpy as np

F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(item) -> bytes:
    """Type number and payload of a Python value: bool, int, float, str, or a list of one of them."""
    if isinstance(item, list):
        items = [value(each) for each in item]
        kind = items[0][:4] if items else struct.pack("<I", UINT32)
        return struct.pack("<I", ARRAY) + kind + struct.pack("<Q", len(items)) + b"".join(i[4:] for i in items)
    if isinstance(item, bool):
        return struct.pack("<IB", BOOL, item)
    if isinstance(item, int):
        return struct.pack("<II", UINT32, item)
    if isinstance(item, float):
        return struct.pack("<If", FLOAT32, item)
    return struct.pack("<I", STRING) + string(item)


def tensor_info(name: str, dimensions: tuple[int, ...], kind: int, offset: int) -> bytes:
    """`dimensions` in file order, fastest first."""
    rank = len(dimensions)
    return string(name) + struct.pack(f"<I{rank}QIQ", rank, *dimensions, kind, offset)


def header(tensor_count: int, metadata_count: int, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensor_count, metadata_count)


def pad(data: bytes, alignment: int = 32) -> bytes:
    return data + b"\0" * (-len(data) % alignment)


def gguf_bytes(metadata: dict, tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> bytes:
    """A whole file; tensors maps a name to (type, logical shape, stored bytes)."""
    head = header(len(tensors), len(metadata))
    for key, item in metadata.items():
        head += string(key) + value(item)
    offset, body = 0, b""
    for name, (kind, shape, data) in tensors.items():
        head += tensor_info(name, shape[::-1], kind, offset)
        body += pad(data)
        offset = len(body)
    return pad(head) + body


# --- packed weights and what they mean, in NumPy ---

def random_q4_1(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """(rows, blocks, 20) uint8 with ordinary scales and offsets."""
    return random_blocks(rng, rows, columns // 32, halves=2, quants=16)


def random_q8_0(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """(rows, blocks, 34) uint8 with ordinary scales."""
    return random_blocks(rng, rows, columns // 32, halves=1, quants=32)


def random_blocks(rng: np.random.Generator, rows: int, blocks: int, halves: int, quants: int) -> np.ndarray:
    scales = rng.normal(0, 0.02, (rows, blocks, halves)).astype("<f2").view(np.uint8)
    return np.concatenate([scales, rng.integers(0, 256, (rows, blocks, quants), np.uint8)], -1)


def numpy_q4_1(packed: np.ndarray) -> np.ndarray:
    """(rows, blocks, 20) uint8 to (rows, blocks * 32) float32, element by element as the format is defined."""
    rows, blocks, _ = packed.shape
    d, m = np.ascontiguousarray(packed[..., :4]).view("<f2").astype(np.float32).transpose(2, 0, 1)
    out = np.empty((rows, blocks, 32), np.float32)
    for j in range(32):
        q = packed[..., 4 + j % 16] & 15 if j < 16 else packed[..., 4 + j % 16] >> 4
        out[..., j] = d * q.astype(np.float32) + m
    return out.reshape(rows, -1)


def numpy_q8_0(packed: np.ndarray) -> np.ndarray:
    """(rows, blocks, 34) uint8 to (rows, blocks * 32) float32."""
    d = np.ascontiguousarray(packed[..., :2]).view("<f2").astype(np.float32)
    q = np.ascontiguousarray(packed[..., 2:]).view(np.int8).astype(np.float32)
    return (d * q).reshape(len(packed), -1)
