"""Every error fairstep raises on purpose, as one tree. It knows no HTTP: serving/ maps each to a status.

FairstepError
├── InvalidRequest      the caller's input is wrong: `param` names the field           (400)
│   ├── InvalidParameter    a sampling parameter is out of range; also a ValueError
│   ├── ContextTooLong      prompt, or prompt plus max_tokens, can never fit           (400)
│   └── TemplateError       the chat template refused the messages                     (400)
├── UnknownModel        no such model is served                                        (404)
├── Overloaded          refused now, may work later                                    (503)
├── EngineClosed        not started, or closed                                           (503)
├── EngineDead          the worker ended; the message says how                         (503)
├── ModelError          a model cannot be loaded: what is wrong and where              (exit 1)
└── ConfigError         a setting is wrong: names the key, the value and what to do    (exit 2)
"""


class FairstepError(Exception):
    """Root of the tree; `code` is stable and machine-readable."""

    code: str = "fairstep_error"


class InvalidRequest(FairstepError):
    """The caller's input is wrong. `param` is the field's name, or None."""

    code = "invalid_request"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidParameter(InvalidRequest, ValueError):
    """A sampling parameter is out of range."""

    code = "invalid_value"


class ContextTooLong(InvalidRequest):
    """Prompt, or prompt plus max_tokens, can never fit the context or the KV pool."""

    code = "context_length_exceeded"


class TemplateError(InvalidRequest):
    """The model's chat template refused the messages; the message is the template's own."""

    code = "template_error"


class UnknownModel(FairstepError):
    """The model asked for is not served here."""

    code = "model_not_found"


class Overloaded(FairstepError):
    """Refused now; the same request may be accepted later."""

    code = "overloaded"


class EngineClosed(FairstepError):
    """The engine was closed."""

    code = "engine_closed"


class EngineDead(FairstepError):
    """The worker ended unexpectedly; the message says how."""

    code = "engine_dead"


class ModelError(FairstepError):
    """A model cannot be loaded: the message says what is wrong and in which file."""

    code = "model_error"


class ConfigError(FairstepError, ValueError):
    """A setting is wrong: the message names the key, the value and what to do."""

    code = "config_error"
