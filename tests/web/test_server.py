"""The server: what it refuses, what it says with every answer, and that no address breaks it."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import subprocess
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.web import stored
from tests.web.conftest import TestClient, client_of
from torchstone.records import Conditions
from torchstone.store import open_store
from torchstone.track.compare import step_class
from torchstone.web.query import API
from torchstone.web.registry import PAGES
from torchstone.web.render import html as page_html
from torchstone.web.security import Hosts

PLAIN = [one.path for one in PAGES.values() if not one.about_one]
ONE_EACH = (
    "/",
    "/suite?suite=timm",
    "/case?model=resnet18&suite=timm",
    "/compare",
    "/failures",
    "/runs",
    "/runs/night05x",
    "/machines",
    f"/machines/{stored.MACHINE}",
    "/profiles",
    "/profiles/prof1",
    "/profiles/prof1/view",
    "/result/r05000",
)
FREE = ("range", "from", "to", "granularity", "common", "across", "sort", "filter", "page")
"""Parameters that name nothing stored."""
IDENT = {
    "runs": "night05x",
    "result": "r05000",
    "profiles": "prof1",
    "machines": stored.MACHINE,
}
LINK = re.compile(r'href="([^"]*)"')


def links_of(text: str) -> list[str]:
    found = (html.unescape(one) for one in LINK.findall(text))
    return [one for one in found if one.startswith("/")]


def crawl(client: TestClient, most: int) -> list[str]:
    """Follow links, each kind of page in turn; what did not answer with 200."""
    waiting: dict[str, deque[str]] = {}
    seen: set[str] = set()
    wrong: list[str] = []

    def add(found: list[str]) -> None:
        for one in found:
            if one not in seen:
                seen.add(one)
                waiting.setdefault(
                    one.split("?")[0].rstrip("/").rpartition("/")[0], deque()
                ).append(one)

    add(["/"])
    asked = 0
    while asked < most and any(waiting.values()):
        for kind in [kind for kind, rest in waiting.items() if rest]:
            address = waiting[kind].popleft()
            answer = client.get(address)
            asked += 1
            if answer.status_code != 200:
                wrong.append(f"{answer.status_code} {address}")
            if answer.headers["content-type"].startswith("text/html"):
                add(links_of(answer.text))
    return wrong


@pytest.mark.parametrize("address", ONE_EACH)
def test_every_page_has_the_strict_headers_and_no_inline_code(
    client: TestClient, address: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    inline = re.findall(r"<script(?![^>]*(?:src=|application/json))", answer.text)
    assert (inline, "<style" in answer.text, " style=" in answer.text) == ([], False, False)
    assert re.findall(r'\son[a-z]+="', answer.text) == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_allowed(client: TestClient, method: str) -> None:
    for address in ("/", "/runs/night05x", f"{API}/landing", "/nope"):
        answer = client.request(method, address)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, HEAD"


def test_head_answers_without_a_body(client: TestClient) -> None:
    answer = client.head("/runs")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8484", 200),
        ("127.0.0.1", 200),
        ("[::1]:8484", 200),
        ("evil.example", 400),
        ("evil.example:8484", 400),
        ("localhost.evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("[::1].evil.example", 400),
        ("[::1]evil:8484", 400),
        ("[::1]:8484.evil.example", 400),
        ("192.168.1.7", 400),
        ("", 400),
    ],
)
def test_only_our_own_names_are_answered(client: TestClient, host: str, status: int) -> None:
    assert client.get("/runs", headers={"host": host}).status_code == status


def test_a_public_server_answers_to_numbers_and_to_the_names_given() -> None:
    hosts = Hosts.of(["Lab.Example"], public=True)
    assert [hosts.known(name) for name in ("lab.example:80", "192.168.1.7", "[fe80::1]:80")] == [
        True
    ] * 3
    assert not hosts.known("evil.example")


def test_a_page_is_not_sent_again_until_something_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    with open_store(str(path)) as store:
        stored.add_night(store, 0, stored.keys(["timm"]))
    with client_of(path) as client:
        tag = client.get("/").headers["etag"]
        assert client.get("/", headers={"if-none-match": tag}).status_code == 304
        with open_store(str(path)) as store:
            stored.add_night(store, 1, stored.keys(["timm"]))
        again = client.get("/", headers={"if-none-match": tag})
        assert (again.status_code, again.headers["etag"] != tag) == (200, True)


def test_equal_requests_are_answered_once_until_something_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.db"
    made = []

    def counted(page: Any, *rest: Any) -> str:
        made.append(page.name)
        return page_html(page, *rest)

    monkeypatch.setattr("torchstone.web.app.html", counted)
    with open_store(str(path)) as store:
        stored.add_night(store, 0, stored.keys(["timm"]))
    with client_of(path) as client:
        first = client.get("/runs").text
        assert client.get("/runs").text == first
        assert made == ["runs"]
        client.get("/runs?suite=x")
        assert len(made) == 2
        with open_store(str(path)) as store:
            stored.add_night(store, 1, stored.keys(["timm"]))
        assert client.get("/runs").text != first


def test_a_comparison_follows_when_a_threshold_changes(tmp_path: Path) -> None:
    """Nothing is added to either run; what is kept of them must not outlive what it rests on."""
    path = tmp_path / "one.db"
    cases = [replace(key, threads=1) for key in stored.keys(["timm"])]
    with open_store(str(path)) as store:
        for night in (0, 1):
            stored.add_night(store, night, cases)
        machine = store.run_heads(limit=1)[0].machine_id
    with client_of(path) as client:
        before = client.get(f"{API}/compare").json()
        assert client.get(f"{API}/compare").json() == before
        with open_store(str(path)) as store:
            for name in {step_class(10.0**power) for power in range(12)}:
                store.remember_aa_floor(machine, Conditions(1, "keep", name), 0.5, {})
        assert client.get(f"{API}/compare").json() != before


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nope", 404),
        ("/runs/nope", 404),
        ("/result/%00", 404),
        ("/suite?suite=nope", 404),
        ("/?range=5", 400),
        ("/suite?sort=nope", 400),
        ("/profiles?sort=nope", 400),
        (f"{API}/runs?sort=-created", 400),
        (f"{API}/runs?page=2", 400),
        (f"{API}/runs/night05x?sort=nope", 400),
        ("/profiles?page=00000000199999999999999999999", 400),
        (f"/?filter={'x' * 700}", 400),
        (f"/?filter={'x' * 20000}", 414),
        ("/assets/nope.js", 404),
        ("/assets/../app.py", 404),
        (f"{API}/nope", 404),
        (f"{API}/landing/tables/nope", 404),
        (f"{API}/landing/tables/timm-small?format=xml", 400),
        (f"{API}/landing/charts/nope.svg", 404),
        (f"{API}/runs/nope/progress", 404),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(
    client: TestClient, address: str, status: int
) -> None:
    answer = client.get(address)
    assert answer.status_code == status
    assert "Traceback" not in answer.text
    if address.startswith(API):
        assert answer.json()["error"].endswith((".", "page."))


def test_no_link_is_broken(client: TestClient) -> None:
    assert crawl(client, 40) == []


def test_hostile_names_stay_text_and_break_no_page(hostile_client: TestClient) -> None:
    assert crawl(hostile_client, 40) == []
    for address in ("/", "/runs", "/failures", "/compare", "/result/evilresult", "/machines"):
        text = hostile_client.get(address).text
        assert "<script>alert" not in text
        assert "<img" not in text
    shown = hostile_client.get("/suite", params={"suite": stored.SCRIPT, "variant": "all"})
    assert "&lt;script&gt;alert(1)" in shown.text
    view = hostile_client.get("/profiles/evilprofile/view").text
    assert view.lower().count("</script>") == 3  # the theme's, the data, the views'


def test_a_table_is_the_same_as_csv_and_json_and_no_cell_is_a_formula(
    hostile_client: TestClient,
) -> None:
    address = f"{API}/runs/tables/runs"
    answer = hostile_client.get(address, params={"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    data = hostile_client.get(address).json()
    assert (
        [row["run"] for row in rows] == [row["run"] for row in data["rows"]] == ["evil1", "evil0"]
    )
    assert data["rows"][0]["torch"] == "=cmd|' /C calc'!A0"
    assert rows[0]["torch"] == "'=cmd|' /C calc'!A0"
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "@"))]


def test_the_api_gives_what_the_page_shows(client: TestClient) -> None:
    page = client.get(f"{API}/landing").json()
    assert page["page"] == "landing"
    (row,) = [
        r for r in page["tables"]["timm-small"]["rows"] if r["variant"] == "inference inductor"
    ]
    assert row["passed"] == 3
    assert f"{row['speedup']:.2f}" in client.get("/").text
    points = page["charts"]["timm-small-speedup"]["series"][0]["points"]
    assert len(points) == stored.NIGHTS


def test_a_chart_is_a_picture_by_itself(client: TestClient) -> None:
    answer = client.get(f"{API}/landing/charts/timm-small-speedup.svg")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.text.startswith("<svg ")
    assert "<style>" in answer.text
    assert "sandbox" in answer.headers["content-security-policy"]


def test_the_schema_describes_every_page(client: TestClient) -> None:
    schema = client.get(f"{API}/openapi.json").json()
    for path in PLAIN:
        described = schema["paths"][API + ("/landing" if path == "/" else path)]
        assert set(described) == {"get"}
        answer = described["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer["$ref"].endswith("/PageDocument")
    assert not [path for path in schema["paths"] if not path.startswith(API)]
    names = {p["name"] for p in schema["paths"][f"{API}/suite"]["get"]["parameters"]}
    assert {"suite", "from", "to", "base", "new", "only"} - names == {"only"}


def test_documents_have_the_described_shape(client: TestClient) -> None:
    from pydantic import TypeAdapter

    from torchstone.web.documents import LiveDocument, PageDocument, TableDocument

    for address in ONE_EACH[1:-2]:
        TypeAdapter(PageDocument).validate_python(client.get(API + address).json())
    table = client.get(f"{API}/suite/tables/models?suite=timm").json()
    assert TypeAdapter(TableDocument).validate_python(table).rows
    TypeAdapter(LiveDocument).validate_python(client.get(f"{API}/progress").json())


def test_importing_the_dashboard_loads_no_torch() -> None:
    code = "import sys, torchstone.web.serving, torchstone.web.site; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_no_request_that_the_schema_allows_breaks_it(
    client: TestClient, hostile_client: TestClient
) -> None:
    """Many random requests, those that break the rules too: never a 5xx."""
    import schemathesis

    made = schemathesis.openapi.from_dict(client.get(f"{API}/openapi.json").json())
    operations = [found.ok() for found in made.get_all_operations()]
    assert len(operations) == 3 * len(PAGES) + 3
    for operation in operations:
        throw_at(operation, client, hostile_client)


def throw_at(operation: Any, *clients: TestClient) -> None:
    """Requests as they are drawn, then each parameter that names nothing stored by itself: drawn
    together, one of them is refused before the others are looked at."""
    from hypothesis import HealthCheck, given, settings

    known = IDENT.get(operation.path.split("/")[3], "")
    plain = "" if "{name}" in operation.path else operation.path.replace("{ident}", known)

    def ask(address: str, params: dict[str, str]) -> None:
        for client in clients:
            answer = client.get(address, params=params, headers={"host": "testserver"})
            assert answer.status_code < 500, (address, params, answer.text[:300])

    @given(case=operation.as_strategy())
    @settings(max_examples=8, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    def throw(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url="http://testserver")
        params = {name: text for name, text in (sent.get("params") or {}).items() if text}
        ask(sent["url"], params)
        for name in FREE if plain else ():
            if name in params:
                ask(plain, {name: params[name]})

    throw()


def test_errors_in_the_page_do_not_tell_where_the_database_is(tmp_path: Path) -> None:
    path = tmp_path / "secret-folder" / "old.db"
    path.parent.mkdir()
    with open_store(str(path)) as store:
        stored.add_night(store, 0, stored.keys(["timm"]))
    with client_of(path) as client:
        for address in ("/runs", "/result/nope", "/runs/nope"):
            assert "secret-folder" not in client.get(address).text


def test_json_is_strict(client: TestClient) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    for address in ("/landing", "/compare", "/failures", "/result/r05000"):
        json.loads(client.get(API + address).text, parse_constant=refuse)
