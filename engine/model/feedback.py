"""What each seat drew in the step before, for slices that await it: token feedback where steps are computed at once."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..stepping.plan import Slice


class Feedback:
    """Owner of the newest token of each seat, for one step."""

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}

    def fed(self, slices: tuple[Slice, ...]) -> tuple[Slice, ...]:
        """The slices with the tokens that they await, also at the end of what they know."""
        return tuple([self._fed(piece) if piece.awaits else piece for piece in slices])

    def keep(self, sampling: Sequence[Slice], tokens: Sequence[int]) -> None:
        """What the step drew for its slices that sample."""
        self._newest = {piece.seat: token for piece, token in zip(sampling, tokens, strict=True)}

    def _fed(self, piece: Slice) -> Slice:
        token = max(self._newest[piece.seat], 0)  # what was not finite has ended; any id will do
        return replace(piece, tokens=(token,), known=(*piece.known, token) if piece.known else (), awaits=False)
