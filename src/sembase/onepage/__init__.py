"""One self-contained HTML page: markup, charts as values, drawn as SVG for the page and as PNG for slides.

Tones are names; who uses the kit gives them colours, in a style sheet for the page and in a table for the pictures.
"""
