"""An order is booked and the agent's state is saved in one transaction: both are there, or neither is.

    python examples/order_and_state.py                                    a SQLite file in a temporary folder
    python examples/order_and_state.py postgresql+asyncpg://user:password@host/database
    python examples/order_and_state.py mysql+asyncmy://user:password@host/database

The first needs aiosqlite, the others the extras postgresql and mysql.

The app has an engine, sessions and tables of its own. The store is bound to its session, so what the store writes is
part of the app's transaction. The app alone commits.
"""

import asyncio
import sys
import tempfile
from uuid import uuid4

from sqlalchemy import String, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from locus_store import AgentState, Backend, Message, TransactionConflictError, open_backend


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    thread_id: Mapped[str] = mapped_column(String(100))
    item: Mapped[str] = mapped_column(String(100))


class SoldOutError(Exception):
    pass


async def book(session: AsyncSession, store: Backend, thread_id: str, item: str) -> None:
    """What the agent does when a customer asks for something; it commits nothing."""
    agents = store.bind(session).checkpointer()
    state = await agents.load(thread_id) or AgentState(agent_id="clerk")
    order = Order(thread_id=thread_id, item=item)
    session.add(order)
    await session.flush()  # the order gets its number

    state = state.with_message(Message.user(f"I want {item}."))
    state = state.with_message(Message.assistant(f"You have order {order.id}: {item}."))
    await agents.save(state, thread_id, metadata={"order": order.id})
    if item == "the moon":
        raise SoldOutError(item)


async def serve(sessions: async_sessionmaker[AsyncSession], store: Backend, thread_id: str, item: str) -> None:
    """One request: one session, one transaction."""
    while True:
        try:
            async with sessions.begin() as session:  # commits at its end, rolls back after an error
                await book(session, store, thread_id, item)
        except TransactionConflictError:
            continue  # the database undid the transaction because of another one: all of it runs again
        return


async def main(url: str) -> None:
    engine = create_async_engine(url)
    sessions = async_sessionmaker(engine)
    store = open_backend(url)
    thread_id = f"customer-{uuid4().hex[:8]}"
    async with store:
        await store.setup()
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)

        await serve(sessions, store, thread_id, "a chair")
        await serve(sessions, store, thread_id, "a table")
        try:
            await serve(sessions, store, thread_id, "the moon")
        except SoldOutError as error:
            print(f"sold out: {error}; neither the order nor the state was kept")

        async with sessions() as session:
            orders = await session.scalars(select(Order).where(Order.thread_id == thread_id).order_by(Order.id))
            print("orders: ", ", ".join([order.item for order in orders]))
            state = await store.bind(session).checkpointer().load(thread_id)
        assert state is not None
        for message in state.messages:
            print(f"{message.role}: {message.content}")
        print("checkpoints:", len(await store.list_checkpoints(thread_id)))
        await store.delete(thread_id)
    await engine.dispose()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite+aiosqlite:///{folder}/shop.db"))
