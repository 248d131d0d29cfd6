"""Who may ask: API keys, names of hosts, origins of pages."""

import httpx

from tests.engine.server.harness import error_of, running


def test_a_key_is_asked_for_where_it_matters() -> None:
    with running(api_keys=("first, third", " second ")) as run:
        assert run.http.get("/health").status_code == 200
        assert run.http.get("/").status_code == 200
        for path in ("/metrics", "/v1/models", "/v1/status"):
            error = error_of(run.http.get(path), 401)
            assert error["type"] == "authentication_error"
        error_of(run.chat("x"), 401)
        for key in ("wrong", "", "fir", "firstsecond", "é"):
            headers = {"x-api-key": key.encode()}
            error_of(run.http.get("/v1/models", headers=headers), 401)
        for key in ("second", "third"):
            assert run.http.get("/v1/models", headers={"x-api-key": key}).status_code == 200
        assert run.client(api_key="first").models.list().data
        evil = {"host": "evil.example", "authorization": "bearer first"}
        assert run.http.get("/v1/models", headers=evil).status_code == 200


def test_without_a_key_only_own_names_and_pages() -> None:
    with running(allowed_hosts=("strata.lan",), cors_origins=("https://app.example",)) as run:

        def get(host: str) -> int:
            return run.http.get("/v1/models", headers={"host": host}).status_code

        def post(origin: str) -> httpx.Response:
            headers = {"origin": origin}
            return run.http.post("/v1/completions", json={"prompt": "x"}, headers=headers)

        for host in ("localhost:1", "a.localhost", "127.0.0.1", "[::1]:8080", "strata.lan:80"):
            assert get(host) == 200
        for host in ("evil.example", "localhost.evil.example", "", "["):
            assert get(host) in (400, 403)
        assert post("https://evil.example").status_code == 403
        assert post("null").status_code == 403
        assert post(run.url).status_code == 200
        assert post("http://localhost:3000").status_code == 200
        allowed = post("https://app.example")
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        preflight = run.http.options("/v1/completions", headers={"origin": "https://app.example"})
        assert preflight.status_code == 204
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "access-control-allow-origin" not in post(run.url).headers
