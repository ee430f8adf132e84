"""Imports against the contracts of import-linter and the layers of the design."""

from tests.house.contracts import LAYERS, broken_imports, read_contracts
from tests.house.import_graph import import_graph
from tests.house.sources import REPOSITORY, read_product
from tests.unit.house.parsed import product


def test_broken_imports_forbidden_module_is_returned_under_either_name() -> None:
    imports = import_graph(product(broker__storage__log="import broker.network.frames", broker__network__frames=""))
    for prefix in ("", "oncelog."):
        contract = {
            "type": "forbidden",
            "source_modules": [f"{prefix}broker.storage"],
            "forbidden_modules": [f"{prefix}broker.network", "asyncio"],
        }
        assert broken_imports(imports, [contract]) == [("broker.storage.log", "broker.network.frames")]


def test_broken_imports_layers_contract_returns_arrows_up_and_sideways() -> None:
    imports = import_graph(
        product(
            broker__server="import broker.network.frames",
            broker__network__frames="import broker.storage.disk",
            broker__storage__disk="import broker.server",
        )
    )
    contract = {
        "type": "layers",
        "containers": ["oncelog.broker"],
        "layers": ["server", "network | storage", "(peers)"],
    }
    assert broken_imports(imports, [contract]) == [
        ("broker.network.frames", "broker.storage.disk"),
        ("broker.storage.disk", "broker.server"),
    ]


def test_broken_imports_house_returns_arrows_up_and_sideways() -> None:
    sources = product(protocol__framing="import broker.dispatch", broker__dispatch="import spark_connector.source")
    sources += product(
        spark_connector__source="import clients.connection", clients__connection="import protocol.framing"
    )
    assert broken_imports(import_graph(sources), []) == [
        ("broker.dispatch", "spark_connector.source"),
        ("protocol.framing", "broker.dispatch"),
    ]


def test_layers_are_those_of_the_picture_in_the_design() -> None:
    picture = (REPOSITORY / "docs" / "explanation" / "architecture.md").read_text()
    for layer in LAYERS:
        assert " | ".join(layer) in picture


def test_read_contracts_repository_names_packages_that_exist() -> None:
    names = {source.name for source in read_product()}
    contracts = read_contracts()
    assert contracts
    for contract in contracts:
        for module in contract.get("source_modules", []):
            assert module.removeprefix("oncelog.") in names
