"""A broker that was permitted to stop is counted on no more, in whatever order its heartbeats come.

A heartbeat may be on its way for so long that a later one is handled first: it was sent on a
connection that its broker has given up. All orders of a broker's last heartbeats are tried, with
the end of its session between any two.
"""

from itertools import permutations, product

from tests.core.controller.world import World

STAYS, LEAVES = {}, {"want_shut_down": True}
SESSION_MS = 9_000


def ends_its_session(world):
    """Time in which only broker 2 is heard."""
    for _ in range(4):
        world.pass_time(SESSION_MS // 3)
        world.beat(2)


def test_no_heartbeat_lets_a_broker_in_that_may_stop():
    permitted = 0
    for sent, silence in product(set(permutations([0, 0, 1, 1])), range(6)):
        world = World()
        world.start(1, 2)
        world.create("t", [1, 2], [2, 1])
        may_stop = False
        for at, leaves in enumerate(sent):
            if at == silence:
                ends_its_session(world)
            answer = world.beat(1, **(LEAVES if leaves else STAYS))
            may_stop = may_stop or (leaves and answer.should_shut_down)
            permitted += may_stop
            leads = [each for each in (0, 1) if world.partition("t", each).leader == 1]
            if may_stop:
                assert (world.image.brokers[1].fenced, leads) == (True, []), (sent, silence)
            world.beat(2)
    assert permitted


def test_the_next_process_is_let_in():
    world = World()
    world.start(1, 2)
    world.create("t", [2, 1])
    assert world.beat(1, want_shut_down=True).should_shut_down
    world.register(1, incarnation=2)
    world.beat(1)
    assert not world.image.brokers[1].fenced
