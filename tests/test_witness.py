"""witness.py: batches leave as naive static ones do, and every row is computed until the longest has ended."""

from collections.abc import Callable, Sequence

from fairstep.benchmarking.witness import play_batches
from fairstep.simulation.trace import Arrival, Trace
from fairstep.simulation.virtual_clock import VirtualClock


class SecondAToken:
    """Draws a token of each row a second."""

    vocabulary = 1000

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.batches: list[int] = []

    def answer(self, prompts: Sequence[Sequence[int]], outputs: int, on_token: Callable[[], None]) -> None:
        self.batches.append(len(prompts))
        for _ in range(outputs):
            self.clock.reach(self.clock.now() + 1.0)
            on_token()


def test_a_full_batch_leaves_at_once_and_half_a_one_when_it_has_waited() -> None:
    arrivals = [Arrival(at=at, prompt_tokens=4, outputs=n) for at, n in ((0.0, 1), (0.0, 3), (10.0, 2))]
    clock = VirtualClock()
    model = SecondAToken(clock)
    course = play_batches(Trace.of("t", arrivals), model, clock, seats=2, delay=0.5)
    assert model.batches == [2, 1]
    assert [list(answer.told) for answer in course.answers] == [[1.0], [1.0, 2.0, 3.0], [11.5, 12.5]]
    assert [(beat.held, beat.padding) for beat in course.beats] == [(2, 0), (1, 1), (1, 1), (1, 0), (1, 0)]
