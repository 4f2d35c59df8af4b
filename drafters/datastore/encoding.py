"""From passages of a corpus to tokens in a datastore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from drafters.datastore.builder import DatastoreBuilder, Vocabulary
from drafters.datastore.corpus import Messages, Passage
from drafters.errors import CorpusError, DatastoreError
from models.tokenizer import Tokenizer, fingerprint

_BATCH_BYTES = 1 << 20
_BATCH_PASSAGES = 1024


class Encoder:
    """A model's tokenizer, for texts and chats.

    Args:
        name: The model's name.
        tokenizer: Its tokenizer.
    """

    def __init__(self, name: str, tokenizer: Tokenizer) -> None:
        self._tokenizer: Any = tokenizer
        size = max(tokenizer.get_vocab().values()) + 1
        self.vocabulary = Vocabulary(name, size, fingerprint(tokenizer))

    def encode(self, passages: Sequence[Passage]) -> list[Sequence[int]]:
        """Return the tokens of each passage, without any that begin or end a text.

        Raises:
            CorpusError: If the chat template refuses a chat, or there is none.
        """
        to_encode = (passage for passage in passages if not isinstance(passage.content, tuple))
        texts = [self._text(passage) for passage in to_encode]
        encoded = iter(self._encoded(texts) if texts else ())
        return [
            passage.content if isinstance(passage.content, tuple) else next(encoded)
            for passage in passages
        ]

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        batch = self._tokenizer(
            texts,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # texts may be longer than the model's context
        )
        found: list[list[int]] = batch["input_ids"]
        return found

    def _text(self, passage: Passage) -> str:
        if isinstance(passage.content, list):
            return self._chat_text(passage.content, passage.where)
        return str(passage.content)

    def _chat_text(self, messages: Messages, where: str) -> str:
        if self._tokenizer.chat_template is None:
            raise CorpusError(f"{where}: a chat, but the model has no chat template")
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False))
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise CorpusError(f"{where}: the model's chat template refuses it: {error}") from error


def fill(builder: DatastoreBuilder, passages: Iterable[Passage], encoder: Encoder) -> Iterator[int]:
    """Put passages into a datastore; yields the bytes read so far, each time some were put in.

    Raises:
        CorpusError: If a passage cannot be encoded, or holds ids of another vocabulary.
        DatastoreError: If the disk takes no more.
    """
    num_bytes = 0
    for batch in _batches(passages):
        for passage, token_ids in zip(batch, encoder.encode(batch), strict=True):
            _put(builder, passage, token_ids)
            num_bytes += passage.num_bytes
        yield num_bytes


def _put(builder: DatastoreBuilder, passage: Passage, token_ids: Sequence[int]) -> None:
    if isinstance(passage.content, tuple):
        try:
            builder.check(token_ids)
        except DatastoreError as error:
            raise CorpusError(f"{passage.where}: {error}") from error
    builder.extend(token_ids)
    if passage.ends_document:
        builder.end_document()


def _batches(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    batch: list[Passage] = []
    num_bytes = 0
    for passage in passages:
        batch.append(passage)
        num_bytes += passage.num_bytes
        if num_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_PASSAGES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch
