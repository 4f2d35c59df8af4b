"""From messages or prompts to tokens. Knows the tokenizer and its chat template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from jinja2.exceptions import TemplateError

from models.tokenizer import Tokenizer
from replicas.ingress.errors import ApiError, invalid, shorten
from replicas.ingress.limits import Limits
from replicas.ingress.schema import CompletionsBody, Message
from replicas.ingress.token_rules import check_token_ids

MAX_DECODED_TOKENS = 2048
"""Only so many tokens of a prompt given as ids are turned into text, to judge what it is."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        token_ids: What the model gets.
        text: What the client wrote, to judge what kind of text it is.
        system_prompt: The system message, if there is one.
    """

    token_ids: tuple[int, ...]
    text: str
    system_prompt: str = ""


def chat_prompt(tokenizer: Tokenizer, messages: list[Message]) -> Prompt:
    """Apply the model's chat template.

    Raises:
        ApiError: If the model has none, or its template refuses the messages.
    """
    if tokenizer.chat_template is None:
        raise invalid("this model has no chat template; use /v1/completions", "messages")
    turns = [_turn(message) for message in messages]
    try:
        rendered = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except (TemplateError, TypeError, ValueError) as error:
        raise _template_error(error) from error
    token_ids = tokenizer.encode(cast(str, rendered), add_special_tokens=False)
    if not token_ids:
        raise invalid("the messages make an empty prompt", "messages")
    system = "\n".join(turn["content"] for turn in turns if turn["role"] == "system")
    text = "\n".join(turn["content"] for turn in turns)
    return Prompt(tuple(token_ids), text, system)


def _template_error(error: Exception) -> ApiError:
    return invalid(
        f"the model's chat template refuses the messages: {shorten(str(error))}", "messages"
    )


def _turn(message: Message) -> dict[str, str]:
    content = message.content
    if not isinstance(content, str):
        content = "\n".join(part.text for part in content)
    role = "system" if message.role == "developer" else message.role
    turn = {"role": role, "content": content}
    if message.name is not None:
        turn["name"] = message.name
    return turn


def completion_prompts(tokenizer: Tokenizer, body: CompletionsBody, limits: Limits) -> list[Prompt]:
    """Turn the ``prompt`` field, in any of its four shapes, into prompts.

    Raises:
        ApiError: If one is empty, there are too many, or an id is no token.
    """
    given = body.prompt
    parts: list[str | list[int]]
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        parts = [given]
    else:
        parts = list(cast(list[str] | list[list[int]], given))
    if not parts:
        raise invalid("prompt is empty", "prompt")
    if len(parts) > limits.max_prompts:
        raise invalid(f"at most {limits.max_prompts} prompts, got {len(parts)}", "prompt")
    return [_completion_prompt(tokenizer, part, limits) for part in parts]


def _completion_prompt(tokenizer: Tokenizer, part: str | list[int], limits: Limits) -> Prompt:
    if isinstance(part, str):
        token_ids = tokenizer.encode(part) if part else []
        text = part
    else:
        check_token_ids(part, limits, "prompt")
        token_ids = part
        text = cast(str, tokenizer.decode(part[-MAX_DECODED_TOKENS:])) if part else ""
    if not token_ids:
        raise invalid("prompt is empty", "prompt")
    return Prompt(tuple(token_ids), text)
