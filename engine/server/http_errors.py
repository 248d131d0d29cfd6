"""Errors with an HTTP status, in OpenAI's shape or in Anthropic's."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import JSONResponse

from engine.errors import StrataError
from engine.grammars import FIELD

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "forbidden",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


_ANTHROPIC_TYPES = {
    **dict.fromkeys((400, 405, 408, 415), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
ANTHROPIC_PATH = "/v1/messages"
RESPONSES_PATH = "/v1/responses"
_NAMES = {
    ANTHROPIC_PATH: {
        "response_format.json_schema": "output_config.format",
        "response_format": "output_config.format",
        "reasoning_effort": "output_config.effort",
        "reasoning_budget_tokens": "thinking.budget_tokens",
        ".function.parameters": ".input_schema",
        ".function.": ".",
    },
    RESPONSES_PATH: {
        "response_format.json_schema": "text.format",
        "response_format": "text.format",
        "reasoning_effort": "reasoning.effort",
        "max_tokens": "max_output_tokens",
        "messages": "input",
        ".function.": ".",
    },
}
"""Fields of a chat request, the longer first, and what other APIs call them."""


class ApiError(StrataError):
    """Answers a request with `status`. `param` names the field of the body that is at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """The JSON answer, also sent as an event inside a stream."""
        error = {
            "message": self.message,
            "type": _TYPES.get(self.status, "server_error"),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def anthropic_body(self) -> dict[str, Any]:
        """The same in Anthropic's shape and with its names of fields."""
        kind = _ANTHROPIC_TYPES.get(self.status, "api_error")
        message = self.named_for(ANTHROPIC_PATH).message
        return {"type": "error", "error": {"type": kind, "message": message}}

    def named_for(self, path: str) -> ApiError:
        """The same with the field's name in the API that `path` belongs to."""
        names = next((names for api, names in _NAMES.items() if path.startswith(api)), {})
        for name, other in names.items():
            at = self.param.find(name) if self.param is not None else -1
            if self.param is not None and (at == 0 or (at > 0 and name[0] == ".")):
                message = self.message.replace(name, other, 1)
                param = self.param.replace(name, other, 1)
                retry = self.retry_after_s
                return ApiError(
                    self.status, message, param=param, code=self.code, retry_after_s=retry
                )
        return self

    def about(self, field: str) -> ApiError:
        """The same, where the engine's own word for what is at fault means `field`."""
        if self.param != FIELD or not field:
            return self
        message = self.message.replace(FIELD, field, 1)
        return ApiError(self.status, message, param=field, code=self.code)

    def response(self, path: str = "") -> JSONResponse:
        """The whole HTTP answer, in the shape of the API that `path` belongs to."""
        headers = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after_s)))
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        named = self.named_for(path)
        body = named.anthropic_body() if path.startswith(ANTHROPIC_PATH) else named.body()
        return JSONResponse(body, self.status, headers)


def bad_field(param: str, message: str) -> ApiError:
    """A 400 about one field of the body."""
    return ApiError(400, f"{param}: {message}", param=param, code="invalid_value")
