"""Tools that look at brokers, controllers and folders, and change neither records nor topics."""

from __future__ import annotations

import json
import re

from compat.families.console import fill
from compat.families.topics import create
from compat.peer import Output, Peer
from compat.row import Failed, row

VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
REPLICAS = "org.apache.kafka.tools.ReplicaVerificationTool"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
STORAGE = "kafka.tools.StorageTool"


LATER = {
    **dict.fromkeys(("AddRaftVoter", "RemoveRaftVoter"), "Kafka's quorum"),
    "ConsumerGroupDescribe": "KIP-848",
    **dict.fromkeys(("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch"), "KIP-932"),
    **dict.fromkeys(("ShareAcknowledge", "InitializeShareGroupState"), "KIP-932"),
    **dict.fromkeys(("ReadShareGroupState", "WriteShareGroupState"), "KIP-932"),
    **dict.fromkeys(("DeleteShareGroupState", "ReadShareGroupStateSummary"), "KIP-932"),
    **dict.fromkeys(("DescribeShareGroupOffsets", "DeleteShareGroupOffsets"), "KIP-932"),
}
"""Request keys that Kafka serves and Anabranch does not, and the feature that they belong to."""


OWN = "UNKNOWN"
"""What Kafka's tool calls a request that it does not know."""
AHEAD = {"WriteTxnMarkers": "2"}
"""Request keys of which Anabranch serves a version that Kafka 4.1 lacks (KIP-1228), and which."""


@row("broker-api-versions")
def lists_api_versions(peer: Peer) -> object:
    """Every request key that the broker serves, with its versions.

    Keys of features that Anabranch lacks are named in the note, and must be missing.
    """
    lines = peer.tool(VERSIONS, *peer.at).lines
    found = [re.match(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))?", line) for line in lines]
    keys: dict[str, tuple[str | None, ...]] = {key[1]: key.groups() for key in found if key}
    if peer.name == "anabranch":
        for name, version in AHEAD.items():
            key, number, first, last = keys[name]
            if last != version:
                raise Failed(f"compat says that {name} is served up to {version}: {last}")
            peer.say(f"{name}: version {version} too")
            keys[name] = (key, number, first, None)
        if keys.pop(OWN, None) is not None:
            peer.say("requests of Anabranch's own, of which Kafka's tool knows only the numbers")
        served = sorted(set(LATER) & set(keys))
        if served:
            raise Failed(f"served, though compat says that it is not: {served}")
        for owed in sorted(set(LATER.values())):
            peer.say(f"{owed}: {', '.join(key for key in LATER if LATER[key] == owed)}")
    return lines[0], [key for name, key in keys.items() if name not in LATER]


@row("cluster-id")
def tells_the_cluster_id(peer: Peer) -> object:
    """The cluster's id through the broker and through the controller is one."""
    ids = [
        peer.tool(CLUSTER, "cluster-id", *at, raw=True).lines[-1].rpartition(" ")[2]
        for at in (peer.at, ("--bootstrap-controller", peer.controller))
    ]
    return len(set(ids)), len(ids[0])


@row("cluster-endpoints")
def lists_endpoints(peer: Peer) -> object:
    """Endpoints of brokers and of controllers are listed."""
    brokers = peer.tool(CLUSTER, "list-endpoints", *peer.at).lines
    fenced = peer.tool(CLUSTER, "list-endpoints", *peer.at, "--include-fenced-brokers").lines
    at = ("--bootstrap-controller", peer.controller)
    return brokers, fenced, peer.tool(CLUSTER, "list-endpoints", *at).lines


@row("cluster-unregister-refused")
def unregisters_no_unknown_broker(peer: Peer) -> object:
    """A broker that is not registered cannot be unregistered."""
    output = peer.tool(CLUSTER, "unregister", *peer.at, "--id", 77, fails=True)
    peer.say(output.complaint)
    return output.code


@row("features-describe")
def describes_features(peer: Peer) -> object:
    """Finalized and supported feature levels through the broker and the controller.

    Share groups, which Kafka 4.1 offers as a preview, are left out; Anabranch's own level is noted.
    """
    seen = []
    for at in (peer.at, ("--bootstrap-controller", peer.controller)):
        lines = peer.tool(FEATURES, *at, "describe").lines
        own = [line for line in lines if line.startswith("Feature: anabranch.")]
        shown = [line for line in lines if not line.startswith("Feature: share.version ")]
        seen.append(
            [re.sub(r"Epoch: \d+", "Epoch: <n>", line) for line in shown if line not in own]
        )
        for line in own:
            peer.say(line.partition(" Epoch")[0])
    return seen


OF_THE_MOMENT = re.compile(r"ClusterId|LeaderEpoch|HighWatermark|MaxFollowerLag")


@row("quorum-status")
def describes_the_quorum(peer: Peer) -> object:
    """The metadata quorum's leader, voters and observers are described."""
    seen = []
    for at in (peer.at, ("--bootstrap-controller", peer.controller)):
        lines = peer.tool(QUORUM, *at, "describe", "--status").lines
        seen.append([line for line in lines if not OF_THE_MOMENT.match(line)])
    return seen


