"""What the kernels around a decoder's layers are compiled for: a step's inputs, and sampling from its logits.

Vocabularies: Llama 3 (128,256) and Gemma 3 (262,144).
"""

from collections.abc import Callable

import torch

from ..step_inputs import SliceRow, StepTensors
from .case import LONGEST, NAMES, PAGE_SIZE, SEQUENCES, TOKENS, Case, empty
from .chips import Chip
from .inputs import fill_inputs, put_pages
from .sampling import Needs, Tables, sample
from .sampling_logprobs import token_logprobs
from .sampling_records import FIELDS

SEATS = 256
GREEDY = Needs(draws=False, cuts=False, cuts_twice=False, shapes=False, words=False)
VOCABULARIES = ((128_256, torch.bfloat16), (262_144, torch.float32))


def sampling_cases() -> list[Case]:
    def call(vocab: int, dtype: torch.dtype, needs: Needs) -> Callable[[Chip], object]:
        int32 = torch.int32
        tables = Tables(
            records=empty(SEATS, FIELDS.value, dtype=torch.int64),
            marks=empty(SEATS, vocab, dtype=int32),
            bias=empty(SEATS, vocab),
            words=empty(SEATS, 16, 8, dtype=int32),
            tails=empty(SEATS, 8, dtype=int32),
        )
        rows = empty(SEQUENCES, dtype=int32)
        newest = empty(SEATS, dtype=torch.int64)
        return lambda chip: sample(empty(SEQUENCES, vocab, dtype=dtype), rows, rows, tables, needs, newest)

    return [
        Case(f"{name} {vocab} {NAMES[dtype]}", call(vocab, dtype, needs))
        for vocab, dtype in VOCABULARIES
        for name, needs in (("greedy", GREEDY), ("sampling", Needs()))
    ]


def logprob_cases() -> list[Case]:
    def call(vocab: int, dtype: torch.dtype) -> Callable[[Chip], object]:
        tokens = empty(SEQUENCES, dtype=torch.int64)
        return lambda chip: token_logprobs(empty(SEQUENCES, vocab, dtype=dtype), tokens, 20)

    return [Case(f"logprobs {vocab} {NAMES[dtype]}", call(vocab, dtype)) for vocab, dtype in VOCABULARIES]


def input_cases() -> list[Case]:
    def call(chip: Chip) -> None:
        int32, int64 = torch.int32, torch.int64
        width = LONGEST // PAGE_SIZE
        tables = empty(SEATS, width, dtype=int32)
        out = StepTensors(
            ids=empty(TOKENS, dtype=int64),
            positions=empty(TOKENS, dtype=int64),
            lengths=empty(TOKENS, dtype=int64),
            slots=empty(TOKENS, dtype=int64),
            cu_q=empty(SEQUENCES + 1, dtype=int32),
            kv_len=empty(SEQUENCES, dtype=int32),
            logit_rows=empty(SEQUENCES, dtype=int64),
            opened=empty(SEQUENCES, dtype=int64),
            page_tables=empty(SEQUENCES, width, dtype=int32),
        )
        slices = empty(SEQUENCES + 1, len(SliceRow._fields), dtype=int32)
        put_pages(tables, empty(100, 2, dtype=int32))
        fill_inputs(out, slices, empty(TOKENS, dtype=int32), empty(SEATS, dtype=int64), tables, PAGE_SIZE, TOKENS)

    return [Case("inputs", call)]
