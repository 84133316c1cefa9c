"""The SGLang adapter. Importing this package imports no engine; SGLang loads ``plugin`` by its entry point."""
