"""Layouts as data: which thread and register hold an element of a tile, and at which address of shared memory it lies.

A fragment layout is two nested shape:stride lists, one over the threads of a group and one over the registers of each
thread; a stride is a step along a named axis of the tile. `4:2@n, 8:1@m` reads: the first 4 threads lie 2 apart along
n, and 8 such rows of threads lie 1 apart along m. A shared layout is rows of at most 128 bytes, side by side, with an
XOR swizzle. Conversions, vector widths, bank conflicts and matrix descriptors are computed from these. Not for
choosing layouts (distribute) and not for instructions (render).
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

BANKS, BANK_BYTES = 32, 4


@dataclass(frozen=True)
class Mode:
    """`size` places whose elements lie `step` apart along `axis`; axis None: places that hold copies."""
    size: int
    axis: object | None
    step: int

    def __repr__(self) -> str:
        return f"{self.size}:{self.step}@{self.axis}" if self.axis is not None else f"{self.size}:copies"


def coalesce(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """Join neighbours that step on as one, and drop modes of one place.

    before:  2:8@k, 4:16@k
    after:   8:8@k
    """
    joined: list[Mode] = []
    for mode in modes:
        last = joined[-1] if joined else None
        if mode.size == 1:
            continue
        if last and last.axis == mode.axis and mode.step == last.step * last.size:
            joined[-1] = Mode(last.size * mode.size, mode.axis, last.step)
        else:
            joined.append(mode)
    return tuple(joined)


@dataclass(frozen=True)
class Fragment:
    """A tile spread over the registers of a group of threads; the fastest mode comes first.

    Thread number and register number are mixed-radix numbers over their modes; the element's coordinate along an axis
    is the sum of digit * step over the modes of that axis.
    """
    threads: tuple[Mode, ...]
    registers: tuple[Mode, ...]

    @property
    def group(self) -> int:
        return prod(m.size for m in self.threads)

    @property
    def size(self) -> int:
        """Registers of each thread, in elements."""
        return prod(m.size for m in self.registers)

    def extent(self, axis) -> int:
        """Coordinates along `axis` run from 0 to this, exclusive."""
        return 1 + sum((m.size - 1) * m.step for m in self.threads + self.registers if m.axis == axis)

    def __call__(self, thread: int, register: int) -> dict:
        """The coordinates {axis: int} of the element that (thread, register) holds."""
        found: dict = {}
        for number, modes in ((thread, self.threads), (register, self.registers)):
            for mode in modes:
                number, digit = divmod(number, mode.size)
                if mode.axis is not None:
                    found[mode.axis] = found.get(mode.axis, 0) + digit * mode.step
        return found

    def repeat(self, axis, threads: int = 1, registers: int = 1) -> Fragment:
        """The tile grown along `axis`: by more threads first, then by more registers of each."""
        extent = self.extent(axis)
        return Fragment(self.threads + (Mode(threads, axis, extent),),
                        self.registers + (Mode(registers, axis, extent * threads),))

    def without(self, axis) -> Fragment:
        """The layout of a statistic over `axis`: registers along it vanish, threads along it hold copies.

        before:  threads 4:2@n, 8:1@m   registers 2:1@n, 2:8@m, 16:8@n
        after:   threads 4:copies, 8:1@m   registers 2:8@m          (for axis n)
        """
        return Fragment(tuple(Mode(m.size, None, 0) if m.axis == axis else m for m in self.threads),
                        tuple(m for m in self.registers if m.axis != axis))

    def rename(self, names: dict) -> Fragment:
        def renamed(modes):
            return tuple(Mode(m.size, names.get(m.axis, m.axis), m.step) for m in modes)
        return Fragment(renamed(self.threads), renamed(self.registers))

    def spread(self, axis) -> Spread:
        """The part of the layout that belongs to one axis."""
        threads, registers, divisor = [], [], 1
        for mode in self.threads:
            if mode.axis == axis and mode.size > 1:
                threads.append((divisor, mode.size, mode.step))
            divisor *= mode.size
        for rank, mode in enumerate(self.registers):
            if mode.axis == axis and mode.size > 1:
                registers.append((rank, mode.size, mode.step))
        return Spread(tuple(threads), tuple(registers))


@dataclass(frozen=True)
class Spread:
    """How one axis is dealt to threads and registers; every tile with that axis is spread in the same way.

    threads: (divisor, size, step), the digit is thread // divisor % size; registers: (rank, size, step), a lower rank
    runs faster in the tile's register array.
    """
    threads: tuple[tuple[int, int, int], ...] = ()
    registers: tuple[tuple[int, int, int], ...] = ()

    @property
    def places(self) -> int:
        return prod(size for _, size, _ in self.threads + self.registers)

    @property
    def register_count(self) -> int:
        return prod(size for _, size, _ in self.registers)

    def same_places(self, other: Spread) -> bool:
        """Whether both put each coordinate into the same thread and the same place of that thread's register order."""
        def order(registers):
            return coalesce(tuple(Mode(size, "axis", step) for _, size, step in sorted(registers)))
        return sorted(self.threads) == sorted(other.threads) and order(self.registers) == order(other.registers)

    def threads_overlap(self, other: Spread) -> bool:
        """Whether some digit of the thread number serves both."""
        return any(a < d * m and d < a * n for a, n, _ in self.threads for d, m, _ in other.threads)


