"""The levels of the broker's loggers: what DescribeConfigs and IncrementalAlterConfigs of BROKER_LOGGER work on.

A logger is named like the module that writes by it (``oncelog.broker.start``), a package stands for all of its
modules, and ``root`` for everything. A level that is set holds until it is changed or the broker stops; it is not kept
(KIP-412). Levels have Kafka's names.
"""

import logging
from collections.abc import Sequence
from typing import Final

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.config_changes import ConfigOperation, OperationType
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

ROOT: Final = "root"
_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def level_names() -> dict[str, str]:
    """Return the level in force of every logger, by the logger's name."""
    names = [ROOT, *sorted(logging.root.manager.loggerDict)]
    return {name: _name_of(_logger(name).getEffectiveLevel()) for name in names}


def alter_levels(operations: Sequence[ConfigOperation], *, validate_only: bool) -> ApiError:
    """Set and unset levels: all of them, or none if one is refused."""
    for operation in operations:
        error = _why_refused(operation)
        if error is not None:
            return error
    if not validate_only:
        for operation in operations:
            _apply(operation)
    return NO_ERROR


def _why_refused(operation: ConfigOperation) -> ApiError | None:
    name, level = operation.key, operation.value
    if operation.type in (OperationType.APPEND, OperationType.SUBTRACT):
        what = operation.type.name
        return ApiError(ErrorCode.INVALID_REQUEST, f"{what} operation is not allowed for the BROKER_LOGGER resource")
    if name != ROOT and name not in logging.root.manager.loggerDict:
        return ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation.type is OperationType.SET and level is None:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
    if operation.type is OperationType.DELETE:
        if name == ROOT:
            return ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
        return None
    if level not in _LEVELS:
        return ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}",
        )
    return None


def _apply(operation: ConfigOperation) -> None:
    name, level = operation.key, operation.value
    if operation.type is OperationType.DELETE or level is None:
        _logger(name).setLevel(logging.NOTSET)
        logger.warning("Unset the log level of %s", name)
    else:
        _logger(name).setLevel(_LEVELS[level])
        logger.warning("Updated the log level of %s to %s", name, level)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _name_of(level: int) -> str:
    """Return the name of the highest level that this one includes."""
    return next((name for name, number in _LEVELS.items() if level <= number), "FATAL")
