"""Reports: results, verdicts and engine summaries in, one self-contained HTML page (and PNGs) out."""
