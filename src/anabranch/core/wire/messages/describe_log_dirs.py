"""DescribeLogDirs (API key 35): log folders, their logs and sizes. KIP-113, KIP-827."""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
)


class DescribableLogDirTopic(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(Message, api_key=35, versions="1-4", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, "4+"] = -1
    usable_bytes: Annotated[Int64, "4+"] = -1


class DescribeLogDirsResponse(Message, api_key=35, versions="1-4", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, "3+"] = 0
    results: list[DescribeLogDirsResult] = []
