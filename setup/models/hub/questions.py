"""Questions to a hub, whose answers are limited in time and size."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from setup.models.hub.answers import bad_answer, check_status, transport
from setup.models.hub.client import Endpoint
from setup.models.hub.retry import Pace
from setup.models.hub.shown import shown
from setup.models.hub.time_limit import ONE_EXCHANGE, TimeLimit

# A page of the hub's list has 1,000 entries of some 300 bytes.
MOST_ANSWER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a hub said: a response, and its body where the question has one."""

    response: httpx.Response
    body: bytes

    @property
    def host(self) -> str:
        """Who said it, for messages."""
        return shown(self.response.url.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Asks a hub, again where an attempt failed."""

    endpoint: Endpoint
    client: httpx.Client
    pace: Pace

    def ask(self, method: str, address: str, what: str) -> Answer:
        """The answer of the first host that has one, `what` being its name in messages.

        Raises `MissingError` for 404, `ConfigError` for a refusal, for an answer of more than 4
        MiB, and when nobody answers in time, however often asked.
        """
        return self.pace.ask(lambda: self._once(method, address, what), what)

    def _once(self, method: str, address: str, what: str) -> Answer:
        """The hub tells about a file where it sends the client on to the file's bytes, and who
        keeps those knows less: the first host that knows the file's size is the one."""
        host = self.endpoint.host
        with TimeLimit(host, self.pace.limits.question_s) as limit, transport(host):
            headers = {**self.endpoint.headers(address), **ONE_EXCHANGE}
            request = self.client.build_request(
                method, address, headers=headers, extensions=limit.extensions
            )
            for _ in range(self.client.max_redirects):
                response = self.client.send(request, stream=True, follow_redirects=False)
                try:
                    following = response.next_request
                    if following is None or "x-linked-size" in response.headers:
                        return self._read(response, what)
                finally:
                    response.close()
                request = following
            raise httpx.TooManyRedirects("more redirects than are possible", request=request)

    def _read(self, response: httpx.Response, what: str) -> Answer:
        if not response.has_redirect_location:
            check_status(response, what, self.endpoint)
        host = shown(response.url.host)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise bad_answer(host, "it is encoded, which was not asked for")
        body = bytearray()
        if response.request.method != "HEAD":
            for data in response.iter_raw():
                body += data
                if len(body) > MOST_ANSWER_BYTES:
                    raise bad_answer(host, f"more than {MOST_ANSWER_BYTES} bytes about {what}")
        return Answer(response=response, body=bytes(body))
