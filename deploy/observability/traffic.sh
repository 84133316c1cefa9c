#!/bin/sh
# Traffic with repeated passages for the server at TARGET, in rounds: one workload is drawn, sent, then the next.
set -eu
manifest=$(mktemp) result=$(mktemp)
seed=${SEED:-0}
rounds=${ROUNDS:-0}  # 0: without end
done=0
while [ "$rounds" -eq 0 ] || [ "$done" -lt "$rounds" ]; do
    kvmend bench build --profile fixture --seed "$seed" --output "$manifest"
    kvmend bench run-load --base-url "$TARGET" --manifest "$manifest" --rate "$TRAFFIC_RATE" \
        --duration "$TRAFFIC_SECONDS" --max-tokens 32 --output "$result"
    seed=$((seed + 1)) done=$((done + 1))
done
