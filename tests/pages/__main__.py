"""Write the generated pages: ``python -m tests.pages``."""

from tests.pages.table import DOCUMENTS, PAGES

if __name__ == "__main__":
    for name, page in PAGES.items():
        path, text = DOCUMENTS / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"docs/{name} is new")
