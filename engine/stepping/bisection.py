"""A step that failed for a cause unknown is run again in halves, pages kept, until the culprit is alone. Pure.

Each half is a step of its own, and comes before anything else. One sequence that fails alone before any other part has
run is judged last: where nothing runs at all, it is no sequence's fault.
"""

from collections import deque
from collections.abc import Sequence as List

from .cost import Features, StepModel
from .plan import StepPlan
from .rope_lengths import RopeLengths
from .scheduler import Draft
from .sequence import Sequence
from .slices import decode_slice, prompt_slice

Part = list[tuple[Sequence, int]]  # sequences, and how many tokens of each the step computed


class Bisection:
    """Owner of the parts that are still to be run; those that run again are planned as they were."""

    def __init__(self, model: StepModel, rope: RopeLengths) -> None:
        self._model = model
        self._rope = rope
        self._parts: deque[Part] = deque()
        self._split: set[int] = set()  # sequences of the failed step
        self._some_ran = False
        self._judged_last: set[int] = set()

    @property
    def is_active(self) -> bool:
        """Whether a failed step is not dealt with yet: parts are then run one at a time."""
        return bool(self._split)

    def draft(self) -> Draft | None:
        """The next part as a step; None if none is left of which anybody goes on. No step is under way."""
        while self._parts:
            part = [each for each in self._parts.popleft() if each[0].state == "running" and not each[0].leaving]
            if part:
                return self._draft(part)
        self._split.clear()
        self._judged_last.clear()
        return None

    def ran(self) -> None:
        """A step was computed."""
        self._some_ran = True

    def split(self, plan: StepPlan, sequences: List[Sequence]) -> bool:
        """A step could not be computed; of its sequences these go on. False: it is one, or none, and judged now."""
        if not self._split:
            self._some_ran = False
        lengths = {piece.seq: len(piece.tokens) for piece in plan.slices}
        part = [(sequence, lengths[sequence.seq]) for sequence in sequences]
        if len(part) > 1:
            self._split.update(sequence.seq for sequence in sequences)
            middle = (len(part) + 1) // 2
            self._parts.extendleft((part[middle:], part[:middle]))
            return True
        alone = next((sequence.seq for sequence in sequences), None)
        if alone not in self._split or alone in self._judged_last or self._some_ran:
            return False
        self._judged_last.add(alone)
        self._parts.append(part)
        return True

    def is_culprit(self, sequence: Sequence) -> bool:
        """Whether one that failed alone did so where others ran."""
        return sequence.seq in self._split and self._some_ran

    def _draft(self, part: Part) -> Draft:
        decodes = [sequence for sequence, _ in part if sequence.decodes]
        context = sum(sequence.computed for sequence in decodes) + len(decodes)
        draft = Draft(features=Features(0, len(decodes), context))
        for sequence in decodes:
            draft.add(sequence, decode_slice(sequence, self._rope.stretch(sequence)))
        for sequence, length in part:
            if not sequence.decodes:
                draft.features = draft.features.plus_prompt(sequence.computed, length, tells=sequence.tells_prompt)
                draft.add(sequence, prompt_slice(sequence, length, self._rope.stretch(sequence)))
        draft.modelled = self._model.cost(draft.features)
        return draft
