"""The step loop under random histories: submit, step, cancel, yield, failures, stale orders, on tiny pools; siblings,
log probabilities, penalties, answers of no token, and rotary scaling by length past its edge.

The plain loop and the one that plans ahead, in which all of it comes while a step is under way.

The books in fakes_stepping.py check after every step that each slice reads what its own request wrote, that budgets
and seats are kept and that answers equal those of the same request alone; here the histories are made.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairstep.door import Orders
from fairstep.stepping.settings import StepSettings
from fakes_stepping import Ask, Books, admit, settings

FAMILIES = (
    (1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4),
    (1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4),
)


def any_settings(pick: random.Random, ahead: int = 0) -> StepSettings:
    """Tiny everything: pools down to one sequence, budgets down to one token a seat."""
    seats, chunk, page_size = pick.randint(1, 5), pick.randint(1, 9), pick.choice((1, 2, 3, 4, 8))
    context = pick.randint(3, 22)
    least = -(-context // page_size)
    deterministic = pick.random() < 0.3
    least_tokens = chunk + seats - 1 if deterministic else seats
    return settings(
        step_tokens=pick.randint(least_tokens, least_tokens + 12),
        seats=seats,
        pages=least + pick.choice((0, pick.randint(0, 4), pick.randint(0, 4), least * seats)),
        page_size=page_size,
        chunk=chunk,
        context=context,
        deterministic=deterministic,
        inter_token_target=pick.choice((None, None, 1e-9, 0.03, 0.2)),
        prefix_cache=pick.random() < 0.8,
        rope_edge=pick.choice((0, 0, pick.randint(1, context))),
        rope_switches=pick.random() < 0.5,
        ahead=ahead,
    )


def any_sampling(pick: random.Random, context: int) -> dict[str, object]:
    """Fields of a Sampling that the step loop knows of; often none at all of the rarer ones."""
    most = pick.choice((pick.randint(1, 4), pick.randint(1, context), context, 0 if pick.random() < 0.3 else 2))
    return {
        "max_tokens": most,
        "min_tokens": pick.randint(0, most),
        "stop_ids": pick.choice(((), (), (0,), (1, 2))),
        "presence": pick.choice((0.0, 0.0, 1.5)),
        "bad_words": pick.choice(((), (), ((1, 2),))),
        "logprobs": pick.choice((-1, -1, 0, 3)),
        "prompt_logprobs": pick.choice((-1, -1, -1, 0, 2)),
    }


class History:
    """One random history. Everything is drawn from `pick`, so a seed names it."""

    def __init__(self, pick: random.Random, ahead: int) -> None:
        self.pick = pick
        self.books = Books(any_settings(pick, ahead))
        self.speed = pick.choice((0.0, 0.001, 1.0))

    def run(self, length: int) -> None:
        acts: list[Callable[[], None]] = [
            self.submit,
            self.submit,
            self.follow,
            self.leave,
            self.orders,
            self.step,
            self.step,
            self.step,
            self.stale,
        ]
        for _ in range(length):
            self.pick.choice(acts)()
        self.books.drain()

    def submit(self) -> None:
        books, pick = self.books, self.pick
        if len(books.having("waiting")) > 8:
            return
        length = pick.randint(1, min(pick.choice((4, books.context)), books.context - 1, len(FAMILIES[0])))
        prompt = list(pick.choice(FAMILIES)[:length])
        if pick.random() < 0.3:
            prompt[-1] = 6
        sampling = any_sampling(pick, books.context)
        siblings = pick.choice((0, 0, 0, 1, 3))
        leader = books.submit(
            prompt,
            salt=f"group of {len(books.asks)}" if siblings else pick.choice("aab"),
            tier=pick.choice((0, 0, 1)),
            priority=pick.choice((0, 0, 1, -1)),
            not_finite_at=pick.choice((None,) * 15 + (pick.randint(0, 3),)) if sampling["max_tokens"] else None,
            **sampling,
        )
        self._follow(leader, siblings)

    def follow(self) -> None:
        """Siblings of somebody who is still here."""
        books, pick = self.books, self.pick
        leaders = [ask for ask in books.asks.values() if ask.state != "ended" and ask.leader is None]
        if leaders and len(books.having("waiting") + books.having("following")) <= 8:
            self._follow(pick.choice(leaders), pick.randint(1, 3))

    def _follow(self, leader: Ask, count: int) -> None:
        for _ in range(count):
            sampling = {**any_sampling(self.pick, self.books.context), "prompt_logprobs": -1}
            self.books.follow(leader, **sampling)

    def leave(self) -> None:
        """Somebody goes before the worker has heard of it."""
        for ask in self.books.having("waiting") + self.books.having("following"):
            if self.pick.random() < 0.1:
                self.books.leave(ask)

    def orders(self) -> None:
        """Some of everything, in any state; what is cancelled may be given back in the same Orders."""
        books, pick = self.books, self.pick
        sent, waiting = books.having("sent"), books.having("waiting")
        cancel = self._some(sent, 0.08)
        send = [ask for ask in waiting if pick.random() < 0.7]
        books.order(cancel=cancel, give_back=self._some([a for a in sent if a not in cancel], 0.1), send=send)

    def _some(self, asks: list[Ask], share: float) -> list[Ask]:
        return [ask for ask in asks if self.pick.random() < share]

    def step(self) -> None:
        meanwhile = self.orders if self.pick.random() < 0.4 else None
        seconds = self.speed * self.pick.choice((1, 1, 1, 1.2, 0.8, 10))
        self.books.step(meanwhile, seconds=seconds, fails=self.pick.random() < 0.02)

    def stale(self) -> None:
        """Orders about sequences that are not here, or are here with a later attempt: all are ignored."""
        books, pick = self.books, self.pick
        for ask in [ask for ask in books.having("sent") if not ask.returning][:2]:
            old = pick.choice((ask.attempt - 1, ask.attempt))
            again = admit(ask.seq, ask.tokens, attempt=old, prompt_len=len(ask.prompt))
            books.raw_orders(Orders(books.orders + 1, ((ask.seq, ask.attempt - 1),), ((ask.seq, 99),), (again,)))
        books.raw_orders(Orders(books.orders + 1, ((10**9, 1),), ((10**9, 1),)))


def run_histories(first: int, count: int, ahead: int) -> Counter[str]:
    """How many siblings found their leader's pages, and what was seen of steps planned ahead."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        pick = random.Random(seed)
        try:
            history = History(pick, ahead)
            history.run(pick.randint(5, 45))
        except Exception as error:
            error.add_note(f"history of seed {seed}")
            raise
        books = history.books
        seen.update(shared=books.shared, awaited=books.awaited, dropped=books.dropped)
    return seen


