"""``python -m oncelog``: the command ``oncelog``."""

from oncelog.clients.cli.missing_package import missing_package_explained

with missing_package_explained():
    from oncelog.broker.__main__ import main

if __name__ == "__main__":
    main()
