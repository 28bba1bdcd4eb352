"""The FastAPI example, asked through its ASGI interface, with its lifespan, as a server would."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import servers
from fastapi import FastAPI

PATH = Path(__file__).resolve().parents[1] / "examples" / "fastapi_app.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("fastapi_app", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its annotations are looked up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        servers.note_ran("sqlite")
        return f"sqlite:///{tmp_path / 'chat.db'}"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@contextlib.asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app") as client,
    ):
        yield client


@pytest.fixture
def app(example: Any, url: str) -> FastAPI:
    made: FastAPI = example.create_app(url)
    return made


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client


async def begun(client: httpx.AsyncClient) -> str:
    created = await client.post("/conversations")
    assert created.status_code == 201, created.text
    return f"/conversations/{created.json()['id']}"


async def said(client: httpx.AsyncClient, place: str) -> list[str]:
    found = await client.get(f"{place}/messages")
    return [m["text"] for m in found.json() if m["role"] == "user"] if found.status_code == 200 else []


async def test_a_conversation(client: httpx.AsyncClient) -> None:
    place = await begun(client)
    for number, text in enumerate(["hello", "é 🙂"], 1):
        answer = await client.post(f"{place}/messages", json={"text": text})
        assert answer.json() == {"reply": f"You have said {number} things."}
    assert await said(client, place) == ["hello", "é 🙂"]
    history = (await client.get(f"{place}/history")).json()
    assert [entry["version"] for entry in history] == [2, 1]
    assert (await client.delete(place)).status_code == 204
    assert (await client.delete(place)).status_code == 404
    assert (await client.get(f"{place}/messages")).status_code == 404
    assert (await client.post(f"{place}/messages", json={"text": "again"})).status_code == 404


async def test_it_is_there_after_the_app_was_started_again(example: Any, url: str) -> None:
    async with client_of(example.create_app(url)) as client:
        place = await begun(client)
        await client.post(f"{place}/messages", json={"text": "one"})
    async with client_of(example.create_app(url)) as client:
        await client.post(f"{place}/messages", json={"text": "two"})
        assert await said(client, place) == ["one", "two"]


async def test_of_requests_at_once_none_is_lost(client: httpx.AsyncClient) -> None:
    place = await begun(client)
    texts = [f"text {i}" for i in range(6)]
    answers = await asyncio.gather(*[client.post(f"{place}/messages", json={"text": text}) for text in texts])
    assert [a.status_code for a in answers] == [200] * 6, [a.text for a in answers]
    assert {a.json()["reply"] for a in answers} == {f"You have said {i + 1} things." for i in range(6)}
    assert sorted(await said(client, place)) == texts


async def test_what_fails_after_the_save_stores_nothing(example: Any, app: FastAPI, client: httpx.AsyncClient) -> None:
    names = vars(example)

    async def broken(number: int, said: Any, session: Any, states: Any) -> None:
        await example.turn(number, said.text, session, states)
        raise RuntimeError("the mail could not be sent")

    annotations = {"said": "Said", "session": "SessionOfRequest", "states": "States"}
    broken.__annotations__ = {"number": int, **{name: names[kind] for name, kind in annotations.items()}}
    app.post("/broken/{number}")(broken)
    place = await begun(client)
    await client.post(f"{place}/messages", json={"text": "kept"})
    answer = await client.post(f"/broken/{place.rpartition('/')[2]}", json={"text": "lost"})
    assert answer.status_code == 500
    assert await said(client, place) == ["kept"]
    assert len((await client.get(f"{place}/history")).json()) == 1
    assert (await client.post(f"{place}/messages", json={"text": "next"})).json() == {
        "reply": "You have said 2 things."
    }
    async with app.state.sessions() as session:
        conversation = await session.get(example.Conversation, int(place.rpartition("/")[2]))
        assert conversation.turns == 2


def test_the_documentation_quotes_the_example() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (PATH.parents[1] / "docs" / "web_app.md").read_text(), re.M | re.S)
    assert len(blocks) == 4
    assert all(block in PATH.read_text() for block in blocks)