# --- matrix instructions ---------------------------------------------------------------------------------------------

def wgmma_accumulator(n: int) -> Fragment:
    """The 64 x n float32 result of a wgmma over 128 threads (PTX ISA, "wgmma register fragments", D)."""
    return Fragment((Mode(4, "n", 2), Mode(8, "m", 1), Mode(4, "m", 16)),
                    (Mode(2, "n", 1), Mode(2, "m", 8), Mode(n // 8, "n", 8)))


def wgmma_operand(k: int) -> Fragment:
    """The 64 x k first operand of 16-bit wgmmas, k a multiple of 16, when it comes from registers (same source, A)."""
    return Fragment((Mode(4, "k", 2), Mode(8, "m", 1), Mode(4, "m", 16)),
                    (Mode(2, "k", 1), Mode(2, "m", 8), Mode(k // 8, "k", 8)))


def mma_accumulator(n: int) -> Fragment:
    """The 16 x n float32 result of an mma.sync over a warp (PTX ISA, "matrix fragments for mma.m16n8k16", C)."""
    return Fragment((Mode(4, "n", 2), Mode(8, "m", 1)), (Mode(2, "n", 1), Mode(2, "m", 8), Mode(n // 8, "n", 8)))


def mma_operand(k: int) -> Fragment:
    """The 16 x k first operand of 16-bit mma.syncs (same source, A)."""
    return Fragment((Mode(4, "k", 2), Mode(8, "m", 1)), (Mode(2, "k", 1), Mode(2, "m", 8), Mode(k // 8, "k", 8)))


def mma_second(k: int) -> Fragment:
    """The k x 8 second operand (same source, B)."""
    return Fragment((Mode(4, "k", 2), Mode(8, "n", 1)), (Mode(2, "k", 1), Mode(k // 8, "k", 8)))


ACCUMULATORS = {"wgmma": wgmma_accumulator, "mma": mma_accumulator}
OPERANDS = {"wgmma": wgmma_operand, "mma": mma_operand}
SECONDS = {"mma": mma_second}


# --- shared memory ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class SharedTile:
    """A rows x columns tile in shared memory as panels of `span` bytes a row; a panel is one box of a bulk copy.

    Within a panel the 16-byte chunks of a row are permuted by XOR with bits of the row number, so that the same chunk
    of 8 rows lies in different banks. Columns are contiguous. room: rows and columns that instructions address, at
    least those that copies fill; what lies between is never part of a result.
    """
    rows: int
    columns: int
    itemsize: int
    span: int  # 128, 64 or 32 bytes
    room: tuple[int, int]

    @property
    def nbytes(self) -> int:
        return self.room[0] * self.room[1] * self.itemsize

    @property
    def copied_bytes(self) -> int:
        return self.rows * self.columns * self.itemsize

    @property
    def panel_columns(self) -> int:
        return self.span // self.itemsize

    @property
    def panels(self) -> int:
        return self.columns // self.panel_columns

    @property
    def panel_bytes(self) -> int:
        return self.room[0] * self.span

    def offset(self, row: int, column: int) -> int:
        """Bytes from the tile's start, before the swizzle."""
        panel, inside = divmod(column, self.panel_columns)
        return panel * self.panel_bytes + row * self.span + inside * self.itemsize

    def address(self, row: int, column: int) -> int:
        """Bytes from the tile's start, which is a multiple of 1024."""
        return swizzled(self.offset(row, column), self.span)

    def descriptor(self, contracted: str) -> tuple[int, int]:
        """(leading, stride) bytes of a matrix descriptor: between panels and between groups of 8 rows.

        contracted: 'rows' or 'columns', whichever the product sums over. Along contracted columns an instruction stays
        inside a panel, so that the leading distance is not used.
        """
        return (16 if contracted == "columns" else self.panel_bytes), 8 * self.span


def swizzled(offset: int, span: int) -> int:
    """XOR the chunk number (16-byte units) with the number of the 128-byte line, as far as the span reaches.

    before (span 128):  line r, chunk c  at  128 r + 16 c
    after:              line r, chunk c  at  128 r + 16 (c ^ r % 8)
    """
    return offset ^ ((offset >> 7) % (span // 16)) << 4


def span_bytes(columns: int, itemsize: int) -> int | None:
    """The widest swizzled panel that divides a row; None where rows are no multiple of 32 bytes."""
    return next((span for span in (128, 64, 32) if columns * itemsize % span == 0), None)


def bank_conflicts(addresses: list[int], width: int = 4) -> int:
    """Passes that shared memory needs for a warp's accesses of `width` bytes at these addresses; 1 is best."""
    lanes = max(1, BANKS * BANK_BYTES // width)  # wide accesses are served a part of the warp at a time
    worst = 1
    for start in range(0, len(addresses), lanes):
        lines: dict[int, set[int]] = {}
        for address in addresses[start:start + lanes]:
            for word in range(address // BANK_BYTES, (address + width - 1) // BANK_BYTES + 1):
                lines.setdefault(word % BANKS, set()).add(word)
        worst = max(worst, *(len(words) for words in lines.values()))
    return worst
