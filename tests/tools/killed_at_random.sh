#!/bin/bash
# kill -9 of a random rank at random moments: every restart goes on from a valid checkpoint, and the run ends with the
# bits of one that was never disturbed. Ranks are threads, or processes of mpirun when HOSTS is given.
# Usage: killed_at_random.sh WEFT TEXT_FOLDER KILLS STEPS [HOSTS]
set -u
weft=$(realpath "$1") text=$(realpath "$2") kills=$3 steps=$4 hosts=${5:-}
[ -z "$hosts" ] || command -v mpirun > /dev/null || { echo "there is no mpirun"; exit 77; }
work=$(mktemp -d)
trap 'kill %1 2> /dev/null; rm -rf "$work"' EXIT
cat > "$work/recipe.toml" << RECIPE
[model]
family = "llama"
layers = 2
hidden = 32
heads = 4
[data]
train = "$text"
[train]
steps = $steps
seq_len = 32
global_batch = 4
[mesh]
dp = 2
zero = 1
[checkpoint]
every = 10
keep = 2
RECIPE

"$weft" train "$work/recipe.toml" --log.dir="$work/calm" > /dev/null 2>&1 || { echo "the undisturbed run failed"; exit 1; }
"$weft" train "$work/recipe.toml" --log.dir="$work/wild" --restarts 100000 --give-up-after 1000 --restart-pause 0 \
  ${hosts:+--hosts "$hosts"} > "$work/out" 2> "$work/err" &
job=$!

# Each kill waits for a step drawn at random, the later the kill the further it may lie, so that none comes after the end;
# one whose step has passed falls into the start or the recovery of the ranks.
step() {
  local reached
  reached=$(tail -n 1 "$work/wild/metrics.jsonl" 2> /dev/null | grep -o '"step":[0-9]*' | cut -d: -f2)
  echo "${reached:-0}"
}
killed=0
while [ $killed -lt "$kills" ] && kill -0 $job 2> /dev/null; do
  goal=$((RANDOM * (killed + 1) * steps / (kills + 4) / 32768))
  while [ "$(step)" -lt $goal ] && kill -0 $job 2> /dev/null; do sleep 0.01; done
  sleep 0.0$((RANDOM % 10))
  mapfile -t ranks < <(pgrep -f "^$weft train $work/wild/supervised.toml")
  [ ${#ranks[@]} -gt 0 ] || continue
  kill -9 "${ranks[RANDOM % ${#ranks[@]}]}" 2> /dev/null && killed=$((killed + 1))
done
wait $job || { echo "the killed run failed:"; tail -5 "$work/err"; exit 1; }

restarts=$(wc -l < "$work/wild/restarts.jsonl")
echo "$killed kills, $restarts restarts, $(grep -c 'is not used' "$work/err") checkpoints rejected"
[ $killed -eq "$kills" ] || { echo "the run ended before all $kills kills: give it more steps"; exit 1; }
[ "$restarts" -gt 0 ] || { echo "nothing was restarted"; exit 1; }
last=$(printf 'step-%06d' "$steps")
for file in "$work/calm/checkpoints/$last"/{model,optimizer}*.safetensors; do
  cmp "$file" "$work/wild/checkpoints/$last/$(basename "$file")" || { echo "$file differs"; exit 1; }
done
echo "the weights and the optimizer's state are those of the undisturbed run, to the bit"
