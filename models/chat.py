"""Chat messages to the text a model was trained on, by the template that its file carries.

For: rendering conversations.  A template is a program from an untrusted file, so it runs in jinja2's immutable
sandbox: no attribute of Python's internals, no change of what it is given, no files, bounded ranges.
Not for: tokenising (tokenizer.py), nor for inventing a template where the file has none.

Source of the environment that templates expect: the chat templating guide of transformers.
"""
from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Mapping, Sequence

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minivt.errors import LoadError, MinivtError
from minivt.models.gguf import GGUF
from minivt.models.tokenizer import Tokenizer

Message = Mapping[str, Any]                 # {"role": "system" | "user" | "assistant" | ..., "content": text, ...}


class ChatError(MinivtError, ValueError):
    """A template refused the messages, in its own words."""


class ChatTemplate:
    """A compiled chat template.

    source: jinja2 text; name: the file's, for errors; bos, eos: the tokens' text, which templates may write.
    Errors: LoadError where the template does not parse.
    """

    def __init__(self, source: str, name: str, bos: str = "", eos: str = ""):
        self.name, self.variables = name, {"bos_token": bos, "eos_token": eos}
        try:
            self.template = environment().from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise LoadError(f"{name}: chat template does not parse: {one_line(error)}") from error

    @classmethod
    def from_gguf(cls, file: GGUF, tokenizer: Tokenizer) -> ChatTemplate:
        def text(id):
            return "" if id is None else tokenizer.tokens[id]
        source = file.field("tokenizer.chat_template", str)
        return cls(source, file.path.name, text(tokenizer.bos), text(tokenizer.eos))

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any) -> str:
        """The conversation as one text, ending where the assistant's next answer begins if a prompt is asked for.

        variables: what else this template reads, such as tools.
        Errors: ChatError where the template raises, with its message.
        """
        given = {**self.variables, **variables, "messages": list(messages),
                 "add_generation_prompt": add_generation_prompt}
        try:
            return self.template.render(given)
        except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
                RecursionError) as error:
            raise ChatError(f"{self.name}: chat template refuses the messages: {one_line(error)}") from error


def environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """JSON as it is, where jinja2's own filter would escape <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
