#!/bin/sh
# Entry point of the image: what was compiled while it was built goes to where numba may write, then the command runs.
set -eu
if [ ! -e "$NUMBA_CACHE_DIR" ]; then
    cp -R "$COMPILED_DIR" "$NUMBA_CACHE_DIR.part"
    mv "$NUMBA_CACHE_DIR.part" "$NUMBA_CACHE_DIR"
fi
exec kvmend "$@"
