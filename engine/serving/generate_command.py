"""`fairstep generate`: a file of prompts in, a file of answers out, in the same order, on an engine without HTTP.

A window of lines is in work at once; each answer is written when it and all before it are done. A run that was ended in
any way goes on after the last whole line of its output.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from ..async_engine import AsyncEngine
from ..config import EngineConfig
from ..errors import ConfigError
from .generate_input import InputLines
from .generate_line import Line, LineAnswerer, LineOptions
from .generate_output import FIRST_KEY, OutputFile
from .in_order import in_order
from .progress import AnswersDisplay, LoadingDisplay
from .settings import Settings

ASKED_PER_SEAT = 2  # in the engine's hands: whenever a seat comes free, a request waits for it
AHEAD_PER_SEAT = 16  # read and not yet written: one long answer must not leave seats empty behind it
NO_TARGET_MS = 3_600_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to read and write, and what holds for lines that do not say it. "-" is stdin or stdout."""

    model: str
    input: str
    output: str
    options: LineOptions
    overwrite: bool = False

    def made_from(self, line: bytes) -> str:
        return self.options.fingerprint(self.model, line)


def run_generate(job: Job, settings: Settings) -> bool:
    """Answer every line; True if none has an error. Raises ConfigError, ModelError, EngineDead or FairstepError."""
    if _same_file(job.input, job.output):
        raise ConfigError(f"input and output are the same file, {job.input}")
    with InputLines.opened(job.input) as lines, OutputFile.opened(job.output, overwrite=job.overwrite) as output:
        return asyncio.run(_generate(job, settings, lines, output))


def engine_config(settings: Settings) -> EngineConfig:
    """The engine's settings; nobody watches these tokens come, so their rhythm has no target unless one was chosen."""
    config = settings.config.engine()
    if settings.origins["inter_token_target_ms"] != "default":
        return config
    return replace(config, inter_token_target_ms=NO_TARGET_MS)


async def _generate(job: Job, settings: Settings, lines: InputLines, output: OutputFile) -> bool:
    done, failed = await skip_done(job, lines, output)
    if done:
        of = "" if lines.total is None else f" of {lines.total}"
        print(f"{output.name} has {done}{of} lines already: going on after them", file=sys.stderr, flush=True)
    if done == lines.total:
        return not failed
    loading = LoadingDisplay()
    in_process = settings.config.in_process
    engine = AsyncEngine(job.model, engine_config(settings), in_process=in_process, progress=loading)
    try:
        try:
            await engine.start()
        finally:
            loading.close()
        with AnswersDisplay(lines.total, done, failed, engine.now, resumable=output.keeps) as display:
            await answer_lines(engine, job, lines, output, display)
        return not display.failed
    finally:
        await engine.stop()


async def skip_done(job: Job, lines: InputLines, output: OutputFile) -> tuple[int, int]:
    """Pass over the lines that the output has already: how many, and how many of them are errors.

    Raises ConfigError where the output is not the beginning of what this job would write.
    """
    done = failed = 0
    for record in output.kept():
        line = await anext(lines, None)
        if line is None:
            raise ConfigError(
                f"the output {output.name} has more lines than the input {lines.name}, which has {done}: it is another "
                "job's; choose another file, or --overwrite to begin anew"
            )
        if record[FIRST_KEY] != done or record.get("made_from") != job.made_from(line):
            raise ConfigError(
                f"line {done + 1} of the output {output.name} was made from another input line, by another model or "
                "with other options: give the same as before, choose another file, or --overwrite to begin anew"
            )
        done += 1
        failed += "error" in record
    return done, failed


async def answer_lines(
    engine: AsyncEngine, job: Job, lines: InputLines, output: OutputFile, display: AnswersDisplay
) -> None:
    """Answer what is left of `lines`, in order. However it ends, nothing is left in the engine."""
    answerer = LineAnswerer(engine, job.options, display.add_tokens)
    seats = engine.info.seats

    async def left() -> AsyncIterator[Line]:
        index = display.done
        async for raw in lines:
            yield Line(index, raw, job.made_from(raw))
            index += 1

    records = in_order(left(), answerer.record, at_once=ASKED_PER_SEAT * seats, ahead=AHEAD_PER_SEAT * seats)
    async with aclosing(records):
        async for record in records:
            output.append(record)
            display.add_line(failed="error" in record)


def _same_file(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
