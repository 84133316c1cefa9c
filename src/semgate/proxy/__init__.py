"""The telemetry proxy: passes OpenAI traffic through untouched and writes one trace record for each request."""
