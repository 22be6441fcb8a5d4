"""`python -m chaos.upgrade`: a rolling upgrade of three hosts that are apart, under clients.

What: three nodes of an older version, each on a host of its own, PostgreSQL on a fourth and clients
on a fifth, with latency and loss between all of them (`apart`). `anabranch cluster roll` of the
newer version restarts each node as the newer version, `cluster upgrade` raises the feature levels,
and what the clients noted is compared with what is stored. Needs root. Not here: faults (`run`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from anabranch.testing.server_process import ServerProcess
from chaos.apart import Distance
from chaos.network import CLIENTS, STORE, Host
from chaos.upgrade_clients import PLAIN, TRANSFERS, verdict

MARK = "ANABRANCH_UPGRADE_NAMESPACE"
IDS = (1, 2, 3)
OPERATOR = 70
CLIENT_PORT, INTERNAL_PORT, CONTROLLER_PORT = 9092, 9093, 9094
SETTLE_SECONDS = 15.0
STOP_SECONDS = 120.0


class Nodes:
    """The three nodes, each with the Python of the version that it runs."""

    def __init__(self, folder: Path, hosts: dict[int, Host], store: str, python: Path) -> None:
        self._folder, self._hosts, self._store = folder, hosts, store
        self._pythons = dict.fromkeys(IDS, python)
        self._processes = {each: ServerProcess(folder / f"node-{each}.log") for each in IDS}
        self.bootstrap = ",".join(f"{hosts[each].public}:{CLIENT_PORT}" for each in IDS)

    def start(self, node_id: int) -> None:
        """Start one."""
        host = self._hosts[node_id]
        settings = {
            "node.id": node_id,
            "broker.rack": "abc"[node_id - 1],
            "log.dirs": self._folder / f"data-{node_id}",
            "listeners": f"CLIENTS://{host.public}:{CLIENT_PORT},"
            f"INTERNAL://{host.address}:{INTERNAL_PORT},"
            f"CONTROLLER://{host.address}:{CONTROLLER_PORT}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "listener.plaintext.beyond.loopback.allow": "true",
            "inter.broker.listener.name": "INTERNAL",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{self._hosts[each].address}:{CONTROLLER_PORT}" for each in IDS
            ),
            "metadata.store.url": self._store,
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
        }
        words = [word for each in settings.items() for word in ("--set", "=".join(map(str, each)))]
        python = str(self._pythons[node_id])
        self._processes[node_id].run(
            [*host.prefix, python, "-I", "-m", "anabranch", "serve", *words]
        )

    def renew(self, node_id: int, python: Path) -> None:
        """Stop one in order, and start it as another version."""
        if not self._processes[node_id].terminate(STOP_SECONDS):
            raise SystemExit(f"node {node_id} did not stop within {STOP_SECONDS:g} s")
        self._pythons[node_id] = python
        self.start(node_id)

    def stop(self) -> None:
        """End all."""
        for each in self._processes.values():
            each.terminate(STOP_SECONDS)


def main() -> int:
    """Run it; 1 when anything was lost, torn, written twice or refused."""
    parser = argparse.ArgumentParser(prog="python -m chaos.upgrade", description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="Python that has the older wheel")
    parser.add_argument("--new", type=Path, required=True, help="Python that has the newer one")
    parser.add_argument("--folder", type=Path, required=True, help="a new one, for everything")
    parser.add_argument("--latency-ms", type=float, default=5.0, help="of each direction")
    parser.add_argument("--jitter-ms", type=float, default=2.0)
    parser.add_argument("--loss", type=float, default=0.005, help="chance of each packet")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    if MARK not in os.environ:
        words = ["unshare", "--net", "--", sys.executable, "-m", "chaos.upgrade", *sys.argv[1:]]
        os.execvpe("unshare", words, {**os.environ, MARK: "1"})
    chosen.folder.mkdir(parents=True)
    with Distance(
        [*IDS, STORE, CLIENTS], OPERATOR, latency_ms=chosen.latency_ms, jitter_ms=chosen.jitter_ms,
        loss=chosen.loss, seed=chosen.seed,
    ) as distance:  # fmt: skip
        found = upgrade(distance, chosen.folder.resolve(), chosen.old, chosen.new)
        found |= {"packets": distance.carried, "packets_lost": distance.lost}
    print(json.dumps(found, indent=1))
    bad = ("refused", "missing", "twice", "torn", "not_seen_by_the_group")
    return 1 if any(found[each] for each in bad) else 0


def upgrade(distance: Distance, folder: Path, old: Path, new: Path) -> dict[str, Any]:
    """All of it; what was found."""
    from chaos.stores import PostgresDatabase

    store = PostgresDatabase(distance.hosts[STORE])
    nodes = Nodes(folder, distance.hosts, store.url, old)
    try:
        for each in IDS:
            nodes.start(each)
        return _upgraded(nodes, folder, distance.hosts[CLIENTS], new)
    finally:
        nodes.stop()
        store.close()


def _upgraded(nodes: Nodes, folder: Path, apart: Host, new: Path) -> dict[str, Any]:
    def anabranch(*words: str, seconds: float = 600) -> str:
        command = [*apart.prefix, str(new), "-I", "-m", "anabranch", *words]
        environment = {**os.environ, "ANABRANCH_BOOTSTRAP_SERVER": nodes.bootstrap}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        say(f"$ anabranch {' '.join(words)}\n{done.stdout}{done.stderr}")
        if done.returncode:
            raise SystemExit(f"exit code {done.returncode}")
        return done.stdout

    wait(lambda: _serving(apart, new, nodes.bootstrap) == len(IDS), 120)
    anabranch("topics", "create", "--topic", PLAIN, "--partitions", "6")
    anabranch("topics", "create", "--topic", TRANSFERS, "--partitions", "2")
    before = anabranch("cluster", "features")
    clients = {each: _client(each, folder, apart, nodes.bootstrap)
               for each in ("write", "transfer", "read")}  # fmt: skip
    time.sleep(SETTLE_SECONDS)
    over = threading.Event()
    restarts = threading.Thread(target=_restart_when_asked, args=(nodes, folder, new, over))
    restarts.start()
    begun = time.monotonic()
    try:
        asked = f"{folder}/restart-{{id}}"
        command = f"touch {asked}; while [ -e {asked} ]; do sleep 0.1; done"
        anabranch("cluster", "roll", "--restart-command", f"sh -c '{command}'")
    finally:
        over.set()
        restarts.join()
    seconds = time.monotonic() - begun
    anabranch("cluster", "upgrade")
    after = anabranch("cluster", "features")
    time.sleep(SETTLE_SECONDS)
    anabranch("cluster", "status")
    for role, client in clients.items():
        client.terminate()
        if client.wait(180):
            raise SystemExit(f"the client {role} failed: {folder}/{role}.log")
    if _client("read_all", folder, apart, nodes.bootstrap).wait(600):
        raise SystemExit(f"the last read failed: {folder}/read_all.log")
    return {"roll_seconds": round(seconds, 1), "levels_rose": before != after, **verdict(folder)}


def _restart_when_asked(nodes: Nodes, folder: Path, new: Path, over: threading.Event) -> None:
    """What a host's service manager does for `cluster roll`."""
    while not over.wait(0.1):
        for node_id in IDS:
            asked = folder / f"restart-{node_id}"
            if asked.exists():
                nodes.renew(node_id, new)
                asked.unlink()


def _serving(apart: Host, new: Path, bootstrap: str) -> int:
    words = ["cluster", "brokers", "--bootstrap-server", bootstrap, "--timeout", "5", "--json"]
    command = [*apart.prefix, str(new), "-I", "-m", "anabranch", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return 0
    return sum(not each["fenced"] for each in json.loads(done.stdout))


def _client(role: str, folder: Path, apart: Host, bootstrap: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "chaos.upgrade_clients", role, bootstrap, str(folder / role)]
    with (folder / f"{role}.log").open("wb") as log:
        return subprocess.Popen([*apart.prefix, *words], stdout=log, stderr=log)


def wait(holds: Any, seconds: float) -> None:
    """Until it holds. Raises SystemExit when that takes too long."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"not within {seconds:g} s")
        time.sleep(1)


def say(text: str) -> None:
    """To the reader, at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
