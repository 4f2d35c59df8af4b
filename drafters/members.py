"""Which workers there are. Pure: what hosts answered is passed in, and so is nothing else.

``drafters.membership`` asks the hosts; ``drafters.client`` calls the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from drafters.api import DrafterInfo

MemberKey = tuple[str, str, str]
"""Names one process of one worker: drafter, host, incarnation."""
GONE_AFTER_POLLS = 3
"""A worker stays a member for this many polls in which its host may just have failed to answer."""


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of one drafter, and how to reach it.

    Attributes:
        name: The drafter's name.
        replica_id: Its host's; stays when the host restarts its worker.
        info: What the worker says of itself.
        handle: What the transport of its placement calls: an actor handle, or a ``DraftQueue``.
        placement: Where it runs, as in the configuration.
        node_id: Ray node that it runs on; empty in process.
        pid: Its process there; 0 in process.
    """

    name: str
    replica_id: str
    info: DrafterInfo
    handle: Any = field(compare=False, repr=False)
    placement: Literal["worker", "in_process"] = "worker"
    node_id: str = ""
    pid: int = 0

    @property
    def key(self) -> MemberKey:
        """Names this process of this worker."""
        return (self.name, self.replica_id, self.info.incarnation)


@dataclass(frozen=True, slots=True)
class Poll:
    """What the hosts of one drafter answered when asked for their members.

    Attributes:
        members: The workers of the hosts that answered and have one.
        num_silent: Hosts that failed to answer. A host that is known to be gone is not silent.
    """

    members: Sequence[Member]
    num_silent: int = 0


class MemberTable:
    """The workers of all drafters, as of the last polls.

    While some host is silent, a worker that nobody named may be that host's: it stays a member
    for a few polls more. Calling a dead worker costs an empty draft, hiding a live one all drafts.
    """

    def __init__(self) -> None:
        self._members: dict[str, dict[str, Member]] = {}
        self._unseen: dict[str, int] = {}

    def update(self, name: str, poll: Poll) -> bool:
        """Take in a poll of the drafter's hosts; return whether the members changed.

        A worker keeps the handle it was first seen with as long as its process is the same.
        """
        old = self._members.get(name, {})
        new: dict[str, Member] = {}
        for member in poll.members:
            known = old.get(member.replica_id)
            new[member.replica_id] = known if known == member else member
            self._unseen.pop(member.replica_id, None)
        for replica_id, member in old.items():
            if replica_id not in new and self._may_be_silent(replica_id, poll.num_silent):
                new[replica_id] = member
        self._members[name] = new
        return old != new

    def members(self) -> tuple[Member, ...]:
        """Return all members, in a stable order."""
        return tuple(
            self._members[name][replica_id]
            for name in sorted(self._members)
            for replica_id in sorted(self._members[name])
        )

    def counts(self) -> Mapping[str, int]:
        """Return how many workers each polled drafter has."""
        return {name: len(members) for name, members in self._members.items()}

    def _may_be_silent(self, replica_id: str, num_silent: int) -> bool:
        unseen = self._unseen.get(replica_id, 0) + 1
        if num_silent == 0 or unseen > GONE_AFTER_POLLS:
            self._unseen.pop(replica_id, None)
            return False
        self._unseen[replica_id] = unseen
        return True
