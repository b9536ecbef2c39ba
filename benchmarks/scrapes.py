"""Scrapes of a long queue, for benchmarks/scheduler.py: stats as a value, and that written as text.

Each tenant is named in the book, and everything that waits has a deadline. Seconds are the processor's.
"""

import random
import time

from fairstep.fairness.policies import make_room
from fairstep.fairness.pricing import UNIT
from fairstep.fairness.ticket import Ticket
from fairstep.metrics import Metrics
from fairstep.tenants import Tenants, TenantTerms

CAPACITY = 5000 * UNIT  # a second: nearly all of a long queue is late then


def scrapes(tenants: int, queued: int, count: int) -> list[float]:
    """Seconds of each scrape."""
    chance = random.Random(0)
    names = [f"t{number}" for number in range(tenants)]
    metrics = Metrics()
    metrics.use(Tenants(tenants=[TenantTerms(name) for name in names]))
    for name in names:
        metrics.tenants.of(name).first_token.observe(chance.random())
    room = make_room("drr")
    for seq in range(queued):
        due, size = chance.uniform(1.0, 600.0), chance.randint(1, 2000)
        room.add(Ticket(seq, seq, names[seq % tenants], deadline=due, prompt_tokens=size, max_tokens=200))
    seconds = []
    for _ in range(count):
        start = time.thread_time()
        metrics.render(metrics.stats(room=room, capacity=CAPACITY))
        seconds.append(time.thread_time() - start)
    return seconds
