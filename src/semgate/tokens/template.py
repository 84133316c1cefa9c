"""A model's chat template: messages in, the prompt text that the engine tokenizes out.

Rendered as ``transformers`` does it, in jinja2's sandbox: a template is code from a model's folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from sembase.errors import ConfigurationError, MissingDependencyError

try:
    import jinja2.ext
    import jinja2.sandbox
except ImportError:  # reported when a template is opened
    HAS_JINJA = False
else:
    HAS_JINJA = True

# Matches templates that take contents as lists of parts; the others get the texts joined, as in vLLM.
_WALKS_PARTS: Final = re.compile(r"for\s+\w+\s+in\s+\w+(\.content|\[['\"]content['\"]\])")
_SPECIAL_TOKENS: Final = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")

# What a template may raise for messages it rejects; the engine will report the same to the client.
RENDER_ERRORS: Final = (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError)


class TemplateRefusal(Exception):  # noqa: N818  (the template rejects a request; not an error of ours)
    """The template rejects these messages."""


class ChatTemplate:
    def __init__(self, text: str, special_tokens: Mapping[str, str]) -> None:
        if not HAS_JINJA:
            raise MissingDependencyError("jinja2", "gateway", "rendering a chat template")
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = time.strftime
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigurationError(f"the chat template does not parse: {error}") from error
        self._special_tokens = dict(special_tokens)
        self._walks_parts = _WALKS_PARTS.search(text) is not None

    def render(self, messages: Sequence[object], arguments: Mapping[str, Any]) -> str:
        """Raises ``TemplateRefusal`` for messages that cannot be rendered to a prompt."""
        prepared = [self._prepare(message) for message in messages]
        try:
            return self._template.render(messages=prepared, **{**self._special_tokens, **arguments})
        except (jinja2.TemplateError, *RENDER_ERRORS) as error:
            raise TemplateRefusal(type(error).__name__) from error

    def _prepare(self, message: object) -> dict[str, Any]:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise TemplateRefusal("a message without a role")
        prepared = {**message, "content": self._content(message.get("content"))}
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            prepared["tool_calls"] = [_parsed_call(call) for call in calls]
        return prepared

    def _content(self, content: object) -> object:
        if content is None or isinstance(content, str):
            if self._walks_parts and isinstance(content, str):
                return [{"type": "text", "text": content}]
            return content if content is not None else ""
        texts = [_part_text(part) for part in content] if isinstance(content, list) else None
        if texts is None:
            raise TemplateRefusal("a content that is neither text nor parts")
        if self._walks_parts:
            return [{"type": "text", "text": text} for text in texts]
        return "\n".join(texts)


def open_template(folder: Path) -> ChatTemplate | None:
    """The template of a model's folder: its own file, or inside ``tokenizer_config.json``; ``None`` if neither."""
    config = _read_config(folder / "tokenizer_config.json")
    own = folder / "chat_template.jinja"
    text: object = own.read_text(encoding="utf-8") if own.is_file() else config.get("chat_template")
    if isinstance(text, list):
        named = {one.get("name"): one.get("template") for one in text if isinstance(one, dict)}
        text = named.get("default")
    if not isinstance(text, str):
        return None
    tokens = {name: _token_text(config.get(name)) for name in _SPECIAL_TOKENS}
    return ChatTemplate(text, {name: token for name, token in tokens.items() if token is not None})


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"--tokenizer: {path} is not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _token_text(token: object) -> str | None:
    """Given as a string, or as an object with options."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type", "text") == "text":
        return str(part["text"])
    raise TemplateRefusal("a part that is not text")


def _parsed_call(call: object) -> object:
    """Templates write the arguments of a call as an object; clients send them as JSON in a string."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"])
        except ValueError as error:
            raise TemplateRefusal("arguments that are not JSON") from error
    return {**call, "function": function}


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusal(message)
