"""Producing: the producer, its settings, and what it gives back. ``producer.py`` says how to use it."""

from clients.producer.future_record_metadata import FutureRecordMetadata as FutureRecordMetadata
from clients.producer.producer import Producer as Producer
from clients.producer.producer_config import ProducerConfig as ProducerConfig
from clients.producer.record_metadata import RecordMetadata as RecordMetadata
