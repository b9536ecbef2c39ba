"""fairstep: a token-level LLM engine. The public names, imported when first used; importing this loads no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "fairstep":
    raise ImportError("this package is imported as 'fairstep', not as a folder: install it (pip install -e .)")

if TYPE_CHECKING:
    from .async_engine import AsyncEngine as AsyncEngine
    from .config import EngineConfig as EngineConfig
    from .engine import Engine as Engine
    from .request import Completion as Completion
    from .request import Delta as Delta
    from .request import SamplingParams as SamplingParams
    from .request import Usage as Usage

__version__ = "0.1.0"

_HOME = {
    "AsyncEngine": ".async_engine",
    "Completion": ".request",
    "Delta": ".request",
    "Engine": ".engine",
    "EngineConfig": ".config",
    "FairstepError": ".errors",
    "SamplingParams": ".request",
    "Usage": ".request",
    "create_app": ".serving.app",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fairstep' has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
