"""The config: checked where it is made, filled for a machine by a pure function."""

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.config import MIB, EngineConfig, Machine, ServeConfig, parse_size
from fairstep.errors import ConfigError

TWO_CORES = Machine(cores=2)


def test_two_cores_get_the_small_defaults() -> None:
    config = EngineConfig().resolved(TWO_CORES)
    assert (config.max_seats, config.step_tokens, config.page_size) == (32, 512, 16)
    assert (config.kv_memory, config.threads, config.dtype) == (256 * MIB, 2, "float32")


def test_what_was_given_is_kept() -> None:
    given = EngineConfig(max_seats=4, step_tokens=64, kv_memory=MIB, threads=1, chunk=8, dtype="float16")
    assert given.resolved(TWO_CORES) == given


def test_deterministic_cuts_at_256_and_otherwise_a_chunk_may_fill_the_step() -> None:
    assert EngineConfig(deterministic=True).resolved(TWO_CORES).chunk == 256
    assert EngineConfig().resolved(TWO_CORES).chunk == 512


def test_auto_takes_bfloat16_where_the_machine_multiplies_it() -> None:
    assert EngineConfig().resolved(Machine(bfloat16=True)).dtype == "bfloat16"


def test_auto_takes_bfloat16_where_a_gpu_computes() -> None:
    assert EngineConfig().resolved(Machine(gpu=True)).dtype == "bfloat16"
    assert EngineConfig(device="cuda").resolved(Machine()).dtype == "bfloat16"
    assert EngineConfig(device="cpu").resolved(Machine(gpu=True)).dtype == "float32"


def test_integer_weights_go_with_bfloat16_on_every_machine() -> None:
    assert EngineConfig(quantize="int4").resolved(Machine(bfloat16=False)).dtype == "bfloat16"
    assert EngineConfig(quantize="none").resolved(Machine(bfloat16=False)).dtype == "float32"


@given(
    cores=st.integers(1, 256),
    seats=st.none() | st.integers(1, 1000),
    deterministic=st.booleans(),
)
def test_resolving_twice_changes_nothing(cores: int, seats: int | None, deterministic: bool) -> None:
    once = EngineConfig(max_seats=seats, deterministic=deterministic).resolved(Machine(cores=cores))
    assert once.resolved(Machine(cores=1)) == once
    assert all(
        getattr(once, name) is not None for name in ("step_tokens", "max_seats", "chunk", "kv_memory", "threads")
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dtype", "int8"),
        ("dtype", ["float32"]),
        ("quantize", "q4_k"),
        ("step_tokens", 0),
        ("max_seats", -1),
        ("max_seats", True),
        ("kv_memory", "lots"),
        ("kv_memory", 0),
        ("kv_memory", 1.5),
        ("page_size", 16.0),
        ("max_model_len", "ten"),
        ("chunk", 0),
        ("inter_token_target_ms", 0),
        ("inter_token_target_ms", "fast"),
        ("inter_token_target_ms", float("nan")),
        ("inter_token_target_ms", True),
        ("deterministic", "yes"),
        ("prefix_cache", 1),
        ("device", "gpu"),
        ("attention", "flash"),
        ("workers", 0),
        ("worker_timeout", 0),
        ("worker_timeout", float("inf")),
        ("max_attempts", 0),
        ("workers", True),
        ("workers", "4:2"),
        ("workers", "0:2"),
        ("workers", "1:"),
        ("spare", 1),
        ("threads", 0),
        ("host", ""),
        ("host", 8),
        ("port", 65536),
        ("port", -1),
        ("port", "8000"),
        ("metrics_prefix", "a-b"),
        ("metrics_prefix", "1st"),
        ("served_model_name", "two\nlines"),
        ("max_body", 0),
        ("max_body", None),
        ("max_queue", 0),
        ("max_queue", None),
        ("max_queue_tokens", 0),
        ("max_queue_bytes", "much"),
        ("tenants", ""),
        ("limits_store", 3),
        ("state", ""),
        ("answers_kept", 0),
        ("answers_kept", None),
        ("in_process", "no"),
        ("log_level", "loud"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        ServeConfig(**{key: value})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_settings_that_cannot_go_together_name_both() -> None:
    with pytest.raises(ConfigError, match=r"step_tokens \(8\).*max_seats \(9\)"):
        EngineConfig(step_tokens=8, max_seats=9).resolved(TWO_CORES)
    with pytest.raises(ConfigError, match="quantize int8 goes with dtype bfloat16, not float32"):
        EngineConfig(quantize="int8", dtype="float32").resolved(TWO_CORES)
    with pytest.raises(ConfigError, match="chunk"):
        EngineConfig(deterministic=True, chunk=512, step_tokens=512).resolved(TWO_CORES)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("268435456", 268435456),
        ("256MiB", 256 * MIB),
        ("256mib", 256 * MIB),
        ("1.5 GB", 1_500_000_000),
        ("2k", 2000),
        ("3KiB", 3072),
        ("7B", 7),
        (5, 5),
        (None, None),
    ],
)
def test_sizes(text: object, size: int | None) -> None:
    assert parse_size("kv_memory", text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1MiB", "1MiBs", "1 2", True, 1.0, b"1"])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ConfigError, match="kv_memory must be a size"):
        parse_size("kv_memory", text)


def test_a_server_config_gives_its_engine_part() -> None:
    config = ServeConfig(port=1, max_seats=3, in_process=True)
    assert config.engine() == EngineConfig(max_seats=3)
    assert type(config.resolved(TWO_CORES)) is ServeConfig


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServeConfig().port = 1  # type: ignore[misc]


def test_every_setting_has_a_help_text() -> None:
    for each in dataclasses.fields(ServeConfig):
        assert each.metadata["help"].endswith("."), each.name


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"batching": "dynamic"}, "batching must be one of continuous, static, padded"),
        ({"batch_size": 0}, "batch_size must be a positive integer"),
        ({"batch_size": 9, "max_seats": 8}, "batch_size .9. must be at most max_seats .8."),
        ({"batch_delay_ms": -1}, "batch_delay_ms must be a number of ms"),
        ({"batch_delay_ms": True}, "batch_delay_ms must be a number of ms"),
        ({"batch_compute_ms": math.inf}, "batch_compute_ms must be a number of ms"),
        ({"batching": "padded", "deterministic": True}, "padded excludes deterministic"),
    ],
)
def test_what_is_wrong_with_static_batches(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        EngineConfig(**wrong).resolved(TWO_CORES)
