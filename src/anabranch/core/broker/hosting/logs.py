"""One partition after another: its log is found, opened, begun, set aside, deleted, or waits.

What: the standing of each partition (`states.py`), what changes it, and what the performer has to
do then. At most one log is being opened. Rules kept: a log of an older topic id, or of a replica
that moved away, is set aside and not removed, because metadata may have been restored from an old
copy; what the metadata does not know stays where it is, but goes where the metadata log tells that
its topic was deleted; neither an empty log nor an older copy
takes the place of one that is away while others may count on that. Not here: following images
(`hosting.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.broker.hosting.effects import (
    CreateLog,
    DeleteLog,
    Effect,
    OpenLog,
    RemoveLeftover,
    Report,
    SetAside,
    SettleNames,
    TellHosted,
)
from anabranch.core.broker.hosting.folders import Folders
from anabranch.core.broker.hosting.states import HostedEvent, HostedState, after
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import Bug, CorruptLog, StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.directories import directory_of
from anabranch.core.metadata.image import UNASSIGNED_DIRECTORY
from anabranch.core.replication.replica import Replica
from anabranch.core.settings.topic import TopicConfig, effective_topic_config, log_config
from anabranch.core.types import TopicId, TopicPartition

if TYPE_CHECKING:
    from anabranch.core.broker.hosting.host import Host
    from anabranch.core.log.log import Log
    from anabranch.core.log.logs import LogFolder
    from anabranch.core.metadata.image import MetadataImage, PartitionImage
    from anabranch.core.replication.partitions import Assignment

NO_FLUSH_MS = 2**62
"""A flush.ms from here on means that time causes no sync."""
ANYWHERE = ""
"""Where a log that has no folder yet waits for room."""
ANOTHER_TOPIC = "another topic of that name"
MOVED_AWAY = "a replica that was moved away"
SECOND_COPY = "a replica of which another folder has the log"


class Found(NamedTuple):
    """A log that lies in a folder and is not open; `topic_id` None: it does not say whose."""

    path: str
    topic_id: TopicId | None
    is_orphan: bool = False
    """Whether it does not say whose it is and nothing was placed here when all was followed: it is
    of no partition that comes here later."""


class PendingOpen(NamedTuple):
    """The log that the performer was asked to open or to create."""

    assignment: Assignment
    path: str
    config: TopicConfig
    found: Found | None
    is_second: bool = False
    """Whether another log lay in its place already, and was to be set aside."""


class Logs:
    """The logs of one broker. `found` are those that lie in folders and are not open: several of a
    partition where a folder was away while the topic was made anew in another. `flushed_late` are
    the hosted partitions with flush.ms, `compacted` those that are compacted."""

    def __init__(self, broker: Host, effects: list[Effect]) -> None:
        self.found: dict[TopicPartition, tuple[Found, ...]] = {}
        self.deleted_before: frozenset[str] = frozenset()
        """Topics that went before the first image: a log without a name may be of one of them."""
        self.deleted_ids: frozenset[TopicId] = frozenset()
        """Topics of whose deletion the log tells, until all was followed."""
        self.flushed_late: dict[TopicPartition, Replica] = {}
        self.compacted: dict[TopicPartition, Replica] = {}
        self.touched: list[TopicPartition] = []
        """Partitions whose replica came, went or changed."""
        self.folders = Folders(broker.partitions, effects, self._lost)
        self.opening: PendingOpen | None = None
        self._broker = broker
        self._partitions = broker.partitions
        self._effects = effects
        self._waiting: dict[str, dict[TopicPartition, None]] = {}
        """Partitions that wait for room, by the folder in which their logs lie."""

    def note_config(self, replica: Replica) -> None:
        """Remember what the settings of a log ask for as time passes."""
        config, place = replica.log.config, replica.topic_partition
        for asked, noted in (
            (config.flush_interval_ms < NO_FLUSH_MS, self.flushed_late),
            (config.compacted, self.compacted),
        ):
            if asked:
                noted[place] = replica
            else:
                noted.pop(place, None)

    def is_hosted(self, replica: Replica) -> bool:
        """Whether this very replica is still the one that requests see."""
        return self._partitions.get(*replica.topic_partition) is replica

    def delete_offline(self, topic_id: TopicId) -> None:
        """Of a deleted topic: the logs that are not open, in folders that work."""
        for place in self._partitions.offline_of(topic_id):
            for folder in self.folders.working():
                self.found.pop(place, None)
                self._effects.append(DeleteLog(folder.path, place))

    def sort_out_found(self, image: MetadataImage) -> None:
        """What lies in the folders and is not hosted, once everything is followed."""
        self.deleted_before &= {place.topic for place in self.found}
        for place, found in sorted(self.found.items()):
            for each in found:
                self._sort_out(image, place, each)
        self.deleted_ids = frozenset()

    def _is_deleted(self, image: MetadataImage, found: Found) -> bool:
        """Whether a log is of a topic of which it is certain that it was deleted."""
        topic_id = found.topic_id
        return topic_id in self.deleted_ids and topic_id not in image.topics_by_id

    def _sort_out(self, image: MetadataImage, place: TopicPartition, found: Found) -> None:
        topic = image.topic(place.topic)
        known = image.partition(place.topic, place.partition)
        if self._is_deleted(image, found):
            self._no_more_found(place, found)
            self._effects.append(DeleteLog(found.path, place))
            return
        is_own = topic is not None and found.topic_id == topic.topic_id
        if is_own and is_diskless(image, place.topic):
            self._no_more_found(place, found)  # it was classic: all of it is in remote segments
            self._effects.append(DeleteLog(found.path, place))
            return
        if known and topic is not None and found.topic_id == topic.topic_id:
            if not self._partitions.is_placed_here(known):
                self._no_more_found(place, found)
                self._set_aside(found.path, place, MOVED_AWAY)
            return
        if found.topic_id is None and not (known and self._partitions.is_placed_here(known)):
            lying = self.found[place]
            orphan = found._replace(is_orphan=True)
            self.found[place] = tuple(orphan if each == found else each for each in lying)
        why = "is of another topic" if known else "is not in the metadata"
        sentence = f"ignored a log whose partition {why}"
        self._effects.append(Report("warning", sentence, path=f"{found.path}/{place}"))

    def note_found(self, place: TopicPartition, found: Found) -> None:
        """A log lies in a folder."""
        self.found[place] = (*self.found.get(place, ()), found)

    def _no_more_found(self, place: TopicPartition, gone: Found) -> None:
        left = tuple(each for each in self.found.pop(place) if each != gone)
        if left:
            self.found[place] = left

    def _set_aside(self, path: str, place: TopicPartition, what: str) -> None:
        self._effects.append(SetAside(path, place, what))

    # One partition.

    def standing(self, place: TopicPartition) -> HostedState:
        """How a partition stands here now."""
        partitions = self._partitions
        if self.opening is not None and self.opening.assignment.topic_partition == place:
            return HostedState.CREATING if self.opening.found is None else HostedState.OPENING
        if partitions.get(*place) is not None:
            return HostedState.HOSTED
        if place not in partitions.offline:
            return HostedState.ABSENT
        if place in partitions.roomless:
            return HostedState.ROOMLESS
        if place in partitions.missing:
            return HostedState.MISSING
        return HostedState.ROTTEN if place in partitions.rotten else HostedState.OFFLINE

    def host(self, image: MetadataImage, assignment: Assignment, *, is_new: bool) -> None:
        """A partition is placed here and not hosted: have its log opened, or begun."""
        place, topic_id, _ = assignment
        if self._partitions.offline.get(place, topic_id) != topic_id:
            self._come_to(assignment, HostedEvent.REMOVE)  # of an older topic of that name
        lying = self.found.pop(place, ())
        found = self._own_of(lying, assignment)
        others = [each for each in lying if each is not found]
        if found is not None and self._is_older_copy(image, assignment, found):
            self.found[place] = lying
            self._come_to(assignment, HostedEvent.MISS)
            self._partitions.older.add(place)
            return
        for each in others:
            if self._is_deleted(image, each):
                self._effects.append(DeleteLog(each.path, place))
                continue
            is_second = found is not None and each.topic_id == topic_id
            self._set_aside(each.path, place, SECOND_COPY if is_second else ANOTHER_TOPIC)
        if found is None and not is_new and self._is_missing(assignment, others):
            return
        folder = self._folder_for(place) if found is None else self.folders.by_path[found.path]
        if folder is None or folder.fault is not None:
            self._come_to(assignment, HostedEvent.GIVE_UP)
            return
        self._come_to(assignment, HostedEvent.CREATE if found is None else HostedEvent.OPEN)
        config = self.topic_config(image, place.topic)
        opening = PendingOpen(assignment, folder.path, config, found)
        if found is None and folder.room.is_full:
            self._waits(opening, folder.room.refusal(place))
            return
        self.opening = opening
        if found is None:
            self._settle_names(opening, others)
        make = CreateLog if found is None else OpenLog
        settings = log_config(config, self._broker.config)
        self._effects.append(make(folder.path, place, topic_id, settings))

    def _folder_for(self, place: TopicPartition) -> LogFolder | None:
        """Where a log begins: where it was asked for, or where there is most room."""
        asked = self.folders.by_path.get(self._partitions.moves.wanted.get(place, ""))
        if asked is None or asked.fault is not None or asked.room.is_full:
            return self.folders.roomiest()
        return asked

    def _settle_names(self, opening: PendingOpen, others: list[Found]) -> None:
        """See to it that a log of this place that was taken away from another folder stays away: it
        may not say whose it is, and nor may the one that begins. Its own folder sees to it itself
        (`LogFolder.create_log`)."""
        place = opening.assignment.topic_partition
        left = {each.path for each in others}
        for folder in self.folders.working():
            is_left = folder.path in left or folder.may_return(place)
            if is_left and folder.path != opening.path:
                self._effects.append(SettleNames(folder.path))

    def _own_of(self, lying: tuple[Found, ...], assignment: Assignment) -> Found | None:
        """The log that is this replica's: of several, that in the folder that the metadata names,
        else the one of which more was synced."""
        place, topic_id, state = assignment
        own = [each for each in lying if each.topic_id == topic_id] or [
            each
            for each in lying
            if each.topic_id is None
            and not each.is_orphan
            and not self._may_be_anothers(each, assignment)
        ]
        if len(own) < 2:
            return own[0] if own else None
        named = directory_of(state, self._broker.broker_id)

        def standing(found: Found) -> tuple[bool, int]:
            is_named = self._partitions.directory_ids.get(found.path) == named
            return is_named, self.folders.by_path[found.path].promised(place)

        return max(own, key=standing)

    def _is_older_copy(self, image: MetadataImage, assignment: Assignment, found: Found) -> bool:
        """Whether a log may lack what others count on: the metadata names a folder that does not
        work. Says so."""
        place, _, state = assignment
        away = self._partitions.away_directory(state)
        if away is None or self._partitions.may_open_copy(image, state):
            return False
        why = (
            f"the metadata says that its log lies in {self._partitions.folder_called(away)}, which "
            f"does not work; the copy in {found.path} may be older, and is opened when this "
            "replica neither leads nor counts as in sync; repair the other folder and restart, or "
            "delete the topic"
        )
        sentence = "a partition is offline: its folder is away"
        self._effects.append(Report("error", sentence, place, why=why))
        return True

    def _may_be_anothers(self, found: Found, assignment: Assignment) -> bool:
        """Whether a log that does not say whose it is is copied anew instead: its name goes to disk
        with its first records, so nothing in it was ever synced, and the controller counts on
        none of it, or on a replica that never was, or an older topic of that name has gone. If the
        log is this topic's all the same, it loses what was never synced, as in any power cut, and
        its files are kept aside."""
        place, _, state = assignment
        if found.topic_id is not None or self.folders.by_path[found.path].promised(place):
            return False
        if place.topic in self.deleted_before or self._was_never_told(state):
            return True
        return not self._partitions.is_counted(state)

    def _was_never_told(self, state: PartitionImage) -> bool:
        """Whether this broker never said in which of its folders the replica lies, as it does when
        a log begins: the topic was made while its machine had no power. With one folder the
        controller fills in the answer by itself: only `deleted_before` can tell then."""
        known = directory_of(state, self._broker.broker_id)
        return known == UNASSIGNED_DIRECTORY and len(self._partitions.directory_ids) > 1

    def _is_missing(self, assignment: Assignment, others: list[Found]) -> bool:
        """Whether a log that was not found may not begin anew now; says why. What was promised in a
        folder that held another topic's log was promised of that one."""
        place, _, state = assignment
        promised = {folder.path: folder.promised(place) for folder in self.folders.working()}
        promised |= dict.fromkeys((each.path for each in others), 0)
        why = self._partitions.why_not_anew(assignment, promised)
        if why:
            sentence = "a partition is offline: its log is missing"
            self._effects.append(Report("error", sentence, place, why=why))
            is_away = bool(self._partitions.offline_folders)
            self._come_to(assignment, HostedEvent.GIVE_UP if is_away else HostedEvent.MISS)
        elif any(promised.values()):
            sentence = "a missing log is copied again"
            self._effects.append(Report("warning", sentence, place, why=f"leader={state.leader}"))
        return bool(why)

    def _answered(self, place: TopicPartition) -> PendingOpen:
        opening = self.opening
        if opening is None or opening.assignment.topic_partition != place:
            raise Bug(f"{place} was opened and nothing asked for it")
        return opening

    def name_taken(self, place: TopicPartition) -> None:
        """Something lies where the log was to begin: set it aside, and ask again, once. What still
        lies there then waits for room, as what is kept from a full disk does."""
        opening = self._answered(place)
        folder = self.folders.by_path[opening.path]
        if folder.fault is not None:
            self._opening_ended(opening, HostedEvent.FOLDER_FAILED)
            return
        if opening.is_second:
            self._waits(opening, folder.room.refusal(place))
            return
        self.opening = opening._replace(is_second=True)
        self._set_aside(opening.path, place, ANOTHER_TOPIC)
        settings = log_config(opening.config, self._broker.config)
        self._effects.append(CreateLog(opening.path, place, opening.assignment.topic_id, settings))

    def opened(self, asked: TopicPartition, log: Log) -> None:
        """The log that was asked for is open: host the replica."""
        opening = self._answered(asked)
        place, topic_id, state = opening.assignment
        folder, is_here = self.folders.by_path[opening.path], opening.found is not None
        if folder.fault is not None:
            log.fail(folder.fault)
            self._opening_ended(opening, HostedEvent.FOLDER_FAILED)
            return
        self._check(place, HostedEvent.OPENED, HostedState.HOSTED)
        self.opening = None
        replica = Replica(
            place,
            topic_id,
            log,
            opening.config,
            broker_id=self._broker.broker_id,
            folder=opening.path,
            high_watermark=folder.high_watermarks.get(place, 0) if is_here else 0,
        )
        log.recall_unreplicated(replica.high_watermark)
        if is_here and log.recovery.cut_bytes:
            sentence = "truncated a log that a crash left incomplete"
            cut_bytes = log.recovery.cut_bytes
            self._effects.append(Report("warning", sentence, place, cut_bytes=cut_bytes))
        replica.take_state(state)
        self._partitions.host(replica)
        self.touch(place)
        self.note_config(replica)
        self._effects.append(TellHosted(replica, is_here))
        if replica.flushed_counts and log.end_offset > log.flushed_offset:
            self._broker.unsynced.add(place)  # what recovery found counts again once it is safe

    def not_opened(self, asked: TopicPartition, fault: StorageFault, now_ms: int) -> None:
        """The kind of fault says whether room, the log or the folder is lost."""
        opening = self._answered(asked)
        place = opening.assignment.topic_partition
        if isinstance(fault, CorruptLog):
            self._opening_ended(opening, HostedEvent.ROT)
            self.report_rot(place, fault)
            self.folders.unclean.add(opening.path)
        elif isinstance(fault, DiskFull):
            if opening.found is None:
                self._effects.append(RemoveLeftover(opening.path, place))
            self.folders.refused(opening.path, fault, now_ms)
            self._waits(opening, fault)
        else:
            self._opening_ended(opening, HostedEvent.FOLDER_FAILED)
            self.folders.failed(opening.path, fault)

    def _waits(self, opening: PendingOpen, fault: DiskFull) -> None:
        """A log waits for room: that of its folder, or that of any."""
        place = opening.assignment.topic_partition
        if place not in self._partitions.roomless:
            self._effects.append(Report("error", "a partition waits for space", place, why=fault))
        self.opening = opening
        self._opening_ended(opening, HostedEvent.NO_ROOM)
        if opening.found is not None:
            self.found[place] = (opening.found,)
        path = ANYWHERE if opening.found is None else opening.path
        self._waiting.setdefault(path, {})[place] = None

    def _opening_ended(self, opening: PendingOpen, happening: HostedEvent) -> None:
        following = after(self.standing(opening.assignment.topic_partition), happening)
        self.opening = None
        self._enter(opening.assignment.topic_partition, opening.assignment.topic_id, following)

    def _come_to(self, assignment: Assignment, happening: HostedEvent) -> None:
        """Something happens to a partition that is not hosted."""
        place, topic_id, _ = assignment
        self._enter(place, topic_id, after(self.standing(place), happening))

    def _enter(self, place: TopicPartition, topic_id: TopicId, standing: HostedState) -> None:
        partitions = self._partitions
        if standing is HostedState.ROOMLESS:
            partitions.wait_for_room(place, topic_id)
        elif standing is HostedState.MISSING:
            partitions.miss(place, topic_id)
        elif standing in (HostedState.ROTTEN, HostedState.OFFLINE):
            partitions.give_up(place, topic_id, is_rotten=standing is HostedState.ROTTEN)
        elif standing is HostedState.ABSENT:
            partitions.no_more(place)

    def _check(self, place: TopicPartition, happening: HostedEvent, expected: HostedState) -> None:
        if after(self.standing(place), happening) is not expected:
            raise Bug(f"{place} does not come to be {expected.value}")

    def leave(self, replica: Replica, happening: HostedEvent) -> None:
        """A hosted replica is hosted no more."""
        place = replica.topic_partition
        following = after(self.standing(place), happening)
        self._partitions.drop(replica)
        self._enter(place, replica.topic_id, following)
        self.flushed_late.pop(place, None)
        self.compacted.pop(place, None)
        self.touch(place)

    def _lost(self, replica: Replica) -> None:
        self.leave(replica, HostedEvent.FOLDER_FAILED)

    def touch(self, place: TopicPartition) -> None:
        """Requests and replication follow."""
        self._broker.changed[place] = None
        self.touched.append(place)

    def report_rot(self, place: TopicPartition, fault: CorruptLog) -> None:
        """Tell an operator of a damaged log."""
        sentence = "a partition is offline: its log is damaged"
        self._effects.append(Report("error", sentence, place, why=fault))

    # Waiting for room.

    def waiting(self) -> Iterator[TopicPartition]:
        """What a full disk kept from being opened, to be tried again now: folder by folder, each
        until the first log that it still refuses. So no folder waits for another, and a full one
        costs one attempt."""
        for path in sorted(self._waiting):
            waiting = self._waiting[path]
            while waiting:
                place = next(iter(waiting))
                if place in self._partitions.roomless and self._waits_in(place) == path:
                    yield place
                    if place in self._partitions.roomless:
                        break
                waiting.pop(place, None)
            else:
                del self._waiting[path]

    def _waits_in(self, place: TopicPartition) -> str:
        found = self.found.get(place)
        return found[0].path if found else ANYWHERE

    def topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        """The settings of a topic in force."""
        return effective_topic_config(image, topic, self._broker.config)
