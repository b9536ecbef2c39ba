"""How long a step takes: base + prompt tokens + sequences + context attended to, fitted online. Reads no clock.

Ridge regression towards a prior that takes prompt tokens for expensive, with directional forgetting (Cao and Schwartz,
Automatica 36, 2000). It errs on the dear side: the prompt coefficient carries two of its standard errors, which shrink
as steps with prompt tokens are seen.
"""

import math
from collections import deque
from dataclasses import dataclass
from itertools import islice
from operator import mul
from statistics import median, median_low

from ..door import Coefficients

# The ratios matter, not the seconds: a prompt token and a decode each cost as much as the step itself, until measured.
PRIOR = Coefficients(base=0.01, prompt=0.01, sequence=0.01, context=0.000_005)
FORGET = 0.99  # what a step still counts for when the next one like it comes
RIDGE = 0.003  # the prior counts for this part of one step
WINDOW = 15  # steps whose median tells the machine's speed
TOGETHER = 4  # steps that are learned from at once, after a first window: it takes as long as for one
ENOUGH = 5  # of them, before the speed is said to have changed
SHIFT = 1.5  # a change of speed by this factor rescales what was learned
OUTLIER = 3.0  # a step this many times slower or faster than its neighbours teaches nothing but speed
LEAST_FACTOR = 1e-6  # of the prior's coefficient, by the machine's speed: no cost is ever 0
UNLIMITED = 2**40  # tokens, where they cost nothing
SHORTEST, LONGEST = 1e-9, 1e6  # seconds that a step can take
DOUBT = 2.0  # standard errors that are added to the prompt coefficient
DOUBT_LIMIT = 0.25  # doubt alone makes a prompt token no dearer than this part of one decode's own step
TOLD_COST = 4  # prompt tokens that one costs whose log probabilities are told: logits and order of the vocabulary
LEAST_NOISE = 0.05  # relative spread of a step's time that is assumed at least

Vector = list[float]
Matrix = list[Vector]


@dataclass(frozen=True, slots=True)
class Features:
    """What a step's time depends on.

    context: the sum of all slices' end positions. told: prompt tokens whose log probabilities are told.
    """

    prompt: int = 0
    sequences: int = 0
    context: int = 0
    told: int = 0

    def plus_prompt(self, start: int, length: int, *, tells: bool = False) -> "Features":
        """With one more slice of prompt tokens [start, start + length); tells: with their log probabilities."""
        told = self.told + length * tells
        return Features(self.prompt + length, self.sequences + 1, self.context + start + length, told)


