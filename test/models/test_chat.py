"""Chat templates: the file's own against the golden, the environment that templates expect, and the sandbox."""
import json
from datetime import datetime
from pathlib import Path

import pytest

from minivt.errors import LoadError
from minivt.models.chat import ChatError, ChatTemplate
from minivt.models.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[2] / "goldens/smollm2/encodings.json").read_text())
HELLO = [{"role": "user", "content": "hello"}]


def render(source, messages=HELLO, **variables):
    return ChatTemplate(source, "made.gguf", "<s>", "</s>").render(messages, **variables)


@pytest.mark.parametrize("case", GOLDEN["conversations"])
def test_the_small_models_template_equals_the_golden(small_model, case):
    template = ChatTemplate.from_gguf(small_model, Tokenizer(small_model))
    assert template.render(case["messages"], case["add_generation_prompt"]) == case["text"]


def test_blocks_leave_no_blank_lines():
    assert render("{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}\n") == "user\n"


def test_what_templates_may_use():
    assert render("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}") == "<s></s>True"
    assert render("{{ tools | tojson }}", tools={"a": "<é>"}) == '{"a": "<é>"}'
    assert render("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "012"
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().year)
    assert render("{{ messages[0]['content'] | trim | upper }}") == "HELLO"


def test_a_template_may_refuse():
    with pytest.raises(ChatError, match="made.gguf: .*roles must alternate"):
        render("{{ raise_exception('roles must\n alternate') }}")


@pytest.mark.parametrize("source", [
    "{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ messages[0].update({'role': 'x'}) }}",
    "{{ raise_exception.__globals__ }}", "{% for i in range(10**9) %}{% endfor %}", "{{ messages[0].clear() }}",
    "{{ 1 / 0 }}", "{{ undefined.attribute }}", "{{ messages + 1 }}", "{{ self.__init__.__globals__ }}",
    "{% include '/etc/passwd' %}", "{% set ns = namespace(x=1) %}{{ ns.__class__ }}",
])
def test_the_sandbox_holds(source):
    messages = [dict(HELLO[0])]
    try:
        text = render(source, messages)
    except ChatError as error:
        assert "\n" not in str(error)
    else:
        assert "class" not in text and "root" not in text
    assert messages == HELLO


@pytest.mark.parametrize("source", ["{% if %}", "{{ messages", "{% for m in messages %}", "{{ x | no_such_filter }}"])
def test_broken_templates(source):
    with pytest.raises(LoadError, match="made.gguf: chat template does not parse"):
        ChatTemplate(source, "made.gguf")
