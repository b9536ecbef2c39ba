"""A sequence's attention is the same to the last bit whatever else its launch holds."""

import pytest
import torch
from torch import Tensor

from attention_case import Case, make_case
from fairstep.kernels.paged_attention import PLAIN, AttentionKind
from fairstep.kernels.triton import attention
from fairstep.kernels.triton.attention import SPLIT, make_scratch, paged_attention

KINDS = [PLAIN, AttentionKind(window=SPLIT + 40), AttentionKind(softcap=5.0)]
DECODES = [(1, 2 * SPLIT + 9), (1, 3), (1, SPLIT), (1, 700)]
CHUNKS = [(20, 60), (3, 300)]


def same(case: Case, members: list[int], wanted: list[Tensor], **changes: int) -> bool:
    got = case.only(members, **changes).attend()
    return all(torch.equal(each, wanted[member]) for each, member in zip(got, members, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_alone_and_crowded(kind: AttentionKind, dtype: torch.dtype) -> None:
    case = make_case([*DECODES, *CHUNKS], kind=kind, sinks=kind.window > 0, dtype=dtype)
    wanted = case.attend()
    assert all(same(case, [member], wanted) for member in range(len(case.lengths)))
    assert same(case, [3, 5, 0], wanted)


def test_beside_padded_rows() -> None:
    case = make_case([*DECODES, (1, 0), (0, 0), (1, 0)])
    wanted = case.attend()
    assert same(case, [4, 0, 5, 6, 1, 4], wanted)


def test_under_page_tables_of_any_width() -> None:
    case = make_case([(1, 300), (1, 900)])
    wanted = case.attend()
    assert same(case, [0], wanted, columns=19)
    assert same(case, [0], wanted, columns=40)


@pytest.mark.parametrize("programs", [1, 2, 3])
def test_however_many_programs_share_the_splits(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(DECODES)
    wanted = case.attend()
    monkeypatch.setattr(attention, "_programs", lambda splits, *_: min(splits, programs))
    assert same(case, [0, 1, 2, 3], wanted)


def test_a_token_of_a_chunk_does_not_depend_on_where_the_chunk_begins() -> None:
    case = make_case([(40, 90)])
    [wanted] = case.attend()
    for q_len in (2, 7, 39):
        later = Case([(q_len, 90)], case.q[-q_len:], case.keys, case.values, case.page_tables, case.alone, PLAIN, None)
        assert torch.equal(later.attend()[0], wanted[-q_len:])


def test_the_last_bits_are_the_same_where_a_batch_is_known_to_be_decodes_only() -> None:
    case = make_case(DECODES)
    out = torch.full((4, 2, 64), torch.nan)
    cu_q = torch.arange(5, dtype=torch.int32)
    kv_len = torch.tensor([length for _, length in DECODES], dtype=torch.int32)
    memory = (case.q, case.keys, case.values, case.page_tables, cu_q, kv_len, out, case.scratch())
    paged_attention(*memory, only_decodes=False)
    assert torch.equal(out, torch.cat(case.attend()))


def test_scratch_of_any_length_that_is_enough_for_the_batch() -> None:
    case = make_case(DECODES)
    wanted = case.attend()
    got = case.attend(scratch=case.scratch(longest=800))
    assert all(map(torch.equal, got, wanted))


def test_rows_past_the_last_sequence_stay_as_they_are() -> None:
    case = make_case([(1, 20), (5, 20)])
    out = torch.full((9, 2, 64), 7.0)
    q = torch.cat((case.q, torch.full((3, 2, 64), torch.nan)))
    cu_q, kv_len = torch.tensor([0, 1, 6], dtype=torch.int32), torch.tensor([20, 20], dtype=torch.int32)
    memory = (q, case.keys, case.values, case.page_tables, cu_q, kv_len, out)
    paged_attention(*memory, case.scratch(), only_decodes=False)
    assert torch.equal(out[:6], torch.cat(case.attend()))
    assert (out[6:] == 7.0).all()


def test_no_sequences_at_all() -> None:
    case = make_case([(1, 20)])
    empty, cu_q = torch.zeros(0, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    out, scratch = torch.zeros(0, 2, 64), make_scratch(0, 2, 64, 20, torch.device("cpu"))
    memory = (case.q[:0], case.keys, case.values, empty.view(0, 2), cu_q, empty, out, scratch)
    assert paged_attention(*memory, only_decodes=False).shape == (0, 2, 64)
