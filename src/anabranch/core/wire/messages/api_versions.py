"""ApiVersions (API key 18): which requests a node answers, in which versions. KIP-511, KIP-584."""

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


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: Annotated[String, "3+"] = ""
    client_software_version: Annotated[String, "3+"] = ""


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: Annotated[String, "3+"] = ""
    min_version: Annotated[Int16, "3+"] = 0
    max_version: Annotated[Int16, "3+"] = 0


class FinalizedFeatureKey(Struct):
    name: Annotated[String, "3+"] = ""
    max_version_level: Annotated[Int16, "3+"] = 0
    min_version_level: Annotated[Int16, "3+"] = 0


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    supported_features: Annotated[list[SupportedFeatureKey], "3+", "tag 0"] = []
    finalized_features_epoch: Annotated[Int64, "3+", "tag 1"] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], "3+", "tag 2"] = []
    zk_migration_ready: Annotated[Bool, "3+", "tag 3"] = False
