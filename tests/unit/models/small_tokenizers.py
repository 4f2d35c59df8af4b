"""Small tokenizers of every kind of decoder, made in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXT = (
    "The quick brown fox jumps over the lazy dog.",
    "Stop here, or go on? It isn't far: 3.14 miles.",
    "naïve café, größer, Ελλάδα, 日本語, 🙂👩‍👩‍👧",  # other scripts are the point
    "def f(x):\n    return  x + 1\n",
)

CHAT_TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    make: Callable[..., PreTrainedTokenizerFast] = PreTrainedTokenizerFast
    return make(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=CHAT_TEMPLATE
    )


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """As GPT-2, Llama-3, Qwen: tokens are bytes, a character may take several."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return _wrap(tokenizer)


@cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """As Llama-2, Gemma: spaces are marked, rare characters are runs of byte tokens."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=["▁"],
        limit_alphabet=40,
        show_progress=False,
    )
    tokenizer.train_from_iterator((TEXT[0], TEXT[1], TEXT[3]), trainer)
    state = json.loads(tokenizer.to_str())
    vocab = state["model"]["vocab"]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    return _wrap(Tokenizer.from_str(json.dumps(state)))


@cache
def metaspace() -> PreTrainedTokenizerFast:
    """As T5 and many unigram models: words begin with a marked space."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90,
        special_tokens=["<s>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return _wrap(tokenizer)


@cache
def word_piece() -> PreTrainedTokenizerFast:
    """As BERT: pieces that continue a word are marked, spaces are made by the decoder."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    trainer = trainers.WordPieceTrainer(
        vocab_size=150, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return _wrap(tokenizer)


KINDS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "metaspace": metaspace,
    "word_piece": word_piece,
}
