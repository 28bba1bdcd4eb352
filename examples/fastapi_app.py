"""A web app with a database of its own, whose agent's conversations are stored in the same transactions.

It needs ``pip install fastapi uvicorn aiosqlite``. Run it with ``uvicorn --factory examples.fastapi_app:create_app``.
DATABASE_URL says where the database is: ``sqlite:///chat.db`` (the default), ``postgresql://…``, ``mysql://…`` or
``mariadb://…``. What matters:

- One engine, made when the app starts. The store makes its tables then, or checks them if they came with a migration.
- One session a request, in one transaction. It is committed before the answer is sent.
- ``store.bind(session)`` saves the agent's state in that transaction: the app's row and the state are there together,
  or neither is.
- A request takes the conversation's row first, so of two at once the second one reads what the first one saved.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy import delete, make_url, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from locus_store import AgentState, Checkpointer, Message, open_backend

CLIENTS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+asyncmy",
    "mariadb": "mariadb+asyncmy",
}


class Base(DeclarativeBase):
    """The app's own tables."""


class Conversation(Base):
    __tablename__ = "conversations"

    id: Mapped[int] = mapped_column(primary_key=True)
    turns: Mapped[int] = mapped_column(default=0)


class Said(BaseModel):
    text: str


async def session(request: Request) -> AsyncIterator[AsyncSession]:
    """The request's session: committed if the endpoint returns, rolled back if it raises."""
    async with request.app.state.sessions.begin() as opened:
        yield opened


# With this scope the session is committed before the answer is sent: who has the answer knows that it is stored.
SessionOfRequest = Annotated[AsyncSession, Depends(session, scope="function")]


def states(request: Request, session: SessionOfRequest) -> Checkpointer[AgentState]:
    """The agent's states, in the transaction of the request."""
    bound: Checkpointer[AgentState] = request.app.state.store.checkpointer().bind(session)
    return bound


States = Annotated[Checkpointer[AgentState], Depends(states, scope="function")]


def answer(state: AgentState) -> str:
    """What the agent says next; yours asks a model."""
    return f"You have said {sum(m.role == 'user' for m in state.messages)} things."


async def turn(number: int, text: str, session: AsyncSession, states: Checkpointer[AgentState]) -> str:
    """One turn of a conversation: the app's row and the agent's state."""
    # The first statement takes the row, for as long as the transaction lasts.
    taken: Any = await session.execute(
        update(Conversation).where(Conversation.id == number).values(turns=Conversation.turns + 1)
    )
    if taken.rowcount == 0:
        raise HTTPException(404, "no such conversation")
    thread = f"conversation-{number}"
    state = await states.load(thread) or AgentState(agent_id="helper")
    state = state.with_message(Message.user(text))
    reply = answer(state)
    await states.save(state.with_message(Message.assistant(reply)), thread)
    return reply


def create_app(url: str | None = None) -> FastAPI:
    """The app on the database of ``url``, or of DATABASE_URL."""
    place = make_url(url or os.environ.get("DATABASE_URL", "sqlite:///chat.db"))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        client = CLIENTS.get(place.drivername, place.drivername)
        engine = create_async_engine(place.set(drivername=client))
        async with open_backend(place.render_as_string(hide_password=False)) as store:
            try:
                async with engine.begin() as connection:
                    await connection.run_sync(Base.metadata.create_all)  # yours may come with its migrations
                await store.setup()
                app.state.sessions = async_sessionmaker(engine)
                app.state.store = store
                yield
            finally:
                await engine.dispose()

    app = FastAPI(title="An agent with a memory", lifespan=lifespan)

    @app.post("/conversations", status_code=201)
    async def begin(session: SessionOfRequest) -> dict[str, int]:
        conversation = Conversation()
        session.add(conversation)
        await session.flush()
        return {"id": conversation.id}

    @app.post("/conversations/{number}/messages")
    async def say(number: int, said: Said, session: SessionOfRequest, states: States) -> dict[str, str]:
        return {"reply": await turn(number, said.text, session, states)}

    @app.get("/conversations/{number}/messages")
    async def messages(number: int, states: States) -> list[dict[str, str | None]]:
        state = await states.load(f"conversation-{number}")
        if state is None:
            raise HTTPException(404, "nothing was said")
        return [{"role": message.role, "text": message.content} for message in state.messages]

    @app.get("/conversations/{number}/history")
    async def history(number: int, states: States) -> list[dict[str, Any]]:
        found = await states.history(f"conversation-{number}")
        return [{"version": info.version, "at": info.created_at} for info in found]

    @app.delete("/conversations/{number}", status_code=204)
    async def forget(number: int, session: SessionOfRequest, states: States) -> None:
        removed: Any = await session.execute(delete(Conversation).where(Conversation.id == number))
        if removed.rowcount == 0:
            raise HTTPException(404, "no such conversation")
        await states.delete(f"conversation-{number}")

    return app
