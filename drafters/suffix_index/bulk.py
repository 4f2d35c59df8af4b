"""Enter a whole text into an index at once, by sorting: some times sooner than token by token.

What comes of it is the same. Equal n-grams are found by name, as in Karp, Miller and Rosenberg
(STOC 1972): two are equal if both their halves have equal names. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from drafters.suffix_index.text import NOWHERE, Text

Indexes = NDArray[np.int64]
Latest = dict[tuple[int, ...], int]
"""Place of the most recent occurrence of each n-gram of one length."""


Scalar = TypeVar("Scalar", bound=np.generic)


class Groups(NamedTuple):
    """The groups of equal items of an array.

    Attributes:
        members: All items' indexes, group by group, rising within a group.
        starts: Where in ``members`` each group starts.
        sizes: Items in each group.
    """

    members: Indexes
    starts: Indexes
    sizes: Indexes

    def spread(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return for each item the value of its group."""
        spread = np.empty(len(self.members), dtype=values.dtype)
        spread[self.members] = np.repeat(values, self.sizes)
        return spread


def group_equal(keys: Indexes) -> Groups:
    """Return the groups of equal keys; O(n log n).

    >>> groups = group_equal(np.array([7, 5, 7]))
    >>> groups.members.tolist(), groups.sizes.tolist()
    ([1, 0, 2], [1, 2])
    """
    members = np.argsort(keys, kind="stable")
    ordered = keys[members]
    is_first = np.ones(len(keys), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    return Groups(members, starts, np.diff(starts, append=len(keys)))


def enter_text(
    text: Text,
    grams: Sequence[int],
    latest: Sequence[Latest],
    promote: Callable[[int, int], None],
) -> None:
    """Enter a text of which nothing is entered yet.

    Args:
        text: The text, more recent than all that is entered.
        grams: Length of the n-grams of each level.
        latest: For each level the latest place of each n-gram.
        promote: Called with the place of an n-gram that occurs again, and the next level.
    """
    size = len(text.token_ids)
    names = np.array([NOWHERE, *text.token_ids[:-1]], dtype=np.int64)
    starts = np.arange(1, size)
    for level, length in enumerate(grams):
        starts = starts[starts >= length]
        if len(starts) == 0:
            return
        keys = names[starts]
        if level > 0:
            keys += names[starts - grams[level - 1]] * (2 * size)
        groups = group_equal(keys)
        repeated = _enter_groups(text, level, length, latest[level], starts, groups, promote)
        names = np.arange(size, 2 * size)  # n-grams that occur once have names of their own
        names[starts] = groups.spread(np.arange(len(groups.sizes)))
        starts = starts[repeated]


def _enter_groups(
    text: Text,
    level: int,
    length: int,
    latest: Latest,
    starts: Indexes,
    groups: Groups,
    promote: Callable[[int, int], None],
) -> NDArray[np.bool_]:
    """Enter places in one level; return for each whether its n-gram occurs more than once.

    Args:
        text: The text.
        level: The level.
        length: Length of its n-grams.
        latest: Latest place of each.
        starts: The places, as indexes in the text, rising.
        groups: Which of them have the same n-gram.
        promote: See ``enter_text``.
    """
    members = starts[groups.members]
    links = np.frombuffer(text.before[level], dtype=np.int64)
    again = np.ones(len(members), dtype=bool)
    again[groups.starts] = False
    again = np.flatnonzero(again)
    links[members[again]] = members[again - 1] | text.first_place
    np.frombuffer(text.levels, dtype=np.uint8)[members] = level + 1
    repeated = groups.sizes > 1
    firsts = members[groups.starts].tolist()
    lasts = members[groups.starts + groups.sizes - 1].tolist()
    token_ids, first_place = text.token_ids, text.first_place
    for group, last in enumerate(lasts):
        gram = tuple(token_ids[last - length : last])
        earlier = latest.get(gram)
        latest[gram] = first_place | last
        if earlier is not None:
            links[firsts[group]] = earlier
            promote(earlier, level + 1)
            repeated[group] = True
    return groups.spread(repeated)
