"""DescribeClientQuotas (API key 48): versions 0-1, flexible from 1.

The quotas of the entities that a filter selects (KIP-546). 1 adds nothing but the flexible encoding.
"""

from oncelog.protocol.schema import Message, array, boolean, float64, int8, int16, int32, string


class ComponentData(Message):
    entity_type: str = string("0+", default="")
    match_type: int = int8("0+", default=0)
    match: str | None = string("0+", default="", nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = array(ComponentData, "0+", default_factory=list)
    strict: bool = boolean("0+", default=False)


class EntityData(Message):
    entity_type: str = string("0+", default="")
    entity_name: str | None = string("0+", default="", nullable="0+")


class ValueData(Message):
    key: str = string("0+", default="")
    value: float = float64("0+", default=0.0)


class EntryData(Message):
    entity: list[EntityData] = array(EntityData, "0+", default_factory=list)
    values: list[ValueData] = array(ValueData, "0+", default_factory=list)


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", default_factory=list, nullable="0+")
