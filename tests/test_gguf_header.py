"""The head of a GGUF file: what is read, and that no file, however broken, ends in anything but a ModelError."""

from pathlib import Path

import pytest
from gguf import GGUFReader
from hypothesis import given
from hypothesis import strategies as st

from fairstep.errors import ModelError
from fairstep.model.gguf_config import read_gguf_spec
from fairstep.model.gguf_header import GgufHeader, read_gguf_header
from tiny_gguf import write_gguf
from tiny_models import tiny_llama


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("header")
    metadata = {
        "tokenizer.ggml.tokens": ["a", "Ġthe", "é"],
        "tokenizer.ggml.token_type": [1, 2, 3],
        "tokenizer.ggml.add_bos_token": True,
        "general.alignment": 64,
    }
    return write_gguf(
        path / "model.gguf", tiny_llama(path / "model", layers=1, hidden=32, vocab=260), metadata=metadata
    )


def read_bytes(path: Path, data: bytes) -> GgufHeader:
    path.write_bytes(data)
    return read_gguf_header(path)


def test_metadata_and_places_are_those_the_package_reads(file: Path) -> None:
    header, reference = read_gguf_header(file), GGUFReader(file)
    for name, field in reference.fields.items():
        if not name.startswith("GGUF."):
            assert header.metadata[name] == field.contents()
    assert [
        (tensor.name, tensor.kind, tensor.shape, tensor.offset, tensor.size) for tensor in header.tensors.values()
    ] == [
        (tensor.name, tensor.tensor_type, tuple(reversed(tensor.shape.tolist())), tensor.data_offset, tensor.n_bytes)
        for tensor in reference.tensors
    ]


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"other\.gguf is not a GGUF file: it begins with b'PK"):
        read_bytes(tmp_path / "other.gguf", b"PK\x03\x04 and more")


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"empty\.gguf is not a readable GGUF file"):
        read_bytes(tmp_path / "empty.gguf", b"")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.gguf cannot be read: No such file"):
        read_gguf_header(tmp_path / "none.gguf")


def test_another_version_is_named(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    with pytest.raises(ModelError, match="GGUF version 1 is unknown; known are 2 and 3"):
        read_bytes(tmp_path / "old.gguf", data[:4] + b"\x01\0\0\0" + data[8:])


def test_truncated_weights_name_the_tensor(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    last = max(read_gguf_header(file).tensors.values(), key=lambda tensor: tensor.offset)
    with pytest.raises(
        ModelError, match=rf"cut\.gguf: the file is truncated: {last.name} ends at byte \d+, the file at"
    ):
        read_bytes(tmp_path / "cut.gguf", data[: last.offset + last.size - 1])


def test_a_truncated_head_is_an_error_wherever_it_ends(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    for kept in range(4, min(tensor.offset for tensor in read_gguf_header(file).tensors.values()), 7):
        with pytest.raises(ModelError, match=r"cut\.gguf: the file is truncated: "):
            read_bytes(tmp_path / "cut.gguf", data[:kept])


@given(st.data())
def test_flipped_bytes_end_in_a_model_error_or_a_spec(
    file: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(file.read_bytes())
    head = min(tensor.offset for tensor in read_gguf_header(file).tensors.values())
    for place, value in data.draw(st.lists(st.tuples(st.integers(4, head - 1), st.integers(0, 255)), max_size=4)):
        content[place] = value
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    try:
        read_gguf_spec(read_bytes(path, bytes(content)))
    except ModelError as error:
        assert str(path) in str(error) and str(error).isprintable()
