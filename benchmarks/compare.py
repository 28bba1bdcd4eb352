"""Compares locus_store with its peers, side by side, in one run.

    python benchmarks/compare.py                             # everything that is installed, two rounds
    python benchmarks/compare.py --adapters 'locus-store-*,floor-pg-*' --workloads w1 --rounds 3

It starts a PostgreSQL of its own with the server's default settings (fsync on) on the disk that the temporary folder is
on, and a Redis without persistence (the operating system's redis-server, else the Valkey of the extra `test`), if an
adapter needs one. `--pg URL` names another PostgreSQL that may create databases, `--redis URL` a database of a Redis
that is emptied. Peers whose packages are missing are left out. Each (workload, adapter) pair runs in a process of its
own over fresh storage, in turn; the tables show medians over rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))  # where servers are started
ADAPTERS = (
    "locus-store-*,floor-pg-delta-threads,floor-pg-delta-segments,floor-sqlite-delta-thread-full,floor-file-delta,"
    "locus-PgCheckpointer,locus-file,langgraph-pg,langgraph-pg-delta,langgraph-sqlite,langgraph-sqlite-delta,"
    "floor-redis-*,locus-redis,langgraph-plainredis"
)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--adapters", default=ADAPTERS, help="patterns of adapters' names, separated by commas")
    p.add_argument("--workloads", default="w1,w2,w3")
    p.add_argument("--rounds", default="2")
    p.add_argument("--steps", default="50,200,500", help="marks of w1")
    p.add_argument("--out", default="benchmark.json", help="where the raw results go")
    p.add_argument("--pg", help="URL of a PostgreSQL that may create databases")
    p.add_argument("--redis", help="URL of a Redis database, which is emptied")
    p.add_argument(
        "--redis-server", help="the program of a Redis or Valkey server to start in place of the first found"
    )
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="locus-store-bench-") as folder:
        env = {**os.environ, "BENCH_DIR": str(Path(folder) / "data")}
        run = [sys.executable, str(HERE / "peers" / "driver.py")]
        found = subprocess.run([*run, "list"], env=env, check=True, capture_output=True, text=True).stdout.split()
        named = " ".join(n for n in found if any(fnmatch.fnmatch(n, p) for p in args.adapters.split(",")))
        with contextlib.ExitStack() as stack:
            if args.pg:
                env["BENCH_PG"] = args.pg
            elif "pg" in named.lower():
                env["BENCH_PG"] = stack.enter_context(_postgresql())
            if args.redis:
                env["BENCH_REDIS"] = args.redis
            elif "redis" in named:
                env["BENCH_REDIS"] = stack.enter_context(_redis(args.redis_server))
            env["BENCH_REDIS_FLUSH"] = "1"
            options = ["--adapters", args.adapters, "--workloads", args.workloads, "--rounds", args.rounds]
            subprocess.run([*run, "run", *options, "--steps", args.steps, "--out", args.out], env=env, check=True)
            subprocess.run([*run, "report", args.out], env=env, check=True)


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    import servers

    server = servers.start_postgresql({"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"})
    print(f"PostgreSQL {server.version}", flush=True)
    with contextlib.closing(server):
        yield server.admin_url


@contextlib.contextmanager
def _redis(program: str | None) -> Iterator[str]:
    import redis_servers

    server = redis_servers.start_redis(program=program or redis_servers.os_redis_server())
    print(f"Redis: {server.version}", flush=True)
    with contextlib.closing(server):
        yield f"{server.admin_url}/0"


if __name__ == "__main__":
    main()
