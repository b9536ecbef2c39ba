"""A seeded history of requests and faults: who asks what, and what breaks when."""

from collections import Counter
from random import Random

from chaos.plant import BREAKS, KILLS, RAISES, Plant
from fairstep.request import SamplingParams
from fairstep.stepping.settings import StepSettings

TENANTS = ("a", "a", "b", "c")


class History:
    """One history. `counts` tell what happened in it."""

    def __init__(self, seed: int) -> None:
        self.pick = Random(seed)
        self.plant = Plant(self._settings(), self.pick.choice((1, 1, 2, 3)), pick=self.pick)
        self.rate = self.pick.choice((0.0, 0.02, 0.1))  # of what goes wrong by itself
        self.scales = self.pick.choice((0.0, 0.0, 0.05))  # of a number of workers that changes
        self.culprits = self.pick.choice((0.0, 0.0, 0.05, 0.2))

    def run(self, turns: int = 120) -> Counter[str]:
        for _ in range(turns):
            self._ask()
            self._happen()
            self.plant.front.check()
        self.plant.settle()
        self.plant.judge()
        ends = [deltas[-1] for deltas in self.plant.told.values()]
        refused = sum(end.finish_reason == "error" for end in ends)
        self.plant.counts += Counter(
            {"accepted": len(ends), "refused in words": refused, "finished": len(ends) - refused}
        )
        self.plant.counts["retried"] += self.plant.metrics.failures.stats(0).retried
        return self.plant.counts

    def _settings(self) -> StepSettings:
        page_size, seats, context = self.pick.choice((1, 2, 4)), self.pick.randint(1, 8), 40
        return StepSettings(
            step_tokens=seats + self.pick.randint(0, 12),
            seats=seats,
            pages=-(-context // page_size) + self.pick.randint(0, 60),
            page_size=page_size,
            chunk=self.pick.randint(1, 9),
            context=context,
            prefix_cache=self.pick.random() < 0.5,
            ahead=self.pick.choice((0, 1)),
        )

    def _ask(self) -> None:
        """Somebody may ask for something, or think better of it."""
        plant, pick = self.plant, self.pick
        if pick.random() < 0.4:
            culprit = pick.random() < self.culprits
            first = pick.choice((KILLS, RAISES, BREAKS)) if culprit else 97
            late = pick.random() < 0.1
            deadline = plant.clock.now() + pick.randint(1, 60) if late else None
            params = SamplingParams(max_tokens=pick.randint(1, 20), stop=pick.choice(((), (), ("fgh",))))
            plant.submit(
                first,
                params,
                pick.randint(1, 9),
                tenant=pick.choice(TENANTS),
                deadline=deadline,
                siblings=pick.choice((1, 1, 3)),
            )
        if plant.told and pick.random() < 0.05:
            plant.cancel(pick.choice(list(plant.told)))

    def _happen(self) -> None:
        """Everybody moves, in any order and not always; something may break at any point of it."""
        plant, pick = self.plant, self.pick
        plant.order()
        for number in list(plant.hands):
            self._break(number)
            if number in plant.hands and pick.random() < 0.8:
                plant.tick(number)
            self._break(number)
            while number in plant.hands and plant.hands[number].outbox and pick.random() < 0.7:
                plant.deliver(number)
        if pick.random() < self.rate:
            plant.repeat()
        if plant.hands and pick.random() < self.rate:
            plant.order_again(pick.choice(list(plant.hands)))
        if pick.random() < self.scales:
            plant.resize(pick.randint(1, 3))
        if plant.restarts_due and pick.random() < 0.3:
            plant.start()
        plant.clock.jump(1000.0 if pick.random() < self.rate / 4 else 1.0)

    def _break(self, number: int) -> None:
        """Between any two moves of a worker: it dies, hangs, or is to die within its next step."""
        if number not in self.plant.hands or self.pick.random() >= self.rate:
            return
        fault = self.pick.choice(("kill", "kill", "doom", "hang"))
        self.plant.counts[f"fault: {fault}"] += 1
        if fault == "kill":
            self.plant.kill(number)
        elif fault == "doom":
            self.plant.hands[number].runner.doomed = True
        else:
            self.plant.hands[number].hangs_since = self.plant.clock.now()
