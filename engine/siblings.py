"""Who waits for whom: requests for one prompt whose leader computes it first. Sequence numbers only; no policy.

A sibling waits outside the waiting room. It goes in when its leader's first token has come, so that it finds the
prompt's pages; if the leader ends before that, the oldest of its siblings leads the others.
"""


class Siblings:
    """Owner of the sequences that wait for a leader. The caller lets in whom it names."""

    def __init__(self) -> None:
        self._behind: dict[int, list[int]] = {}  # by leader, the oldest first
        self._leader_of: dict[int, int] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._leader_of)

    def wait(self, seq: int, leader: int) -> None:
        """Let a sequence wait for `leader`, or for whom that one waits for itself."""
        assert seq not in self._leader_of and seq not in self._behind, f"sequence {seq} is a sibling already"
        leader = self._leader_of.get(leader, leader)
        self._leader_of[seq] = leader
        self._behind.setdefault(leader, []).append(seq)

    def computed(self, leader: int) -> list[int]:
        """The leader's first token has come: who may go in now, the oldest first."""
        followers = self._behind.pop(leader, [])
        for seq in followers:
            del self._leader_of[seq]
        return followers

    def ended(self, seq: int) -> list[int]:
        """A sequence has ended, waiting or leading: who may go in now, the first of those it led."""
        leader = self._leader_of.pop(seq, None)
        if leader is not None:
            self._behind[leader].remove(seq)
            if not self._behind[leader]:
                del self._behind[leader]
        followers = self.computed(seq)
        for follower in followers[1:]:
            self.wait(follower, followers[0])
        return followers[:1]

    def check(self) -> None:
        """Assert that each waits for one leader, and that no leader waits."""
        waiting = {seq: leader for leader, followers in self._behind.items() for seq in followers}
        assert waiting == self._leader_of, "a sibling waits for nobody, or for two"
        assert sum(map(len, self._behind.values())) == len(waiting), "a sibling waits twice"
        assert not self._behind.keys() & waiting.keys(), "a leader waits"
        assert all(self._behind.values()), "a leader that nobody waits for is kept"
