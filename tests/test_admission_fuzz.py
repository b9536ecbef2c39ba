"""The whole way through the door, at random: refusals, cancels, expiries and new limits at every stage leak nothing."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairstep.admission.admission import Admission
from fairstep.admission.bounded_queue import QueueBounds, Size
from fairstep.admission.deadlines import Deadlines
from fairstep.admission.forecast import Forecast, Prospect
from fairstep.admission.limit_store import Draw, MemoryLimits
from fairstep.admission.limits import Limit, Need
from fairstep.admission.month import month_of
from fairstep.admission.place import Place
from fairstep.errors import FairstepError, StoreFailed
from fairstep.tenants import TenantTerms

NAMES = "abc"
MODELS = ("heavy", "light")
AMOUNTS = st.integers(1, 400)


class ShakyStore(MemoryLimits):
    """A store that fails now and then."""

    fails = False

    def take(self, draws: "list[Draw]") -> Draw | None:  # type: ignore[override]
        self._maybe_fail()
        return super().take(draws)

    def add(self, draws: "list[Draw]") -> None:  # type: ignore[override]
        self._maybe_fail()
        super().add(draws)

    def _maybe_fail(self) -> None:
        if self.fails:
            raise StoreFailed("disk full")


class Doors(RuleBasedStateMachine):
    """Time stands still for limits a minute, so that what buckets owe is exactly what ended requests used."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ShakyStore()
        self.admission = Admission(QueueBounds(entries=6, tokens=300, bytes=2000), self.store)
        self.terms = {name: TenantTerms(name) for name in NAMES}
        self.places: list[Place] = []
        self.used: dict[tuple[str, str, str], int] = {}  # by tenant, limit and period: what ended requests used
        self.now = 0.0

    @initialize()
    def some_limits(self) -> None:
        self.terms["a"] = replace(self.terms["a"], limits=limits(100), max_concurrent=3)
        self.terms["b"] = replace(self.terms["b"], limits=limits(300), queue_share=0.5)
        self.terms["c"] = replace(self.terms["c"], limits=limits(200), weight=2)

    def ended(self, place: Place, prompt: int, outputs: int) -> None:
        """Book what a place used that took of its limits."""
        if place in self.places:
            self.places.remove(place)
        for limit, _ in place.reservation.taken if place.reservation else ():
            key = place.tenant, limit.counted, limit.per
            used = limit.part(type(place.need.quantities)(1, prompt, outputs)) if place.need else 0
            self.used[key] = self.used.get(key, 0) + used

    def drop_pushed(self) -> None:
        for place in self.admission.pushed():
            assert place.stage == "ended" and place.pushed_out is not None
            if place in self.places:
                self.places.remove(place)

    @rule(name=st.sampled_from(NAMES), model=st.sampled_from(MODELS), size=st.integers(0, 900))
    def comes(self, name: str, model: str, size: int) -> None:
        try:
            place = self.admission.arrive("r", self.terms[name], endpoint="chat", model=model, size=size, now=0.0)
        except FairstepError:
            return
        finally:
            self.drop_pushed()
        self.places.append(place)

    @precondition(lambda self: self.at("arrived"))
    @rule(
        data=st.data(),
        prompt=st.integers(0, 200),
        most=st.integers(0, 200),
        expected=st.none() | st.integers(0, 100),
        sequences=st.integers(1, 3),
    )
    def is_counted(self, data: st.DataObject, prompt: int, most: int, expected: int | None, sequences: int) -> None:
        place = data.draw(st.sampled_from(self.at("arrived")))
        need = Need(prompt_tokens=prompt, max_tokens=most, expected=expected, sequences=sequences)
        try:
            self.admission.count(place, need, now=0.0, unix=0.0)
        except FairstepError:
            self.places.remove(place)
        self.drop_pushed()

    @precondition(lambda self: self.at("counted"))
    @rule(data=st.data(), whole=st.none() | st.integers(-2, 30), wait=st.integers(0, 20), least=st.integers(0, 3))
    def is_judged(self, data: st.DataObject, whole: int | None, wait: int, least: int) -> None:
        place = data.draw(st.sampled_from(self.at("counted")))
        deadlines = Deadlines(whole=None if whole is None else self.now + whole)
        prospect = Prospect(Forecast(wait, wait + 4, wait + 5), Forecast(0, 4, 5), Forecast(0, least, least))
        try:
            self.admission.judge(place, deadlines, prospect, self.now)
        except FairstepError:
            self.places.remove(place)

    @precondition(lambda self: self.at("waiting", "running"))
    @rule(data=st.data(), sequences=st.integers(1, 3))
    def begins(self, data: st.DataObject, sequences: int) -> None:
        self.admission.begin(data.draw(st.sampled_from(self.at("waiting", "running"))), self.now, sequences)

    @precondition(lambda self: self.at("running"))
    @rule(data=st.data())
    def is_told(self, data: st.DataObject) -> None:
        self.admission.tell(data.draw(st.sampled_from(self.at("running"))), self.now)

    @precondition(lambda self: self.places)
    @rule(data=st.data(), outputs=st.integers(0, 300), prompt=st.none() | st.integers(0, 50))
    def ends(self, data: st.DataObject, outputs: int, prompt: int | None) -> None:
        place = data.draw(st.sampled_from(self.places))
        place.settle(outputs, 0.0, prompt=prompt)
        whole = place.need.prompt_tokens if place.need else 0
        self.ended(place, whole if prompt is None else prompt, outputs)

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def is_cancelled(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.places))
        place.release(0.0)
        place.release(0.0)
        self.places.remove(place)

    @rule(seconds=st.integers(0, 10))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        for place in self.admission.overdue(self.now):
            assert place in self.places and place.stage in ("waiting", "running")
            assert place.deadlines.whole is not None
            place.settle(0, 0.0, prompt=0)
            self.ended(place, 0, 0)

    @rule(name=st.sampled_from(NAMES), amount=AMOUNTS, kept=st.integers(0, 4), most=st.none() | st.integers(1, 3))
    def limits_are_reloaded(self, name: str, amount: int, kept: int, most: int | None) -> None:
        self.terms[name] = replace(self.terms[name], limits=limits(amount)[:kept], max_concurrent=most)

    @rule(fails=st.booleans())
    def the_store_fails_or_works(self, fails: bool) -> None:
        self.store.fails = fails

    def at(self, *stages: str) -> list[Place]:
        return [place for place in self.places if place.stage in stages]

    @invariant()
    def all_is_counted_once(self) -> None:
        self.admission.check()
        assert self.admission.live == len(self.places)
        waiting = [place for place in self.places if place.stage != "running"]
        assert self.admission.waiting.entries >= len(waiting)

    def teardown(self) -> None:
        self.store.fails = False
        for place in list(self.places):
            place.release(0.0)
        self.admission.check()
        assert (self.admission.live, self.admission.waiting, self.admission.next_due) == (0, Size(), inf)
        self.admission.overdue(inf)
        # a correction that the store could not take is made with the next one
        last = self.admission.arrive("last", LAST, endpoint="chat", model="m", size=0, now=0.0)
        self.admission.count(last, Need(prompt_tokens=0, max_tokens=0), now=0.0, unix=0.0)
        last.release(0.0)
        month = month_of(0.0).number
        for limit in limits(1):
            for name in NAMES:
                key = name, limit.counted, limit.per
                if limit.per == "month":
                    assert self.store.count(name, limit.counted, month) == self.used.get(key, 0)
                else:
                    assert self.admission.owed(name, limit, 0.0) == pytest.approx(self.used.get(key, 0))


LAST = TenantTerms("last", limits=(Limit(what="requests", per="month", amount=1),))


def limits(amount: int) -> tuple[Limit, ...]:
    return (
        Limit(what="tokens", per="minute", amount=amount),
        Limit(what="tokens", per="month", amount=10 * amount),
        Limit(what="requests", per="minute", amount=amount),
        Limit(what="output_tokens", per="month", amount=amount, model="heavy"),
    )


Doors.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestDoors = Doors.TestCase
