"""The whole walk on a real server: record, estimate, build, prove, report; predicted against measured saving."""
