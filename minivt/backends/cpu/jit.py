"""LLVM IR text to object code, and object code to addresses in this process.

llvmlite is imported on first use: importing minivt stays quick. Not for writing IR (codegen) or for running it
(workers); many kernels at once compile through compile_pool.
"""

import functools
import itertools

from minivt.backends.cpu.host import HostTarget
from minivt.errors import CompileError

_library_numbers = itertools.count()


def compile_object(ir_text: str, target: HostTarget) -> bytes:
    """The object file (position independent) of the LLVM IR module `ir_text`.

    The text comes hoisted, unrolled and free of repeats, so one pass of instruction combining stands for the whole
    optimiser, whose pipeline takes several times as long and gains nothing; the code generator works at its best level.
    Raises CompileError with LLVM's complaint when the text does not parse or verify.
    """
    binding = _binding()
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small")
    # Closed by `with`: the garbage collector's order may free a context before the module in it, which crashes.
    with machine, binding.create_context() as context, _parse(ir_text, context) as module:
        module.triple, module.data_layout = target.triple, str(machine.target_data)
        with binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3)) as builder:
            with binding.create_new_function_pass_manager() as passes:
                passes.add_instruction_combine_pass()
                for function in module.functions:
                    if not function.is_declaration:
                        passes.run(function, builder)
        return machine.emit_object(module)


def _parse(ir_text: str, context):
    """The verified module."""
    try:
        module = _binding().parse_assembly(ir_text, context)
        try:
            module.verify()
        except RuntimeError:
            module.close()
            raise
        return module
    except RuntimeError as error:
        raise CompileError(f"cpu: LLVM rejected a kernel's code: {_complaint(error)}; "
                           "this is a fault in minivt: please report it with the output of minivt.explain") from None


class LoadedCode(dict):
    """Symbol name -> address. The code stays loaded for as long as this dict lives, so whoever calls it keeps it."""

    def __init__(self, tracker, names):
        super().__init__((name, tracker[name]) for name in names)
        self._tracker = tracker


def load_object(obj: bytes, names: list[str]) -> LoadedCode:
    """Link the object file `obj` into this process and look up `names`; libc and libm are found in the process.

    Raises CompileError when a name is missing or the code needs a symbol that the process lacks.
    """
    library = _binding().JITLibraryBuilder().add_object_img(obj).add_current_process()
    for name in names:
        library.export_symbol(name)
    try:
        return LoadedCode(library.link(_linker(), f"minivt{next(_library_numbers)}"), names)
    except RuntimeError as error:
        raise CompileError(f"cpu: LLVM could not link {', '.join(names)}: {_complaint(error)}; "
                           "the object file must define every name and use only libc and libm") from None


@functools.cache
def compiler_version() -> str:
    """What, besides the IR and the target, decides the object code: a part of every cache key."""
    import llvmlite

    llvm = ".".join(map(str, _binding().llvm_version_info))
    return f"llvmlite {llvmlite.__version__}, LLVM {llvm}, instcombine O3 pic small"


@functools.cache
def _binding():
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@functools.cache
def _linker():
    """The one LLJIT of this process; it lives as long as the process, since loaded code may still run."""
    return _binding().create_lljit_compiler(use_jit_link=True)


def _complaint(error: RuntimeError) -> str:
    """The line of an LLVM message that says what is wrong; the first, or the one marked as an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "error: " in line), lines[0] if lines else "no reason given")
