"""The options of a request's body that affect its prompt, from the chat and completion endpoints; parsed leniently."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class PromptOptions(msgspec.Struct):
    """Defaults as vLLM and SGLang have them; ``add_special_tokens`` defaults differently for chats."""

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tool_choice: Any = None
    truncate_prompt_tokens: int | None = None


_DECODER: Final = msgspec.json.Decoder(PromptOptions)


def read_options(body: bytes) -> PromptOptions | None:
    """``None`` if the body does not determine what the engine will see."""
    try:
        options = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if options.chat_template is not None or options.continue_final_message or options.truncate_prompt_tokens:
        return None
    return options


def template_arguments(options: PromptOptions) -> dict[str, Any]:
    tools = None if options.tool_choice == "none" else options.tools
    return {
        "tools": tools,
        "documents": options.documents,
        "add_generation_prompt": options.add_generation_prompt,
        **(options.chat_template_kwargs or {}),
    }
