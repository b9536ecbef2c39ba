"""What happened in one run: when each answer's tokens came, and how full each step was."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..simulation.trace import Arrival


@dataclass(slots=True)
class Answer:
    """One request's. told: the instants at which its tokens reached its client."""

    arrival: Arrival
    told: "array[float]" = field(default_factory=lambda: array("d"))

    @property
    def is_whole(self) -> bool:
        return len(self.told) == self.arrival.outputs

    @property
    def ttft(self) -> float:
        """Seconds from arrival to the first token."""
        return self.told[0] - self.arrival.at

    @property
    def seconds(self) -> float:
        """From arrival to the last token."""
        return self.told[-1] - self.arrival.at

    @property
    def gaps(self) -> Iterator[float]:
        """Seconds from token to token."""
        return (later - earlier for earlier, later in zip(self.told, self.told[1:], strict=False))

    @property
    def pace(self) -> float:
        """The mean gap; 0 of a single token."""
        return (self.told[-1] - self.told[0]) / max(1, len(self.told) - 1)


@dataclass(frozen=True, slots=True)
class Beat:
    """One step. held: seats that a request had, its answer not over; computing: those of them with a token in the step.

    tokens: computed for requests; padding: computed for nothing.
    """

    began: float
    ended: float
    held: int
    computing: int
    tokens: int
    padding: int


@dataclass(slots=True)
class Course:
    """A run of `seats` seats. Instants are seconds since it began, idle time skipped or not."""

    seats: int
    answers: list[Answer]
    beats: list[Beat] = field(default_factory=list)

    @property
    def ended_at(self) -> float:
        return max((answer.told[-1] for answer in self.answers if answer.told), default=0.0)

    @property
    def last_begun(self) -> float:
        """When the last one's first token came: somebody waits until then, if more comes than can be served."""
        return max(answer.told[0] for answer in self.answers)

    @property
    def last_arrival(self) -> float:
        return max(answer.arrival.at for answer in self.answers)

    @property
    def full_at(self) -> float | None:
        """When the first step with every seat held began."""
        return next((beat.began for beat in self.beats if beat.held == self.seats), None)

    @property
    def served_rate(self) -> float:
        """Answers a second until the last one began."""
        return sum(answer.told[-1] <= self.last_begun for answer in self.answers) / self.last_begun

    def held(self, begin: float, end: float) -> float:
        """The part of all seats that was held between two instants, by time; between steps nobody holds any."""
        sums = sum(beat.held * max(0.0, min(beat.ended, end) - max(beat.began, begin)) for beat in self.beats)
        return sums / (self.seats * (end - begin)) if end > begin else 0.0
