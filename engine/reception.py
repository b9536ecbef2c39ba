"""Where requests get their place in the server and give it back, with the clocks that admission is handed.

A visit is one body: all its prompts and answers come and go together. Over HTTP and in a simulation alike.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from .admission.admission import Admission
from .admission.deadlines import NO_DEADLINES, Deadlines
from .admission.forecast import Prospect
from .admission.limits import Need
from .admission.place import Place
from .admission.rate_limits import RateFigure
from .clock import wall_time
from .errors import DeadlineExceeded, FairstepError
from .fairness.averages import SCALE, Averages
from .tenants import TenantTerms

Foresee = Callable[[Need, TenantTerms, Deadlines, float], Prospect | None]
Refused = Callable[[TenantTerms | None, FairstepError, Need | None], None]


class Reception:
    """Owner of the visits.

    model: the name that limits know it by, "" where a request says which one; asked for each time, as names come and
    go. now: the engine's clock. unix: Unix seconds, for months.
    foresee: what a tenant's request with such deadlines may expect now; None: deadlines are not judged at the door.
    refused: hears whose request is turned away (None: nobody's) and why, and what it asked for, if that is known.
    """

    def __init__(
        self,
        admission: Admission,
        model: Callable[[], str],
        now: Callable[[], float],
        unix: Callable[[], float] = wall_time,
        foresee: Foresee | None = None,
        refused: Refused = lambda terms, error, need: None,
    ) -> None:
        self.refused = refused
        self.admission = admission
        self.now = now
        self.unix = unix
        self.foresee = foresee
        self.outputs = Averages()  # of an answer, by tenant
        self._model = model
        self._visits: dict[int, Visit] = {}

    def arrive(self, terms: TenantTerms, endpoint: str, size: int) -> "Visit":
        """A place for a body of `size` bytes. Raises TenantLimited or ServerOverloaded."""
        now = self.now()
        try:
            place = self.admission.arrive(
                f"{terms.name} at {endpoint}", terms, endpoint=endpoint, model=self._model(), size=size, now=now
            )
        except FairstepError as error:
            self.refused(terms, error, None)
            raise
        visit = self._visits[place.number] = Visit(self, place, terms)
        self.end_pushed()
        return visit

    def figures(self, terms: TenantTerms, endpoint: str) -> tuple[RateFigure, ...]:
        """What a tenant has left of its limits a minute."""
        return self.admission.figures(terms, endpoint=endpoint, model=self._model(), now=self.now())

    def end_pushed(self) -> None:
        """End the requests of places that were put out for another."""
        for place in self.admission.pushed():
            visit = self._visits[place.number]
            assert place.pushed_out is not None, "a place was put out for no reason"
            visit.hear_refused(place.pushed_out)
            visit.give_up()

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

    give_up: ends what the engine does for it. on_leave: called once, when it has left.
    """

    def __init__(self, reception: Reception, place: Place, terms: TenantTerms) -> None:
        self.place = place
        self.terms = terms
        self.deadlines: Deadlines = NO_DEADLINES
        self.give_up: Callable[[], None] = _nothing
        self.on_leave: Callable[[], None] = _nothing
        self._foresee = reception.foresee
        self._refused = reception.refused
        self._reception = reception
        self._begun: set[int] = set()
        self._left = False

    @property
    def arrived(self) -> float:
        return self.place.arrived

    @contextmanager
    def refusals(self) -> Generator[None, None, None]:
        """What fails inside is told as a refusal; that its place was given to another has been told."""
        try:
            yield
        except FairstepError as error:
            if error is not self.place.pushed_out:
                self._refused(self.terms, error, self.place.need)
            raise

    def address(self, model: str, foresee: Foresee, refused: Refused) -> None:
        """The model it is for is known, what may be expected there, and who hears of refusals. Raises RateLimited."""
        self._foresee, self._refused = foresee, refused
        self._reception.admission.address(self.place, model, self._reception.now())

    def is_batch_work(self) -> None:
        """The client says that nobody waits for it."""
        self.place.terms = self.terms = self.terms.as_batch()

    def count(self, *, prompt_tokens: int, max_tokens: int, sequences: int, least: int = 1) -> None:
        """Take of the tenant's limits and of the queue, and let it wait.

        max_tokens, least: the most and the fewest of one answer. Raises TenantLimited, Overloaded, StoreFailed,
        DeadlineImpossible or DeadlineExceeded.
        """
        reception = self._reception
        usual = -(-reception.outputs.of(self.terms.name) // SCALE) or None
        need = Need(
            prompt_tokens=prompt_tokens, max_tokens=max_tokens, expected=usual, sequences=sequences, least=least
        )
        now = reception.now()
        if self.deadlines.excess(now, now) > 0.0:  # while its body came and was tokenized
            raise self.expired()
        reception.admission.count(self.place, need, now=now, unix=reception.unix())
        reception.end_pushed()
        is_judged = self.deadlines.sooner is not None or reception.admission.targets
        prospect = self._foresee(need, self.terms, self.deadlines, now) if self._foresee and is_judged else None
        reception.admission.judge(self.place, self.deadlines, prospect, now)

    def hear_refused(self, error: FairstepError) -> None:
        """It is refused, by others' doing."""
        self._refused(self.terms, error, self.place.need)

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
        self._reception.admission.tell(self.place, self._reception.now())

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
            self.place.settle(outputs, now, natural=answered)
        elif cut:
            self.place.settle(0, now, prompt=0)
        else:
            self.place.release(now)
        if answered and need is not None:
            self._reception.outputs.add(self.terms.name, outputs // need.sequences)
        self._reception.forget(self.place)
        self.on_leave()


def _nothing() -> None:
    pass