@row("quorum-replication")
def describes_the_quorums_replication(peer: Peer) -> object:
    """Each quorum member's state and lag are described."""
    output = peer.tool(QUORUM, *peer.at, "describe", "--replication")
    return output.columns("NodeId", "Lag", "Status")


@row("log-dirs")
def describes_folders(peer: Peer) -> object:
    """The broker's folders, with each partition's size and lag."""
    create(peer, "folders", 2)
    fill(peer, "folders", 10)
    output = peer.tool(LOG_DIRS, *peer.at, "--describe", "--topic-list", "folders")
    return folders(output)


def folders(output: Output) -> object:
    """Brokers, folders and partitions of the tool's JSON, in order."""
    found = json.loads(next(line for line in output.lines if line.startswith("{")))
    for broker in found["brokers"]:
        for folder in broker["logDirs"]:
            folder["partitions"].sort(key=lambda each: each["partition"])
    return found


@row("log-dirs-refused")
def describes_no_folders_of_unknown_brokers(peer: Peer) -> object:
    """A broker that is not there is refused."""
    output = peer.tool(LOG_DIRS, *peer.at, "--describe", "--broker-list", "9", fails=True)
    peer.say(output.complaint)
    return output.code


@row("replica-verification")
def verifies_replicas(peer: Peer) -> object:
    """The replica verification tool reads every replica."""
    create(peer, "replicas")
    fill(peer, "replicas", 10)
    words = ("--broker-list", peer.bootstrap, "--topics-include", "replicas")
    with peer.background_tool(REPLICAS, *words, "--report-interval-ms", 500) as running:
        peer.wait(lambda: "max lag is 0" in running.printed, "max lag is 0")
        return "max lag is 0" in running.printed


@row("leader-election")
def elects_leaders(peer: Peer) -> object:
    """The preferred leader is asked for where it leads already."""
    create(peer, "elected")
    words = ("--election-type", "preferred", "--topic", "elected", "--partition", 0)
    return peer.tool(ELECTION, *peer.at, *words).lines


@row("reassign-list")
def lists_reassignments(peer: Peer) -> object:
    """No partition moves."""
    return peer.tool(REASSIGN, *peer.at, "--list").lines


@row("reassign-generate")
def reassigns(peer: Peer) -> object:
    """A reassignment is generated, executed and verified."""
    create(peer, "moved", 2)
    wish = json.dumps({"topics": [{"topic": "moved"}], "version": 1})
    file = peer.file("topics.json", wish)
    words = ("--topics-to-move-json-file", file, "--broker-list", "1", "--generate")
    made = peer.tool(REASSIGN, *peer.at, *words).lines
    plan = peer.file("plan.json", made[-1])
    done = peer.tool(REASSIGN, *peer.at, "--reassignment-json-file", plan, "--execute").lines
    seen = peer.tool(REASSIGN, *peer.at, "--reassignment-json-file", plan, "--verify").lines
    return made, done, seen


@row("transactions-list")
def lists_transactions(peer: Peer) -> object:
    """The transactional ids that other rows used are listed, all done."""
    return peer.tool(TRANSACTIONS, *peer.at, "list").columns("TransactionalId", "TransactionState")


@row("transactions-producers")
def describes_producers(peer: Peer) -> object:
    """The producers of a partition are described."""
    create(peer, "producers")
    fill(peer, "producers", 5)
    words = ("describe-producers", "--topic", "producers", "--partition", 0)
    return peer.tool(TRANSACTIONS, *peer.at, *words).columns("ProducerEpoch", "LastSequence")


@row("acls-list")
def lists_no_acls(peer: Peer) -> object:
    """Without an authorizer, ACLs are neither listed nor made: security is disabled."""
    made = ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    outputs = [peer.tool(ACLS, *peer.at, *words, fails=True) for words in (("--list",), made)]
    return [(output.code, output.complaint) for output in outputs]


@row("client-metrics")
def keeps_client_metrics(peer: Peer) -> object:
    """Subscriptions to clients' metrics are made, described, listed and deleted."""
    made = ("--alter", "--name", "listed", "--interval", 60_000, "--metrics", "org.apache.kafka.")
    steps = (
        made,
        ("--list",),
        ("--describe", "--name", "listed"),
        ("--delete", "--name", "listed"),
    )
    seen = [peer.tool(CLIENT_METRICS, *peer.at, *step).lines for step in (*steps, ("--list",))]
    return [[line for line in lines if line != "watch"] for lines in seen]


@row("storage-info")
def reads_the_folder(peer: Peer) -> object:
    """Kafka's storage tool knows the folder as a formatted one."""
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        "controller.listener.names=CONTROLLER",
        f"listeners=PLAINTEXT://{peer.bootstrap},CONTROLLER://{peer.controller}",
        f"controller.quorum.voters=1@{peer.controller}",
        f"log.dirs={peer.log_dir}",
    ]
    file = peer.file("storage.properties", "\n".join(lines) + "\n")
    seen = peer.tool(STORAGE, "info", "-c", file).lines
    return [re.sub(r"(cluster|directory)\.id=[\w-]+", r"\1.id=<id>", line) for line in seen]
