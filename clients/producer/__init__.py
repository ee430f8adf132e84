"""Producing: the producer, its settings, and what it gives back. ``producer.py`` says how to use it."""

from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata as FutureRecordMetadata
from oncelog.clients.producer.producer import Producer as Producer
from oncelog.clients.producer.producer_config import ProducerConfig as ProducerConfig
from oncelog.clients.producer.record_metadata import RecordMetadata as RecordMetadata
