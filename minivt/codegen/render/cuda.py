"""The CUDA dialect: names of types and functions, and the PTX instructions of copies, barriers and matrix products.

The only place with NVIDIA instructions. Which of them a kernel uses, with which layouts, is decided by distribute.
"""
from __future__ import annotations

from minivt import dtypes, ops
from minivt.codegen import thread as t
from minivt.codegen.distribute import distribute
from minivt.codegen.layout import SharedTile
from minivt.codegen.render.c import Dialect, Renderer, Scope
from minivt.codegen.target import Target
from minivt.codegen.tile import TileProgram
from minivt.graph import Node, walk

TYPES = {
    dtypes.bool_: "bool", dtypes.int8: "signed char", dtypes.uint8: "unsigned char", dtypes.int16: "short",
    dtypes.uint16: "unsigned short", dtypes.int32: "int", dtypes.uint32: "unsigned", dtypes.int64: "long long",
    dtypes.uint64: "unsigned long long", dtypes.float16: "unsigned short", dtypes.bfloat16: "unsigned short",
    dtypes.float32: "float", dtypes.float64: "double"}
PRODUCER_REGISTERS, REGISTER_STEP, MOST_REGISTERS = 24, 8, 240  # of a thread; setmaxnreg takes multiples of 8
SPAN_CODE = {128: 1, 64: 2, 32: 3}                              # swizzle in a matrix descriptor, bits 62 and 63
KINDS = {dtypes.bfloat16: "bf16", dtypes.float16: "f16"}

HELPERS = {
    "INFINITY": "#define INFINITY __int_as_float(0x7f800000)",
    "NAN": "#define NAN __int_as_float(0x7fc00000)",
    "Vector<": "template <class T, int N> struct alignas(N * sizeof(T)) Vector { T x[N]; };",
    "bitcast<": "template <class T, class S> __device__ T bitcast(S s) { return *reinterpret_cast<T*>(&s); }",
    "bfloat16_to_float": """__device__ float bfloat16_to_float(unsigned short x) {
    return __uint_as_float((unsigned)x << 16);
}""",
    "float_to_bfloat16": """__device__ unsigned short float_to_bfloat16(float x) {
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}""",
    "float16_to_float": """__device__ float float16_to_float(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}""",
    "float_to_float16": """__device__ unsigned short float_to_float16(float x) {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}""",
    "pack_bfloat16": """__device__ unsigned pack_bfloat16(float low, float high) {
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}""",
    "pack_float16": """__device__ unsigned pack_float16(float low, float high) {
    unsigned y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}""",
    "fast_exp2": """__device__ float fast_exp2(float x) {  // results below 2^-126 are 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}""",
    "maximum": """__device__ float maximum(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
template <class T> __device__ T maximum(T x, T y) { return x != x || x > y ? x : y; }""",
    "floor_div": """template <class T> __device__ T floor_div(T x, T y) {
    if (y == 0) return 0;
    T q = y == T(-1) ? T(0) - x : x / y;
    return q * y != x && (x < 0) != (y < 0) ? q - 1 : q;
}""",
    "floor_mod": """template <class T> __device__ T floor_mod(T x, T y) {
    if (y == 0 || y == T(-1)) return 0;
    T r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}""",
    "shift_left": """template <class T> __device__ T shift_left(T x, T y) {
    return y < 0 || y >= T(8 * sizeof(T)) ? T(0) : T(x << y);
}""",
    "shift_right": """template <class T> __device__ T shift_right(T x, T y) {
    return y < 0 || y >= T(8 * sizeof(T)) ? (x < 0 ? T(-1) : T(0)) : T(x >> y);
}""",
    "TensorMap": "struct alignas(64) TensorMap { unsigned long long opaque[16]; };",
    "barrier_init": """__device__ void barrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals));
}""",
    "barrier_expect": """__device__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}""",
    "barrier_arrive": """__device__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}""",
    "barrier_wait": r"""__device__ void barrier_wait(unsigned barrier, unsigned phase) {
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" :: "r"(barrier), "r"(phase) : "memory");
}""",
    "matrix_descriptor": """__device__ unsigned long long matrix_descriptor(unsigned address, unsigned leading,
                                                unsigned stride, unsigned long long swizzle) {
    return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | swizzle << 62;
}""",
    "hold": """template <class T, int N> __device__ void hold(T (&registers)[N]) {  // the compiler may not move them
    #pragma unroll
    for (int i = 0; i < N; i++) {
        if constexpr (sizeof(T) == 4 && T(0.5f) != T(0)) asm volatile("" : "+f"(registers[i]) :: "memory");
        else asm volatile("" : "+r"(registers[i]) :: "memory");
    }
}""",
}


