"""A link to worker processes that some requests kill: see poisoned_worker.py."""

from pathlib import Path

from fairstep.links import ProcessLink


class PoisonedLink(ProcessLink):
    program = (str(Path(__file__).parent / "poisoned_worker.py"),)
