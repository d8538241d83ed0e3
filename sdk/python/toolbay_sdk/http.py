"""HTTP through the host's policy, one buffered exchange at a time: ``http.get(url).ok().json()``."""

from dataclasses import dataclass
from typing import Any, Mapping

from . import _host, _json
from .errors import failed


@dataclass
class Response:
    """A response of any status. `url` is the one after redirects."""

    status: int
    url: str
    headers: list[tuple[str, str]]
    body: bytes
    truncated: bool

    def ok(self) -> "Response":
        """Returns the response if its status is 2xx, otherwise raises an error with the status."""
        if 200 <= self.status < 300:
            return self
        raise failed(f"`{self.url}` answered with status {self.status}", str(self.status))

    def header(self, name: str) -> str | None:
        """Returns the first header of that name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def text(self) -> str:
        """Returns the body as text. Invalid UTF-8 is replaced."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Parses the body as JSON."""
        return _json.parse(self.text())


def request(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, body: str | bytes | None = None,
    json: Any = None, timeout_ms: int | None = None, max_response_bytes: int | None = None,
) -> Response:
    """Sends a request. `json` sets a JSON body and its content type."""
    pairs = [(key, str(value)) for key, value in (headers or {}).items()]
    if json is not None:
        pairs.append(("content-type", "application/json"))
        body = _json.dump(json)
    raw = body.encode() if isinstance(body, str) else body
    record = _host.http.HttpRequest(method, url, pairs, raw, timeout_ms, max_response_bytes)
    got = _host.asked("httpClient", url, lambda: _host.http.fetch(record))
    return Response(got.status, got.url, list(got.headers), got.body, got.truncated)


def get(url: str, **options: Any) -> Response:
    """Sends a ``GET`` request."""
    return request("GET", url, **options)


def post(url: str, **options: Any) -> Response:
    """Sends a ``POST`` request."""
    return request("POST", url, **options)
