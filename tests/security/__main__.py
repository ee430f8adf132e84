"""``make security``: tries all cells and prints how many have passed, by kind; those that have not, one by one."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.security.authentication_cells import authentication_cells
from tests.security.authorization_cells import authorization_cells
from tests.security.cell import Cell, NotTried
from tests.security.foreign_lists_cells import foreign_lists_cells
from tests.security.hostile_cells import bomb_cells, log_cells, name_cells
from tests.security.jwt_cells import jwt_cells
from tests.security.login_cells import login_cells
from tests.security.recorded_cells import recorded_cells
from tests.security.session_cells import session_cells
from tests.security.tls_cells import tls_cells
from tests.security.token_cells import token_cells

KINDS: dict[str, Callable[[Path], list[Cell]]] = {
    "states of authentication": authentication_cells,
    "authorization": authorization_cells,
    "recorded responses of Kafka": recorded_cells,
    "recorded responses, lists of Kafka 3.9": foreign_lists_cells,
    "handshakes of TLS": tls_cells,
    "logins": login_cells,
    "tokens of OAUTHBEARER": jwt_cells,
    "delegation tokens": token_cells,
    "ends of sessions": session_cells,
    "hostile names": name_cells,
    "lines of the log": log_cells,
    "decompression bombs": bomb_cells,
}


def main(wanted: list[str]) -> int:
    tried = failed = 0
    for name, kind in KINDS.items():
        if wanted and not any(word in name for word in wanted):
            continue
        try:
            with tempfile.TemporaryDirectory() as directory:
                cells = kind(Path(directory))
        except NotTried as reason:
            print(f"{name}: not tried, as {reason}", flush=True)
            continue
        wrong = [cell for cell in cells if not cell.has_passed]
        print(f"{name}: {len(cells)} cells tried, {len(cells) - len(wrong)} passed", flush=True)
        for cell in wrong:
            print(f"  {cell.name}: {cell.found}, expected {cell.expected}", flush=True)
        tried += len(cells)
        failed += len(wrong)
    print(f"together: {tried} cells tried, {tried - failed} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
