"""Key and value of a control record."""

from oncelog.protocol.schema import Message, int16, int32


class EndTxnMarker(Message, versions="0", flexible="none"):
    coordinator_epoch: int = int32("0+", default=0)


class ControlRecordTypeSchema(Message, versions="0", flexible="none"):
    type: int = int16("0+", default=0)