class StepModel:
    """Owner of the coefficients: the prior's until something is observed, finite and positive ever after."""

    def __init__(self, prior: Coefficients = PRIOR) -> None:
        # In vectors the prompt is last: see solve().
        self._prior: Vector = [prior.base, prior.sequence, prior.context, prior.prompt]
        self._normal: Matrix = [[0.0] * 4 for _ in range(4)]
        self._right: Vector = [0.0] * 4
        self._recent: deque[tuple[Vector, float]] = deque(maxlen=WINDOW)
        self._unlearned = 0  # of them, the last
        self._factors: Vector = [1.0] * 4  # coefficients as multiples of the prior's
        self._coefficients = prior

    @property
    def coefficients(self) -> Coefficients:
        return self._coefficients

    def cost(self, features: Features) -> float:
        """Seconds that a step with these features is expected to take."""
        of = self._coefficients
        tokens = features.prompt + (TOLD_COST - 1) * features.told
        return of.base + of.prompt * tokens + of.sequence * features.sequences + of.context * features.context

    def allowance(self, target: float, beside: Features, start: int, *, tells: bool = False) -> int:
        """Most tokens that one more prompt slice from `start` may have if the step is to cost at most `target`."""
        of = self._coefficients
        room = target - self.cost(beside) - of.sequence - of.context * start
        each = of.prompt * (TOLD_COST if tells else 1) + of.context
        if room < 0.0:
            return 0
        tokens = int(min(room / each, UNLIMITED)) if each else UNLIMITED
        if tokens and self.cost(beside.plus_prompt(start, tokens, tells=tells)) > target:  # by rounding
            tokens -= 1
        return tokens

    def observe(self, features: Features, seconds: float) -> None:
        """Learn from a step that took `seconds`. What cannot be a step's time (0, NaN, a month) is left out.

        So is a step that told log probabilities: its time would be taken for the decodes'.
        """
        if features.told or not SHORTEST < seconds < LONGEST:
            return
        row = list(map(mul, self._prior, (1, features.sequences, features.context, features.prompt)))
        self._recent.append((row, seconds))
        self._unlearned += 1
        if len(self._recent) < WINDOW or self._unlearned == TOGETHER:
            self._learn()

    def _learn(self) -> None:
        """From what was observed since the last time."""
        speed = self._follow_speed()
        for row, seconds in islice(self._recent, len(self._recent) - self._unlearned, None):
            usual = speed * _dot(row, self._factors)
            if len(self._recent) < ENOUGH or usual / OUTLIER < seconds < usual * OUTLIER:
                self._add([value / seconds for value in row])
        self._unlearned = 0
        self._fit()

    def _follow_speed(self) -> float:
        """The recent steps' median time over what was expected; rescales what was learned when that is far from 1."""
        speed = median_low(seconds / _dot(row, self._factors) for row, seconds in self._recent)
        if len(self._recent) > 1 and (len(self._recent) < ENOUGH or 1 / SHIFT <= speed <= SHIFT):
            return speed
        self._normal = [[value / speed**2 for value in line] for line in self._normal]
        self._right = [value / speed for value in self._right]
        self._factors = [value * speed for value in self._factors]
        return 1.0

    def _add(self, shares: Vector) -> None:
        """One observation: the features' shares, by the prior, of the time measured. Their weighted sum should be 1.

        Forgets only what it replaces: what is known in other directions stays. Steps are much alike for long, and
        what they do not tell apart must not be lost meanwhile.
        """
        along = [_dot(line, shares) for line in self._normal]
        known = _dot(along, shares)
        faded = (1.0 - FORGET) / known if known > 0.0 else 0.0
        told = _dot(self._right, shares) * faded
        for i, share in enumerate(shares):
            lost = along[i] * faded
            self._normal[i] = [
                value - lost * other + share * mine
                for value, other, mine in zip(self._normal[i], along, shares, strict=True)
            ]
            self._right[i] += share - along[i] * told

    def _fit(self) -> None:
        """Solve for the factors, in units of the machine's speed by the prior, so that the ridge pulls towards that."""
        scale = median_low(seconds / sum(row) for row, seconds in self._recent)
        matrix = [[value * scale**2 for value in line] for line in self._normal]
        for i in range(4):
            matrix[i][i] += RIDGE
        relative, precision = solve_nonnegative(matrix, [value * scale + RIDGE for value in self._right])
        self._factors = [max(value, LEAST_FACTOR) * scale for value in relative]
        base, sequence, context, prompt = map(mul, self._factors, self._prior)
        doubt = DOUBT * self._noise() / math.sqrt(precision) * scale * self._prior[-1]
        # Without the limit a noisy machine is allowed so few tokens that nothing is ever learned about them.
        dear = max(prompt, min(prompt + doubt, DOUBT_LIMIT * (base + sequence)))
        self._coefficients = Coefficients(base, dear, sequence, context)

    def _noise(self) -> float:
        """Relative spread of recent steps' times around what is expected of them (from the median deviation)."""
        spread = median(abs(seconds / _dot(row, self._factors) - 1.0) for row, seconds in self._recent)
        return min(max(1.48 * spread, LEAST_NOISE), 1.0)


def solve(matrix: Matrix, right: Vector) -> tuple[Vector, float]:
    """x with matrix · x = right, for a symmetric positive definite matrix, by elimination.

    Also the last pivot: where the matrix is a regression's, the last unknown has the variance noise² / pivot.
    No pivot is less than RIDGE but by rounding, as every matrix here has that added to its diagonal.
    """
    size = len(right)
    lines = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(lines):
        pivot[i] = max(pivot[i], RIDGE)
        for line in lines[i + 1 :]:
            part = line[i] / pivot[i]
            for j in range(i, size + 1):
                line[j] -= part * pivot[j]
    solution = [0.0] * size
    for i in range(size - 1, -1, -1):
        known = _dot(lines[i][i + 1 : size], solution[i + 1 :])
        solution[i] = (lines[i][size] - known) / lines[i][i]
    return solution, lines[-1][size - 1]


def solve_nonnegative(matrix: Matrix, right: Vector) -> tuple[Vector, float]:
    """As solve(), but the most negative unknown is set to 0 and left out until none is negative."""
    solution, precision = solve(matrix, right)
    free = list(range(len(right)))
    found = solution
    while free and min(found) < 0.0:
        del free[found.index(min(found))]
        found, _ = solve([[matrix[i][j] for j in free] for i in free], [right[i] for i in free])
        solution = [0.0] * len(right)
        for i, value in zip(free, found, strict=True):
            solution[i] = value
    return solution, precision


def _dot(left: Vector, right: Vector) -> float:
    return float(sum(map(mul, left, right)))
