"""What a person reads of a study: one HTML page, Markdown, CSV and PNG plots."""
