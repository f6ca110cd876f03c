"""Writes encodings.json: what the tokenizer and the chat template of the SmolLM2 GGUF give for hard inputs.

Run from anywhere with the reference environment of goldens/README.md: python generate_encodings.py
"""
import json
from pathlib import Path

import tokenizers
import transformers
from reference import gguf_path, load_tokenizer

STRINGS = [
    "", " ", "  ", "   x", "a", " a", "hello world", "Hello, World!  Two  spaces.", "trailing space ", "\n", "\n\n",
    "\n\n\nthree newlines", "line one\nline two\r\nline three\r", "\ttab\t\tdouble",
    "    def f(x):\n        return x ** 2\n",
    "0", "7 77 777 7777", "3.14159e-10", "pi\n\n1. first\n2. second", "  12 spaces before digits",
    "2024-05-17T12:34:56Z", "½ ² Ⅷ ٣ 一",
    "don't we'll they've I'm it's you'd HE'S", "naïve façade Ünïcödé", "e\u0301 is not é", "Größe straße ẞ",
    "Привет, как дела?", "你好,世界。今天天气很好", "日本語のテキスト", "한국어 문장입니다", "مرحبا بالعالم", "नमस्ते दुनिया",
    "🙂", "🙂🙂 hi👨‍👩‍👧‍👦🏳️‍🌈", "emoji👍🏽tone", "zero\u200bwidth\u200djoiner\ufeffbom", "a\u00a0b\u3000c\u2003d",
    "\x00\x01\x7f control", "\ufffd replacement \U0010ffff", "<|im_start|>user\nHi<|im_end|>\n",
    "<|im_start|><|im_end|>", "text<|endoftext|>more", "  <|im_end|>  ", "<|im_start |> <|IM_START|> <im_end>",
    "<repo_name>minivt<file_sep>a.py", "<jupyter_code>print(1)<empty_output>",
    "https://example.com/a?b=c&d=%20#frag", "snake_case camelCase SCREAMING_CASE",
    "!!!???...---===", "(){}[]<>\"'`~@#$%^&*", "supercalifragilisticexpialidocious", "a" * 100, " " * 70 + "x",
    "\n \n  \n   \n", "x\u0301\u0302\u0303\u0304", "Ω≈ç√∫˜µ≤≥÷", "123456789" * 4, "1,234,567.89 $5 €6 50%",
]
PARTIAL = "🙂é世"       # decoded token by token: bytes of one character spread over several tokens
CONVERSATIONS = [
    ([{"role": "user", "content": "What is the capital of France?"}], True),
    ([{"role": "system", "content": "You answer in one word."}, {"role": "user", "content": "2 + 2?"}], True),
    ([{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Hello! How can I help?"},
      {"role": "user", "content": "Tell me a joke.\nA short one, with \"quotes\" & <b>tags</b>."}], True),
    ([{"role": "system", "content": ""}, {"role": "user", "content": "  padded  "},
      {"role": "assistant", "content": "Ünïcödé 🙂"}], False),
]


def encoding(tokenizer, text: str) -> dict:
    ids = tokenizer(text)["input_ids"]
    return {"text": text, "ids": ids, "decoded": tokenizer.decode(ids)}


def partial_decodings(tokenizer) -> list[dict]:
    """Every prefix of PARTIAL's ids with its text; an unfinished character decodes to U+FFFD."""
    ids = tokenizer(PARTIAL)["input_ids"]
    return [{"ids": ids[:end], "decoded": tokenizer.decode(ids[:end])} for end in range(1, len(ids) + 1)]


def conversation(tokenizer, messages: list[dict], prompt: bool) -> dict:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    return {"messages": messages, "add_generation_prompt": prompt, "text": text, "ids": tokenizer(text)["input_ids"]}


def section(value: str | list) -> str:
    """JSON in ASCII with one case on a line."""
    if isinstance(value, str):
        return json.dumps(value)
    return "[\n" + ",\n".join(json.dumps(case) for case in value) + "\n]"


def main() -> None:
    tokenizer = load_tokenizer()
    golden = {
        "source": f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}, {gguf_path().name}",
        "encodings": [encoding(tokenizer, text) for text in STRINGS],
        "partial_decodings": partial_decodings(tokenizer),
        "conversations": [conversation(tokenizer, *case) for case in CONVERSATIONS],
    }
    sections = (f'"{name}": {section(value)}' for name, value in golden.items())
    Path(__file__).with_name("encodings.json").write_text("{\n" + ",\n".join(sections) + "\n}\n")


if __name__ == "__main__":
    main()
