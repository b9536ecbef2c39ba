"""Where HTTP requests get their place in the server and give it back, with the clocks that admission is handed.

A visit is one body: all its prompts and answers come and go together.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..admission.admission import Admission
from ..admission.deadlines import NO_DEADLINES, Deadlines
from ..admission.limits import Need
from ..admission.place import Place
from ..admission.rate_limits import RateFigure
from ..clock import wall_time
from ..errors import DeadlineExceeded
from ..fairness.averages import SCALE, Averages

if TYPE_CHECKING:
    from ..tenants import TenantTerms


class Reception:
    """Owner of the visits. now: the engine's clock. model: the name that limits know it by."""

    def __init__(self, admission: Admission, model: str, now: Callable[[], float]) -> None:
        self.admission = admission
        self.now = now
        self.outputs = Averages()  # of an answer, by tenant
        self._model = model
        self._visits: dict[int, Visit] = {}

    def arrive(self, terms: "TenantTerms", endpoint: str, size: int) -> "Visit":
        """A place for a body of `size` bytes. Raises TenantLimited or ServerOverloaded."""
        now = self.now()
        place = self.admission.arrive(
            f"{terms.name} at {endpoint}", terms, endpoint=endpoint, model=self._model, size=size, now=now
        )
        visit = self._visits[place.number] = Visit(self, place, terms)
        self.end_pushed()
        return visit

    def figures(self, terms: "TenantTerms", endpoint: str) -> tuple[RateFigure, ...]:
        """What a tenant has left of its limits a minute."""
        return self.admission.figures(terms, endpoint=endpoint, model=self._model, now=self.now())

    def end_pushed(self) -> None:
        """End the requests of places that were put out for another."""
        for place in self.admission.pushed():
            self._visits[place.number].give_up()

    def forget(self, place: Place) -> None:
        self._visits.pop(place.number, None)

    def check(self) -> None:
        """Assert that visits and places agree."""
        self.admission.check()
        self.outputs.check()
        live = sum(visit.place.stage != "ended" for visit in self._visits.values())
        assert live == self.admission.live, "a place has no visit"


class Visit:
    """One body's stay. Whoever has it calls leave(), however it ends; a refusal has given its place back already.

    give_up: ends what the engine does for it.
    """

    def __init__(self, reception: Reception, place: Place, terms: "TenantTerms") -> None:
        self.place = place
        self.terms = terms
        self.deadlines: Deadlines = NO_DEADLINES
        self.give_up: Callable[[], None] = _nothing
        self._reception = reception
        self._begun: set[int] = set()
        self._left = False

    @property
    def arrived(self) -> float:
        return self.place.arrived

    def is_batch_work(self) -> None:
        """The client says that nobody waits for it."""
        self.place.terms = self.terms = self.terms.as_batch()

    def count(self, *, prompt_tokens: int, max_tokens: int, sequences: int) -> None:
        """Take of the tenant's limits and of the queue, and let it wait.

        max_tokens: the most of one answer. Raises TenantLimited, Overloaded, StoreFailed or DeadlineExceeded.
        """
        reception = self._reception
        usual = -(-reception.outputs.of(self.terms.name) // SCALE) or None
        need = Need(prompt_tokens=prompt_tokens, max_tokens=max_tokens, expected=usual, sequences=sequences)
        now = reception.now()
        if self.deadlines.excess(now, now) > 0.0:  # while its body came and was tokenized
            raise self.expired()
        reception.admission.count(self.place, need, now=now, unix=wall_time())
        reception.end_pushed()
        reception.admission.judge(self.place, self.deadlines, None, now)

    def check_place(self) -> None:
        """Raise ServerOverloaded if its place was given to another."""
        if self.place.pushed_out is not None:
            raise self.place.pushed_out

    def begin(self, answer: int) -> None:
        """An answer's first token has come."""
        if answer in self._begun or self.place.stage == "ended":
            return
        self._begun.add(answer)
        self._reception.admission.begin(self.place, self._reception.now())
        self._reception.admission.tell(self.place)

    def expired(self) -> DeadlineExceeded:
        """What to tell when its time is up."""
        return self.place.exceeded(self._reception.now())

    def leave(self, outputs: int, *, answered: bool, cut: bool = False) -> None:
        """It is over, after so many tokens; harmless when it is over already.

        answered: to its end. cut: by the client. What fails before its first token counts for nothing; what its client
        cuts there counts as a request.
        """
        if self._left:
            return
        self._left = True
        need, now = self.place.need, self._reception.now()
        if need is not None and (answered or outputs):
            self.place.settle(outputs, now)
        elif cut:
            self.place.settle(0, now, prompt=0)
        else:
            self.place.release(now)
        if answered and need is not None:
            self._reception.outputs.add(self.terms.name, outputs // need.sequences)
        self._reception.forget(self.place)


def _nothing() -> None:
    pass
