"""Adapters that turn plans into engine actions, one folder per engine. Here and in ``kv`` an engine may be imported."""
