"""The telemetry proxy: passes OpenAI traffic through unchanged and writes one trace record per request."""
