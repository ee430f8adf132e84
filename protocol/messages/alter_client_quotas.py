"""AlterClientQuotas (API key 49): versions 0-1, flexible from 1.

Sets and removes limits of entities, each entity as a whole or not at all (KIP-546). 1 adds nothing but the flexible
encoding.
"""

from oncelog.protocol.schema import Message, array, boolean, float64, int16, int32, string


class EntityData(Message):
    entity_type: str = string("0+", default="")
    entity_name: str | None = string("0+", default="", nullable="0+")


class OpData(Message):
    key: str = string("0+", default="")
    value: float = float64("0+", default=0.0)
    remove: bool = boolean("0+", default=False)


class EntryData(Message):
    entity: list[EntityData] = array(EntityData, "0+", default_factory=list)
    ops: list[OpData] = array(OpData, "0+", default_factory=list)


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = array(EntryData, "0+", default_factory=list)
    validate_only: bool = boolean("0+", default=False)


class AlteredEntryData(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+", default_factory=list)


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+", default=0)
    entries: list[AlteredEntryData] = array(AlteredEntryData, "0+", default_factory=list)
