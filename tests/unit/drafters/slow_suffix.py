"""Suffix decoding without any index: slow, and obvious from its definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GRAMS = (1, 2, 4, 8, 16, 32)

Text = Sequence[int]
Place = tuple[int, int]
"""A text and the index in it of the token that follows a match."""


@dataclass(frozen=True)
class Settings:
    shape: str = "tree"
    max_spec_factor: float = 1.0
    min_token_prob: float = 0.1
    max_match: int = 64
    max_occurrences: int = 16


@dataclass(frozen=True)
class SlowDraft:
    token_ids: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    score: float = 0.0


@dataclass(frozen=True)
class _Node:
    path: tuple[int, ...]
    probability: float
    places: tuple[Place, ...]

    @property
    def rank(self) -> tuple[float, int, Place]:
        return self.probability, len(self.path), self.places[0]


def slow_places(
    texts: Sequence[Text], pattern: Text, length: int, max_occurrences: int
) -> tuple[Place, ...]:
    """The occurrences of the pattern's last ``length`` tokens that count, most recent first."""
    gram = max(gram for gram in GRAMS if gram <= length)
    places = [
        (number, start)
        for number, text in enumerate(texts)
        for start in range(gram, len(text))
        if list(text[start - gram : start]) == list(pattern[-gram:])
    ]
    return tuple(
        (number, start)
        for number, start in places[::-1][:max_occurrences]
        if start >= length
        and list(texts[number][start - length : start]) == list(pattern[-length:])
    )


def slow_draft(own: Text, replies: Sequence[Text], most: int, settings: Settings) -> SlowDraft:
    """The draft with the highest score: own text before replies, long matches before short."""
    best = SlowDraft()
    for texts in ([own], replies):
        for length in range(min(settings.max_match, len(own)), 0, -1):
            size = min(most, int(length * settings.max_spec_factor + 1e-6))
            places = slow_places(texts, own, length, settings.max_occurrences)
            draft = _grow(texts, places, size, settings) if places and size else SlowDraft()
            if draft.score > best.score:
                best = draft
    return best


def _grow(
    texts: Sequence[Text], places: tuple[Place, ...], size: int, settings: Settings
) -> SlowDraft:
    root = _Node((), 1.0, places)
    chosen: list[_Node] = []
    waiting = _children(texts, root, settings)
    while waiting and len(chosen) < size:
        node = max(waiting, key=lambda node: node.rank)
        chosen.append(node)
        waiting.remove(node)
        waiting += _children(texts, node, settings)
    paths = [node.path for node in chosen]
    return SlowDraft(
        tuple(path[-1] for path in paths),
        tuple(paths.index(path[:-1]) if len(path) > 1 else -1 for path in paths),
        sum(node.probability for node in chosen),
    )


def _children(texts: Sequence[Text], node: _Node, settings: Settings) -> list[_Node]:
    depth = len(node.path)
    going_on = [place for place in node.places if place[1] + depth < len(texts[place[0]])]
    tokens = {texts[number][start + depth] for number, start in going_on}
    children = []
    for token in tokens:
        places = tuple(p for p in going_on if texts[p[0]][p[1] + depth] == token)
        probability = node.probability * (len(places) / len(going_on))
        children.append(_Node((*node.path, token), probability, places))
    if settings.shape == "chain" and children:
        children = [max(children, key=lambda child: (len(child.places), child.places[0]))]
    return [child for child in children if child.probability >= settings.min_token_prob]
