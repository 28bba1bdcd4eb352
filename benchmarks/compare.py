"""Compares locus_store with its peers, side by side, in one run.

    python benchmarks/compare.py                             # everything that is installed, two rounds
    python benchmarks/compare.py --adapters 'locus-store-*,floor-pg-*' --workloads w1 --rounds 3

It starts a PostgreSQL of its own with the server's default settings (fsync on) on the disk that the temporary folder is
on; `--pg URL` names another one that may create databases. Peers whose packages are missing are left out. Each
(workload, adapter) pair runs in a process of its own over fresh storage, in turn; the tables show medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ADAPTERS = (
    "locus-store-*,floor-pg-delta-threads,floor-pg-delta-segments,floor-sqlite-delta-thread-full,floor-file-delta,"
    "locus-PgCheckpointer,locus-file,langgraph-pg,langgraph-pg-delta,langgraph-sqlite,langgraph-sqlite-delta"
)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--adapters", default=ADAPTERS, help="patterns of adapters' names, separated by commas")
    p.add_argument("--workloads", default="w1,w2,w3")
    p.add_argument("--rounds", default="2")
    p.add_argument("--steps", default="50,200,500", help="marks of w1")
    p.add_argument("--out", default="benchmark.json", help="where the raw results go")
    p.add_argument("--pg", help="URL of a PostgreSQL that may create databases")
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="locus-store-bench-") as folder:
        env = {**os.environ, "BENCH_DIR": str(Path(folder) / "data")}
        stop = None
        if args.pg:
            env["BENCH_PG"] = args.pg
        elif "pg" in args.adapters.lower() or "*" in args.adapters:
            sys.path.insert(0, str(HERE.parent / "tests"))
            import servers

            settings = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
            server = servers.start_postgresql(settings)
            stop = server.stop
            env["BENCH_PG"] = server.admin_url
        try:
            run = [sys.executable, str(HERE / "peers" / "driver.py")]
            options = ["--adapters", args.adapters, "--workloads", args.workloads, "--rounds", args.rounds]
            subprocess.run([*run, "run", *options, "--steps", args.steps, "--out", args.out], env=env, check=True)
            subprocess.run([*run, "report", args.out], env=env, check=True)
        finally:
            if stop is not None:
                stop()


if __name__ == "__main__":
    main()
