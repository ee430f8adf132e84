"""The safeguards of messages of formats 0 and 1, and of the clients that know no others."""

from typing import Final

from tests.mutations.mutation import Mutation

_OLD_CLIENTS: Final = "tests/unit/broker/handlers/test_old_clients.py"
_UP: Final = "tests/unit/protocol/records/test_up_conversion.py"
_DOWN: Final = "tests/unit/protocol/records/test_down_conversion.py"
_DOWN_CONVERSION: Final = "protocol/records/down_conversion.py"
_UP_CONVERSION: Final = "protocol/records/up_conversion.py"

OLD_FORMAT_MUTATIONS: Final = (
    Mutation(
        "B142", "broker/handlers/fetch.py",
        "isolation = FetchIsolation.TXN_COMMITTED if is_committed else", "isolation = 0 or",
        f"{_OLD_CLIENTS}::test_old_consumer_sees_neither_open_nor_aborted_records",
    ),
    Mutation(
        "B142", _DOWN_CONVERSION,
        "if self._aborted.shows(batches, position, header) and header.records_count:", "if header.records_count:",
        f"{_DOWN}::test_range_of_markers_only_says_where_to_read_on",
    ),
    Mutation(
        "B142", "broker/handlers/old_fetch.py",
        "if is_complete or now >= deadline:", "if is_complete or True:",
        f"{_OLD_CLIENTS}::test_fetch_reads_on_behind_a_range_without_data",
    ),
    Mutation(
        "B142", "broker/handlers/old_fetch.py",
        "            self._consumer.skip(key, skipped)\n", "",
        f"{_OLD_CLIENTS}::test_range_without_data_ends_although_another_partition_always_has_some",
    ),
    Mutation(
        "B142", "broker/dispatch/old_consumer.py",
        "skipped[:2] == (leader_epoch, fetch_offset)", "skipped[1] == fetch_offset",
        f"{_OLD_CLIENTS}::test_skipped_range_is_forgotten_with_its_leader_and_another_offset",
    ),
    Mutation(
        "B143", "protocol/records/old_messages.py",
        "if crc != zlib.crc32(memoryview(buffer)[at + _CRC_SIZE : end]):", "if False:",
        f"{_UP}::test_changed_bit_never_becomes_another_record",
    ),
    Mutation(
        "B143", _UP_CONVERSION,
        "        if message.magic != self._magic:\n", "        if False:\n",
        f"{_UP}::test_bad_set_is_refused_with_the_code_of_kafka",
    ),
    Mutation(
        "B143", _UP_CONVERSION,
        "        if message.codec:\n", "        if False:\n",
        f"{_UP}::test_bad_set_is_refused_with_the_code_of_kafka",
    ),
    Mutation(
        "B143", "broker/handlers/produce.py",
        "_transactional_batches(batches) if self._context.api_version >= _FIRST_VERSION_WITH_BATCHES else ()",
        "_transactional_batches(batches)",
        f"{_OLD_CLIENTS}::test_message_whose_bytes_look_like_a_transactional_batch_is_none",
    ),
    Mutation(
        "B144", _UP_CONVERSION,
        "            if size > self._most:\n                raise BatchTooLarge\n", "",
        f"{_UP}::test_message_that_says_it_is_large_is_refused_before_its_bytes_are_gathered",
    ),
    Mutation(
        "B144", _DOWN_CONVERSION,
        "            if self._is_full:\n                return\n", "",
        f"{_DOWN}::test_many_records_in_a_small_batch_are_converted_in_slices_and_in_part",
    ),
    Mutation(
        "B144", _DOWN_CONVERSION,
        "        if length > self._most:\n", "        if False:\n",
        f"{_DOWN}::test_bomb_is_an_error_and_takes_its_work_in_slices",
    ),
    Mutation(
        "B144", "broker/handlers/old_fetch.py",
        "request.max_bytes = min(request.max_bytes, _MOST_BYTES)", "request.max_bytes = request.max_bytes",
        f"{_OLD_CLIENTS}::test_large_request_gets_a_bounded_response",
    ),
)  # fmt: skip
