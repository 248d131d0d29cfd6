"""One tree of errors. A message says what, which value and which limit; `hint` says what to do."""

from __future__ import annotations


class StrataError(Exception):
    """Something the user can fix. Printed as `error: message` and `hint: hint`, no traceback."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(StrataError):
    """A flag, a key of the config file or an environment variable has a value of no use."""


class ModelFileError(StrataError):
    """A model file is missing, damaged, or not what it says it is."""


class UnsupportedModelError(ModelFileError):
    """A sound file whose architecture, quantised type or tokenizer this version cannot run."""


class TemplateError(StrataError):
    """The chat template of the model refuses the messages."""


class RequestError(StrataError):
    """A request cannot be served as it stands (answered with 400 or an `ERR` line)."""


class EngineDiedError(StrataError):
    """The engine process ended or stopped answering while a request was in flight."""
