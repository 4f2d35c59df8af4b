"""Where the n-grams of some token texts occurred, so that long suffix matches are found at once.

In place of a suffix tree, whose depth every token would pay for, n-grams of few lengths (``GRAMS``)
are kept, each occurrence linked to the one before it. A suffix of ``p`` tokens is looked up by the
longest of those lengths that is at most ``p``; its occurrences are then compared token by token.
A longer n-gram is entered only where the next shorter one occurs twice, since until then the one
occurrence of the shorter is all there is to compare: most of a text costs little more than its
pairs of tokens.

What is found does not depend on that, nor on the pieces in which a text came. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from drafters.suffix_index.bulk import Latest, enter_text
from drafters.suffix_index.text import GRAMS, NOWHERE, NUMBER_SHIFT, START_MASK, Text

Occurrence = tuple[int, list[int], int]
"""One place where a suffix occurred before: its age, 0 for the most recent of those found together;
the text, borrowed and not to be changed; the index in it of the token that followed."""


class GramIndex:
    """Texts that grow at their ends, and what occurred in them.

    Extending costs O(1) amortised a token; removing a text costs as much as entering it did.

    Args:
        max_match: Longest suffix that is told apart, at least 1.
        max_occurrences: Most occurrences that are looked at for one suffix, the most recent ones,
            at least 1.
    """

    def __init__(self, max_match: int, max_occurrences: int) -> None:
        self._max_match = max_match
        self._max_occurrences = max_occurrences
        self._grams = tuple(length for length in GRAMS if length <= max_match)
        self._latest: tuple[Latest, ...] = tuple({} for _ in self._grams)
        self._texts: dict[int, Text] = {}
        self._next_number = 0

    def add(self, token_ids: Sequence[int]) -> int:
        """Add a text and return its number; numbers rise and are never used again."""
        text = Text(self._next_number, len(self._grams))
        text.append(token_ids)
        enter_text(text, self._grams, self._latest, self._promote)
        self._texts[self._next_number] = text
        self._next_number += 1
        return self._next_number - 1

    @property
    def num_grams(self) -> int:
        """N-grams that are listed, of all lengths; nearly all the memory is theirs."""
        return sum(map(len, self._latest))

    def token_ids(self, number: int) -> list[int]:
        """Return a text. Borrowed: not to be changed, and it grows."""
        return self._texts[number].token_ids

    def extend(self, number: int, token_ids: Sequence[int]) -> None:
        """Append tokens to the text that was added last."""
        text = self._texts[number]
        first = max(len(text.token_ids), 1)
        text.append(token_ids)
        for start in range(first, len(text.token_ids)):
            self._enter(text, start)

    def remove_oldest(self) -> None:
        """Remove the text that was added first."""
        number, text = next(iter(self._texts.items()))
        token_ids = text.token_ids
        for start, num_levels in enumerate(text.levels):
            place = text.first_place | start
            for length, latest in zip(self._grams[:num_levels], self._latest, strict=False):
                gram = tuple(token_ids[start - length : start])
                if latest[gram] == place:
                    del latest[gram]
        del self._texts[number]

    def matches(
        self, pattern: Sequence[int], is_worth: Callable[[int], bool] = bool
    ) -> Iterator[tuple[int, list[Occurrence]]]:
        """Yield match lengths and the occurrences that match at least so far, longest first.

        For a length ``p`` these are, among the ``max_occurrences`` most recent occurrences of the
        last ``g`` tokens of the pattern (``g`` the greatest of ``GRAMS`` that is at most ``p``),
        those before which the last ``p`` tokens of the pattern stand; the most recent first. Only
        occurrences that a token follows count. Lengths at which there are none are left out, and
        most of those at which they are the same as at a longer one.

        Args:
            pattern: The text's end; tokens further back than ``max_match`` do not matter.
            is_worth: Asked before matches of at most so many tokens are looked for; the search ends
                when it says no. By default all are.
        """
        recent = list(pattern[-self._max_match :])
        latest = self._latest_places(recent)
        most = len(recent)
        for level in range(len(latest) - 1, -1, -1):
            if not is_worth(most):
                return
            found = self._walk(recent, level, latest[level], most)
            for length in sorted({reach for reach, _ in found}, reverse=True):
                if not is_worth(length):
                    return
                yield length, [one for reach, one in found if reach >= length]
            most = self._grams[level] - 1

    def _enter(self, text: Text, start: int) -> None:
        """Enter the n-grams that end before ``start``, up to one that never occurred before."""
        place = text.first_place | start
        token_ids = text.token_ids
        for level, length in enumerate(self._grams):
            if length > start:
                return
            gram = tuple(token_ids[start - length : start])
            latest = self._latest[level]
            earlier = latest.get(gram)
            latest[gram] = place
            text.levels[start] = level + 1
            if earlier is None:
                return
            text.before[level][start] = earlier
            self._promote(earlier, level + 1)

    def _promote(self, place: int, level: int) -> None:
        """Enter a place in ``level`` too, now that its n-gram of the level below occurs again.

        No place there has the same n-gram: until now the shorter one in it occurred but once.
        """
        text = self._texts[place >> NUMBER_SHIFT]
        start = place & START_MASK
        if level == len(self._grams) or text.levels[start] > level:
            return
        length = self._grams[level]
        if length <= start:
            self._latest[level][tuple(text.token_ids[start - length : start])] = place
            text.levels[start] = level + 1

    def _latest_places(self, recent: list[int]) -> list[int]:
        """Return for each level, as far as there is one, the latest place of the pattern's end."""
        places: list[int] = []
        for length, latest in zip(self._grams, self._latest, strict=True):
            place = latest.get(tuple(recent[-length:])) if length <= len(recent) else None
            if place is None:
                break
            places.append(place)
        return places

    def _walk(
        self, recent: list[int], level: int, place: int, most: int
    ) -> list[tuple[int, Occurrence]]:
        """Return the latest occurrences at a level and how far (at most ``most``) each matches."""
        found: list[tuple[int, Occurrence]] = []
        known = self._grams[level]
        while place != NOWHERE and len(found) < self._max_occurrences:
            text = self._texts.get(place >> NUMBER_SHIFT)
            if text is None:
                break  # it was removed, and so was all before it
            start = place & START_MASK
            reach = most if most == known else _reach(recent, text.token_ids, start, known, most)
            found.append((reach, (len(found), text.token_ids, start)))
            place = text.before[level][start]
        return found


def _reach(recent: list[int], token_ids: list[int], start: int, known: int, most: int) -> int:
    """Return how many tokens before ``start`` are the last ones of ``recent``, at most ``most``.

    That ``known`` of them are is known.
    """
    most = min(most, start)
    length = known
    while length < most and token_ids[start - length - 1] == recent[-length - 1]:
        length += 1
    return length