@pytest.mark.parametrize(("first", "ahead"), [*((first, 0) for first in range(0, 4000, 1000)), (0, 1), (1000, 1)])
def test_random_histories_end_each_request_once_and_lose_no_page(first: int, ahead: int) -> None:
    seen = run_histories(first, 1000, ahead)
    assert seen["shared"] > 10
    assert (seen["awaited"] > 1000 and seen["dropped"] > 100) if ahead else not seen["awaited"] + seen["dropped"]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ahead", (0, 1))
@pytest.mark.parametrize("first", range(10**6, 10**6 + 40_000, 4_000))
def test_many_more_random_histories(first: int, ahead: int) -> None:
    run_histories(first, 4_000, ahead)


class Machine(RuleBasedStateMachine):
    """The same books under hypothesis, which shrinks what it finds. `which` picks a request by its place."""

    which = st.integers(0, 7)

    @initialize(
        seats=st.integers(1, 4),
        chunk=st.integers(1, 8),
        spare_tokens=st.integers(0, 8),
        page_size=st.integers(1, 5),
        context=st.integers(3, 16),
        spare_pages=st.integers(0, 6),
        deterministic=st.booleans(),
        inter_token_target=st.sampled_from((None, 1e-9, 0.05)),
        prefix_cache=st.booleans(),
        rope_edge=st.integers(0, 12),
        rope_switches=st.booleans(),
        ahead=st.integers(0, 1),
    )
    def begin(
        self,
        seats: int,
        chunk: int,
        spare_tokens: int,
        page_size: int,
        context: int,
        spare_pages: int,
        deterministic: bool,
        inter_token_target: float | None,
        **more: object,
    ) -> None:
        own = settings(
            seats=seats,
            chunk=chunk,
            step_tokens=spare_tokens + (chunk + seats - 1 if deterministic else seats),
            page_size=page_size,
            context=context,
            pages=-(-context // page_size) + spare_pages,
            deterministic=deterministic,
            inter_token_target=inter_token_target,
            **more,
        )
        self.books = Books(own)

    @rule(
        family=st.sampled_from(FAMILIES),
        length=st.integers(1, 18),
        most=st.integers(0, 16),
        prompt_logprobs=st.sampled_from((-1, 0)),
        stop_ids=st.sampled_from(((), (0,), (1, 2))),
        salt=st.sampled_from("ab"),
        tier=st.integers(0, 1),
        not_finite_at=st.none() | st.integers(0, 3),
        siblings=st.integers(0, 2),
    )
    def submit(self, family: tuple[int, ...], length: int, most: int, siblings: int, **more: object) -> None:
        more["max_tokens"] = most
        if not most:
            more["not_finite_at"] = None
        leader = self.books.submit(family[: min(length, self.books.context - 1)], **more)
        for _ in range(siblings):
            self.books.follow(leader, max_tokens=most)
        self.books.order(send=[leader])

    @rule(which=which)
    def send_again(self, which: int) -> None:
        self.books.order(send=self.books.having("waiting")[which : which + 1])

    @rule(which=which)
    def cancel(self, which: int) -> None:
        self.books.order(cancel=self.books.having("sent")[which : which + 1])

    @rule(which=which)
    def give_back(self, which: int) -> None:
        self.books.order(give_back=self.books.having("sent")[which : which + 1])

    @rule(seconds=st.floats(0, 10))
    def step(self, seconds: float) -> None:
        self.books.step(seconds=seconds)

    @rule(which=which, cancels=st.booleans())
    def step_with_orders_in_flight(self, which: int, cancels: bool) -> None:
        self.books.step(lambda: self.cancel(which) if cancels else self.give_back(which))

    @rule()
    def failing_step(self) -> None:
        self.books.step(fails=True)

    @invariant()
    def owners_agree(self) -> None:
        if hasattr(self, "books"):
            self.books.loop.check()

    def teardown(self) -> None:
        if hasattr(self, "books"):
            self.books.drain()


TestMachine = Machine.TestCase
TestMachine.settings = hypothesis_settings(max_examples=200, stateful_step_count=40, deadline=None)
