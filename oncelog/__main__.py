"""``python -m oncelog``: the command ``oncelog``."""

from oncelog.broker.__main__ import main

if __name__ == "__main__":
    main()
