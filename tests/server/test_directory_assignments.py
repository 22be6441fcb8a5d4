"""What a broker tells about its folders is sent, and sent again until a controller takes it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from server_kit import eventually
from tests.core.broker.assignments_kit import REPLICA, UNASSIGNED, A, image

from anabranch.core.broker.hosting.effects import TellHosted
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.replication.partitions import Partitions
from anabranch.core.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from anabranch.server.directory_assignments import AssignmentShell


class Controller:
    """Takes what it is told; meets these faults before."""

    def __init__(self, *faults):
        self.told, self.faults = [], list(faults)

    def another(self, _purpose):
        return self

    async def send(self, request):
        if self.faults:
            raise self.faults.pop()
        self.told += [bytes(directory.id) for directory in request.directories]
        return AssignReplicasToDirsResponse()

    async def close(self):
        pass


@pytest.mark.parametrize(
    "faults",
    [(), (ApiError(ErrorCode.NOT_CONTROLLER, "nobody"),), (ValueError("nobody thought of it"),)],
)
async def test_a_folder_is_told_until_a_controller_takes_it(faults):
    controller = Controller(*faults)
    broker = SimpleNamespace(broker_id=1, broker_epoch=7, partitions=Partitions(1))
    telling = AssignmentShell(broker, controller, {"/a": A})
    telling.follow(image(UNASSIGNED), None)
    telling.tell(TellHosted(REPLICA, is_found=False))
    await eventually(lambda: controller.told == [A])
    await telling.stop()
    telling.tell(TellHosted(REPLICA, is_found=False))
    assert controller.told == [A]
