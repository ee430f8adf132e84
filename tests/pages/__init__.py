"""The reference pages of the documentation that are generated from the code.

``python -m tests.pages`` (``make docs-pages``) writes them; ``tests/tidy/test_generated_pages.py`` fails when a page
differs from what the code says. A page is a function that returns its Markdown.
"""
