"""R1, R3, R4: whatever is lost, delayed or restarted, logs agree below what was shown.

Hypothesis writes a history of produces, deliveries, losses, elections, restarts and shrunk ISRs for
two or three brokers and an observer. After each step: what two brokers hold below the smaller of
their high watermarks is the same, byte for byte; a record that was shown or acknowledged is still
on every in-sync replica (there is no unclean election and no lost disk here); the high watermark
never goes back within a leadership. When faults end, everybody has the same log.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.replication.peers import Peers, outcome_of

from anabranch.core.errors import ErrorCode

CONFIG = {
    "replica.lag.time.max.ms": "10000",
    "replica.fetch.max.bytes": "1",
    "replica.fetch.response.max.bytes": "1",
}


class Replicating(RuleBasedStateMachine):
    """The brokers, and what the outside has seen of them."""

    def __init__(self):
        super().__init__()
        self.shown = 0
        self.agreed = b""
        self.boxes = []
        self.marks = {}
        self.dead = set()

    @initialize(
        brokers=st.integers(2, 4),
        observed=st.booleans(),
        minimum=st.integers(1, 2),
        partitions_bytes=st.sampled_from(["1048576", "2097152"]),
    )
    def begin(self, brokers, observed, minimum, partitions_bytes):
        observers = (brokers,) if observed and brokers > 2 else ()
        topic_config = {"min.insync.replicas": str(minimum), "segment.bytes": partitions_bytes}
        self.peers = Peers(brokers, config=CONFIG, topic_config=topic_config, observers=observers)

    # What clients do.

    @rule(acks=st.sampled_from([1, -1]), count=st.integers(1, 3), size=st.integers(1, 90))
    def produce(self, acks, count, size):
        peers = self.peers
        for each, peer in peers.peers.items():
            if each in self.dead or not peer.replica.is_leader:
                continue
            before = peer.end
            answer = peer.produce(count, acks=acks, size=size, timestamp=1_700_000_000_000 + before)
            if acks == -1 and isinstance(answer, list):
                self.boxes.append((answer, before + count))

    # What the network and the controller do.

    @precondition(lambda self: self.peers.mail)
    @rule(picked=st.data())
    def deliver(self, picked):
        at = picked.draw(st.integers(0, len(self.peers.mail) - 1))
        self.pass_on(at)

    @precondition(lambda self: self.peers.mail)
    @rule(times=st.integers(1, 12), whose=st.integers(0, 4))
    def deliver_many(self, times, whose):
        """Some messages in order; `whose` 1 to 4: only that broker's."""
        for _ in range(times):
            at = next(
                (
                    at
                    for at, (sender, *_) in enumerate(self.peers.mail)
                    if whose in (0, sender.broker_id)
                ),
                None,
            )
            if at is None:
                return
            self.pass_on(at)

    def pass_on(self, at, **how):
        _, _, effect = self.peers.mail[at]
        unreachable = getattr(effect, "leader_id", None) in self.dead
        self.peers.deliver(
            at,
            lose=unreachable or how.get("lose", False),
            **{name: value for name, value in how.items() if name != "lose"},
        )

    @precondition(lambda self: self.peers.mail)
    @rule(picked=st.data(), answer=st.booleans())
    def lose(self, picked, answer):
        at = picked.draw(st.integers(0, len(self.peers.mail) - 1))
        self.pass_on(at, lose=not answer, lose_answer=answer)

    @rule(milliseconds=st.sampled_from([50, 1000, 5000, 20_000]))
    def wait(self, milliseconds):
        self.peers.wait(milliseconds)

    @rule(picked=st.data())
    def publish(self, picked):
        alive = [each for each in self.peers.peers if each not in self.dead]
        if alive:
            self.peers.publish(picked.draw(st.sampled_from(alive)))

    @precondition(lambda self: len(self.peers.state.isr) > 1 or self.dead)
    @rule(picked=st.data(), everywhere=st.booleans())
    def elect(self, picked, everywhere):
        """A clean election: of a living in-sync replica, told to all or to nobody yet."""
        able = [each for each in self.peers.state.isr if each not in self.dead]
        if not able:
            return
        self.peers.change(leader=picked.draw(st.sampled_from(able)))
        if everywhere:
            self.tell()

    def tell(self):
        self.peers.publish(*[each for each in self.peers.peers if each not in self.dead])

    @rule(picked=st.data())
    def die(self, picked):
        """A process ends; the controller notices, and elects in the ISR that is left."""
        alive = [each for each in self.peers.peers if each not in self.dead]
        if len(alive) < 2 or (self.dead and not self.peers.mail):
            return
        gone = picked.draw(st.sampled_from(alive))
        self.dead.add(gone)
        self.set_fenced(gone, True)
        state = self.peers.state
        left = tuple(each for each in state.isr if each != gone) or state.isr
        leader = state.leader
        if leader == gone:
            leader = next((each for each in left if each not in self.dead), -1)
            self.peers.change(leader=leader, isr=left)
        elif left != state.isr:
            self.peers.change(isr=left)

    def set_fenced(self, broker_id, fenced):
        old = self.peers.brokers[broker_id]
        fields = {name: getattr(old, name) for name in old.__struct_fields__}
        self.peers.brokers[broker_id] = type(old)(**{**fields, "fenced": fenced})

    @precondition(lambda self: self.dead)
    @rule()
    def live(self):
        """It begins again on what its disk holds, out of the ISR unless it is the last of it."""
        back = min(self.dead)
        self.dead.discard(back)
        self.peers.restart(back)
        self.set_fenced(back, False)
        self.marks.pop(back, None)
        if self.peers.state.leader < 0 and back in self.peers.state.isr:
            self.peers.change(leader=back)
        self.peers.publish(back)

    @invariant()
    def what_must_hold(self):
        hosted = self.hosted()
        if hosted:
            marks = self.logs_agree_below_the_marks(hosted)
            self.what_was_shown_stays(hosted, marks)
            self.acknowledged_is_shown()
            self.marks_only_rise(hosted)

    def logs_agree_below_the_marks(self, hosted):
        longest = max(hosted, key=lambda peer: peer.high_watermark)
        marks = longest.bytes_upto(longest.high_watermark)
        for peer in hosted:
            held = peer.bytes_upto(peer.high_watermark)
            assert marks.startswith(held), f"{peer.broker_id} shows something else"
        return marks

    def what_was_shown_stays(self, hosted, marks):
        highest = max(peer.high_watermark for peer in hosted)
        if highest > self.shown:
            assert marks.startswith(self.agreed)
            self.shown, self.agreed = highest, marks
        for peer in hosted:
            if peer.broker_id in self.peers.state.isr:
                assert peer.end >= self.shown
                assert peer.bytes_upto(peer.end).startswith(self.agreed)

    def acknowledged_is_shown(self):
        for box, end in self.boxes:
            if box and outcome_of(box[0]).error_code == ErrorCode.NONE:
                assert self.shown >= end

    def marks_only_rise(self, hosted):
        for peer in hosted:
            known = self.marks.get(peer.broker_id, 0)
            assert peer.high_watermark >= known
            self.marks[peer.broker_id] = peer.high_watermark
            log = peer.replica.log
            assert log.start_offset <= peer.high_watermark <= log.end_offset

    def hosted(self):
        return list(self.peers.peers.values()) if hasattr(self, "peers") else []

    def teardown(self):
        if not hasattr(self, "peers"):
            return
        while self.dead:
            self.live()
        self.peers.mail = [each for each in self.peers.mail if each[1] is each[0].broker]
        for _ in range(20):  # a fetch brings one batch
            self.peers.settle()
            is_even = len({(peer.end, peer.high_watermark) for peer in self.hosted()}) == 1
            if is_even and set(self.peers.state.isr) == set(self.peers.state.replicas):
                break
        logs = {peer.bytes_upto(peer.end) for peer in self.hosted()}
        assert len(logs) == 1, "everybody has the same log at last"
        assert set(self.peers.state.isr) == set(self.peers.state.replicas)
        ends = {(peer.end, peer.high_watermark) for peer in self.hosted()}
        assert len(ends) == 1


Replicating.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=70,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestReplicating = Replicating.TestCase
