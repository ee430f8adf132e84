"""What decides has no loop, socket, clock or chance of its own."""

import ast
from pathlib import Path

import pytest

import oncelog.clients.producer

PURE = (
    "batch_delivery",
    "coordinator_requests",
    "open_transaction",
    "partition_sequences",
    "partitioner",
    "pending_requests",
    "produce_requests",
    "producer_batch",
    "producer_config",
    "producer_id_and_epoch",
    "producer_sequences",
    "producer_state",
    "record_accumulator",
    "record_metadata",
    "request_effects",
    "transaction_manager",
    "transaction_requests",
    "transactional_calls",
    "transactional_result",
)
BANNED = {"asyncio", "socket", "time", "os", "logging"}


@pytest.mark.parametrize("name", PURE)
def test_pure_module_imports_nothing_that_acts(name: str) -> None:
    tree = ast.parse((Path(oncelog.clients.producer.__file__).parent / f"{name}.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {module.split(".")[0] for module in imported} & BANNED
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