def render(program: t.ThreadProgram, target: Target) -> str:
    """CUDA C++ text of a kernel named like the program."""
    return Renderer(program, DIALECT, target).text()


def code_of(program: TileProgram, target: Target) -> str:
    """CUDA C++ text of a tile program."""
    return render(distribute(program, target), target)


# --- the kernel ------------------------------------------------------------------------------------------------------

def kernel(r: Renderer, body: Node) -> str:
    program = r.program
    scope = Scope({})
    scope.lines += [f"const int {t.BLOCK_NUMBER} = blockIdx.x, {t.THREAD_NUMBER} = threadIdx.x;"]
    scope.lines += [f"const {r.type(x)} {r.counter(x)} = {r.value(e, scope)};" for x, e in program.grid]
    scope.lines += [f"__shared__ __align__(16) {line}" for line in arrays(r, "shared")]
    scope.lines += ring_setup(program)
    if body.op is not t.ROLES:
        scope.lines += arrays(r, "register")
    r.emit(r.flat(body), scope)
    lines = "\n".join("    " + line for line in scope.lines)
    multiplies = {multiply_name(n.arg): multiply_function(n.arg) for n in walk(body) if n.op is t.MULTIPLY}
    multiplies.update({warp_name(n.arg.instruction): warp_function(n.arg.instruction) for n in walk(body)
                       if n.op is t.MULTIPLY_REGISTERS})
    head = f'extern "C" __global__ void __launch_bounds__({program.threads}, 1)' if program.rings else (
        f'extern "C" __global__ void __launch_bounds__({program.threads})')
    return "\n".join([*multiplies.values(), *copies(program), head, f"{program.name}({', '.join(parameters(r))}) {{",
                      lines, "}", ""])


def parameters(r: Renderer) -> list[str]:
    program = r.program
    maps = ["const TensorMap* __restrict__ maps"] if program.boxes else []
    arrays = [f"{'' if p.written else 'const '}{TYPES[p.dtype]}* {'' if p.written else '__restrict__ '}p{p.slot}"
              for p in program.params]
    return maps + arrays + [f"{r.type(v)} {r.names[v]}" for v in program.variables]


def arrays(r: Renderer, space: str) -> list[str]:
    return [f"{TYPES[a.dtype]} {r.names[a]}[{a.size}];" for a in r.program.arrays if a.space == space]


def ring_setup(program: t.ThreadProgram) -> list[str]:
    """Addresses of slots and barriers; each slot has a full and an empty barrier."""
    if not program.rings:
        return []
    lines = ["extern __shared__ unsigned char shared[];",
             f"const unsigned slots = ((unsigned)__cvta_generic_to_shared(shared) + {t.SLOT_ALIGNMENT - 1}) & "
             f"~{t.SLOT_ALIGNMENT - 1}u;"]
    position = sum(ring.stages * ring.slot_bytes for ring in program.rings)
    inits = []
    for ring in program.rings:
        lines.append(f"const unsigned {ring.name} = slots + {ring.offset}, {ring.name}_full = slots + {position}, "
                     f"{ring.name}_empty = slots + {position + 8 * ring.stages};")
        position += 16 * ring.stages
        inits += [f"    for (int i = 0; i < {ring.stages}; i++) {{",
                  f"        barrier_init({ring.name}_full + 8 * i, 1);",
                  f"        barrier_init({ring.name}_empty + 8 * i, {program.consumers // 32});", "    }"]
    return [*lines, f"if ({t.THREAD_NUMBER} == 0) {{", *inits,
            '    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");', "}", "__syncthreads();"]


def copies(program: t.ThreadProgram) -> list[str]:
    """A bulk copy for each number of dimensions that the kernel's boxes have."""
    out = []
    for rank in sorted({len(b.box) for b in program.boxes}):
        names = ", ".join(f"int c{i}" for i in range(rank))
        places = ", ".join(f"%{3 + i}" for i in range(rank))
        inputs = ", ".join(f'"r"(c{i})' for i in range(rank))
        out.append(f"""__device__ void bulk_copy_{rank}d(unsigned to, const TensorMap* map, unsigned barrier,
                             {names}) {{
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {{{places}}}], [%2];"
                 :: "r"(to), "l"(map), "r"(barrier), {inputs} : "memory");
}}""")
    return out


# --- statements ------------------------------------------------------------------------------------------------------

def roles(r: Renderer, s: Node, scope: Scope) -> list[str]:
    """The last warpgroup copies, by one thread, and gives its registers to the others."""
    program, producer, consumer = r.program, s.src[0], s.src[1]
    rest = r.target.registers - (program.threads - program.consumers) * PRODUCER_REGISTERS
    most = min(MOST_REGISTERS, rest // program.consumers // REGISTER_STEP * REGISTER_STEP)
    state = [f"int {ring.name}_slot = 0; unsigned {ring.name}_phase = 0;" for ring in program.rings]
    first = f"if ({t.THREAD_NUMBER} == {program.consumers}) {{"
    lines = [f"if ({t.THREAD_NUMBER} >= {program.consumers}) {{",
             f'    asm volatile("setmaxnreg.dec.sync.aligned.u32 {PRODUCER_REGISTERS};");',
             f"    {first}", *("        " + line for line in state)]
    lines += ["    " + line for line in r.body(producer, scope)] + ["    }", "} else {"]
    lines += [f'    asm volatile("setmaxnreg.inc.sync.aligned.u32 {most};");', *("    " + line for line in state),
              *("    " + line for line in arrays(r, "register")), *r.body(consumer, scope), "}"]
    return lines


def acquire(r: Renderer, s: Node, scope: Scope) -> list[str]:
    ring = s.arg
    return [f"barrier_wait({ring.name}_empty + 8 * {ring.name}_slot, {ring.name}_phase ^ 1);",
            f"barrier_expect({ring.name}_full + 8 * {ring.name}_slot, {ring.copied_bytes});"]


def fill(r: Renderer, s: Node, scope: Scope) -> list[str]:
    ring, position, box = s.arg
    tile, which = ring.tiles[position], r.program.boxes.index(box)
    first, *others = (r.value(c, scope) for c in s.src)
    lines = []
    for panel in range(tile.panels):
        start = ring.tile_offset(position) + panel * tile.panel_bytes
        columns = [f"{first} + {panel * tile.panel_columns}" if panel else first, *others]
        lines.append(f"bulk_copy_{len(s.src)}d({slot(ring)} + {start}, maps + {which}, "
                     f"{ring.name}_full + 8 * {ring.name}_slot, {', '.join(columns)});")
    return lines


def slot(ring: t.Ring) -> str:
    return ring.name if ring.stages == 1 else f"{ring.name} + {ring.name}_slot * {ring.slot_bytes}"


def await_full(r: Renderer, s: Node, scope: Scope) -> list[str]:
    return [f"barrier_wait({s.arg.name}_full + 8 * {s.arg.name}_slot, {s.arg.name}_phase);"]


def release(r: Renderer, s: Node, scope: Scope) -> list[str]:
    ring, back = s.arg
    place = f"{ring.name}_slot" if not back else f"({ring.name}_slot + {ring.stages - back}) % {ring.stages}"
    return [f"if ({t.THREAD_NUMBER} % 32 == 0) barrier_arrive({ring.name}_empty + 8 * ({place}));"]


def advance(r: Renderer, s: Node, scope: Scope) -> list[str]:
    name = s.arg.name
    return [f"if (++{name}_slot == {s.arg.stages}) {{ {name}_slot = 0; {name}_phase ^= 1; }}"]


def barrier(r: Renderer, s: Node, scope: Scope) -> list[str]:
    """Only the computing threads meet; the producer has its own pace."""
    if r.program.consumers == r.program.threads:
        return ["__syncthreads();"]
    return [f'asm volatile("bar.sync 1, {r.program.consumers};" ::: "memory");']


def open_group(r: Renderer, s: Node, scope: Scope) -> list[str]:
    return [*(f"hold({r.names[a]});" for a in s.arg), 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");']


def commit(r: Renderer, s: Node, scope: Scope) -> list[str]:
    return ['asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");', *(f"hold({r.names[a]});" for a in s.arg)]


def settle(r: Renderer, s: Node, scope: Scope) -> list[str]:
    pending, arrays = s.arg
    wait = f'asm volatile("wgmma.wait_group.sync.aligned {pending};" ::: "memory");'
    return [wait, *(f"hold({r.names[a]});" for a in arrays)]


def multiply(r: Renderer, s: Node, scope: Scope) -> list[str]:
    how: t.Multiply = s.arg
    size = how.instruction.m * how.instruction.n // how.instruction.group
    sums = r.names[how.accumulator]
    if size != how.accumulator.size:
        sums = f"*(float(*)[{size}])({sums} + {how.first})"
    keep, a, b = (r.value(x, scope) for x in s.src)
    if isinstance(how.a, t.Array):
        a = f"*(unsigned(*)[4])({r.names[how.a]} + {how.a_first})"
    else:
        a = descriptor(how.a, how.a_contracted, a)
    return [f"{multiply_name(how)}({sums}, {a}, {descriptor(how.b, how.b_contracted, b)}, {keep});"]


def descriptor(tile: SharedTile, contracted: str, address: str) -> str:
    leading, stride = tile.descriptor(contracted)
    return f"matrix_descriptor({address}, {leading}, {stride}, {SPAN_CODE[tile.span]})"


def multiply_name(how: t.Multiply) -> str:
    i = how.instruction
    a = "registers" if isinstance(how.a, t.Array) else how.a_contracted
    return f"multiply_{i.m}x{i.n}x{i.k}_{i.a.name}_{a}_{how.b_contracted}"


def multiply_function(how: t.Multiply) -> str:
    """A wgmma as a function of accumulator registers, first operand and second operand's descriptor."""
    i, in_registers = how.instruction, isinstance(how.a, t.Array)
    count = i.m * i.n // i.group
    kind = KINDS[i.a]
    sums = ", ".join(f"%{k}" for k in range(count))
    outputs = ", ".join(f'"+f"(sums[{k}])' for k in range(count))
    words = 4 if in_registers else 1
    a = "{" + ", ".join(f"%{count + k}" for k in range(4)) + "}" if in_registers else f"%{count}"
    inputs = ", ".join(f'"r"(a[{k}])' for k in range(4)) if in_registers else '"l"(a)'
    parameter = "unsigned (&a)[4]" if in_registers else "unsigned long long a"
    transposed = [int(side == "rows") for side in ((how.b_contracted,) if in_registers
                                                   else (how.a_contracted, how.b_contracted))]
    name = multiply_name(how)
    return f"""__device__ void {name}(float (&sums)[{count}], {parameter}, unsigned long long b, int keep) {{
    asm volatile("{{\\n.reg .pred keep;\\nsetp.ne.b32 keep, %{count + words + 1}, 0;\\n"
                 "wgmma.mma_async.sync.aligned.m{i.m}n{i.n}k{i.k}.f32.{kind}.{kind} "
                 "{{{sums}}}, "
                 "{a}, %{count + words}, keep, 1, 1, {', '.join(map(str, transposed))};\\n}}"
                 : {outputs}
                 : {inputs}, "l"(b), "r"(keep));
}}"""


def multiply_registers(r: Renderer, s: Node, scope: Scope) -> list[str]:
    how = s.arg
    places = [f"{r.names[array]} + {r.value(x, scope)}" for array, x in zip((how.accumulator, how.a, how.b), s.src)]
    return [f"{warp_name(how.instruction)}({', '.join(places)});"]


def warp_name(i) -> str:
    return f"multiply_{i.m}x{i.n}x{i.k}_{i.a.name}"


def warp_function(i) -> str:
    """An mma.sync as a function of registers."""
    kind, sums, words = KINDS[i.a], i.m * i.n // i.group, i.m * i.k // i.group // 2
    more = i.n * i.k // i.group // 2
    places = [f"%{p}" for p in range(sums + words + more)]
    d, a, b = (", ".join(places[x:y]) for x, y in ((0, sums), (sums, sums + words), (sums + words, None)))
    outputs = ", ".join(f'"+f"(sums[{p}])' for p in range(sums))
    inputs = ", ".join([f'"r"(a[{p}])' for p in range(words)] + [f'"r"(b[{p}])' for p in range(more)])
    return f"""__device__ __forceinline__ void {warp_name(i)}(float* sums, const unsigned* a, const unsigned* b) {{
    asm volatile("mma.sync.aligned.m{i.m}n{i.n}k{i.k}.row.col.f32.{kind}.{kind}.f32 "
                 "{{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"
                 : {outputs}
                 : {inputs});
}}"""


# --- values ----------------------------------------------------------------------------------------------------------

def vector(r: Renderer, n: Node, src: list[str]) -> str:
    kind, (param, _) = vector_type(r, n), n.arg
    access = f"*(const {kind}*)({r.param(param)} + {src[0]})"
    return access if n.src[1].op is ops.CONST else f"{src[1]} ? {access} : {kind}{{}}"


def vector_type(r: Renderer, n: Node) -> str:
    param, width = n.arg
    return f"Vector<{TYPES[param.dtype]}, {width}>"


def pack(r: Renderer, n: Node, src: list[str]) -> str:
    low, high = n.src
    if all(x.op is ops.CAST and x.src[0].dtype is dtypes.float32 for x in n.src):  # round two at once
        inner = [text[text.index("(") + 1:-1] for text in src]
        return f"pack_{low.dtype.name}({', '.join(inner)})"
    return f"((unsigned){src[0]} | (unsigned){src[1]} << 16)"


def shuffle(r: Renderer, n: Node, src: list[str]) -> str:
    if n.dtype.itemsize >= 4:
        return f"__shfl_xor_sync(~0u, {src[0]}, {n.arg})"
    return f"({TYPES[n.dtype]})__shfl_xor_sync(~0u, (unsigned){src[0]}, {n.arg})"


def address(r: Renderer, n: Node, src: list[str]) -> str:
    ring, position = n.arg
    offset = ring.tile_offset(position)
    return f"({slot(ring)} + {offset})" if offset else f"({slot(ring)})"


DIALECT = Dialect(
    types=TYPES,
    calls={(ops.EXP2, dtypes.float32): "fast_exp2"},
    values={t.VECTOR: vector, "vector_type": vector_type, t.PACK: pack, t.SHUFFLE: shuffle, t.ADDRESS: address},
    statements={t.ROLES: roles, t.ACQUIRE: acquire, t.FILL: fill, t.AWAIT: await_full, t.RELEASE: release,
                t.ADVANCE: advance, t.BARRIER: barrier, t.OPEN: open_group, t.COMMIT: commit, t.SETTLE: settle,
                t.MULTIPLY: multiply, t.MULTIPLY_REGISTERS: multiply_registers},
    helpers=HELPERS,
    kernel=kernel,
    reserved=frozenset("""auto block bool break case char class const continue default delete do double else enum
        extern false float for goto hold if inline int long maps new operator register return shared short signed
        sizeof slots static struct switch template thread this true typedef union unsigned void volatile
        while""".split()))
