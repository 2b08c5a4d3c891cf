#!/bin/bash
# One training job across two "machines": network namespaces joined by a bridge. Then its model is served by a replica on
# each, behind one address. Then training with the link cut in the midst: the watchdog must end the job and say who waits for whom. Needs root and iproute2; exits 77 where it cannot run.
# Usage: two_machines.sh WEFT TEXT_FOLDER
set -u
weft=$(realpath "$1") text=$(realpath "$2")
[ "$(id -u)" = 0 ] && command -v ip > /dev/null && command -v mpirun > /dev/null || { echo "needs root, ip and mpirun"; exit 77; }
work=$(mktemp -d) id=$$
bridge=wb$((id % 100000)) first=wa$id second=wc$id
subnet=10.$((200 + id % 50)).$((id / 50 % 250))

clean() {
  for space in $first $second; do ip netns pids $space 2> /dev/null | xargs -r kill -9; done
  ip netns del $first 2> /dev/null; ip netns del $second 2> /dev/null; ip link del $bridge 2> /dev/null
  rm -rf "$work"
}
trap clean EXIT
join() { # NAMESPACE NUMBER
  ip netns add "$1" && ip link add "$bridge-$2" type veth peer name eth0 netns "$1" &&
    ip link set "$bridge-$2" master $bridge up && ip -n "$1" addr add $subnet.$2/24 dev eth0 &&
    ip -n "$1" link set eth0 up && ip -n "$1" link set lo up
}
ip link add $bridge type bridge && ip link set $bridge up && join $first 1 && join $second 2 ||
  { echo "cannot make network namespaces here"; exit 77; }

# What mpirun takes for ssh: runs a command in the namespace of a host.
cat > "$work/agent" << AGENT
#!/bin/bash
while [[ \$1 == -* ]]; do case \$1 in -l | -p | -o) shift 2 ;; *) shift ;; esac; done
host=\$1; shift
[ "\${host##*.}" = 1 ] && space=$first || space=$second
exec ip netns exec \$space unshare --uts sh -c "hostname \$space; \$*"
AGENT
chmod +x "$work/agent"
cat > "$work/recipe.toml" << RECIPE
[model]
family = "llama"
layers = 2
hidden = 64
heads = 4
[data]
train = "$text"
[train]
steps = 12
seq_len = 64
global_batch = 8
[mesh]
dp = 2
RECIPE

launch() { # arguments of weft
  ip netns exec $first unshare --uts sh -c "hostname $first; exec \"\$@\"" sh mpirun --allow-run-as-root --bind-to none \
    --host $subnet.1,$subnet.2 -n 2 --mca plm_rsh_agent "$work/agent" --mca btl_tcp_if_include $subnet.0/24 \
    --mca oob_tcp_if_include $subnet.0/24 --mca pml ob1 --mca btl tcp,self "$weft" "$@"
}

echo "== two machines train one model"
launch train "$work/recipe.toml" --log.dir="$work/two" --json > "$work/two.json" 2> "$work/two.log" || { cat "$work/two.log"; exit 1; }
"$weft" train "$work/recipe.toml" --mesh dp=1 --log.dir="$work/one" --json > "$work/one.json" 2> /dev/null || exit 1
loss() { sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$1"; }
echo "loss on two machines $(loss "$work/two.json"), on one rank $(loss "$work/one.json")"
awk -v a="$(loss "$work/two.json")" -v b="$(loss "$work/one.json")" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= 1e-5 * b) }' ||
  { echo "they differ"; exit 1; }

echo "== two machines serve one model"
launch serve "$work/two" --mesh dp=2 --port 8000 --kv-cache 1MiB --json > "$work/serve.log" 2>&1 &
job=$!
for _ in $(seq 300); do grep -q '"ready"' "$work/serve.log" && break; sleep 0.1; done
ip netns exec $first "$weft" bench serve --url http://127.0.0.1:8000/v1 --requests 16 --concurrency 8 --input-tokens 8 \
  --output-tokens 8 --json > "$work/load.json" || { cat "$work/serve.log"; exit 1; }
grep -q '"complete":16' "$work/load.json" || { cat "$work/load.json"; exit 1; }
for process in $(ip netns pids $first); do
  [ "$(readlink /proc/$process/exe)" = "$weft" ] && kill -TERM $process
done
wait $job || { echo "the server did not end as told"; cat "$work/serve.log"; exit 1; }

echo "== the link is cut"
launch train "$work/recipe.toml" --train.steps=100000 --log.dir="$work/cut" --timeout 5 > "$work/cut.log" 2>&1 &
job=$!
for _ in $(seq 300); do [ -s "$work/cut/metrics.jsonl" ] && break; sleep 0.1; done
[ -s "$work/cut/metrics.jsonl" ] || { echo "the job did not start"; cat "$work/cut.log"; exit 1; }
ip link set "$bridge-2" down
for _ in $(seq 300); do grep -qE "did not come within|nothing came within" "$work/cut.log" && break; sleep 0.1; done
grep -E "did not come within|nothing came within" "$work/cut.log" || { echo "no report of the watchdog:"; cat "$work/cut.log"; exit 1; }
# Both ranks are gone, whatever the launcher thinks of a host that it cannot reach.
left=2
for _ in $(seq 200); do
  left=$(pgrep -f "^$weft train $work/recipe.toml" | wc -l)
  [ "$left" = 0 ] && break
  sleep 0.1
done
disown $job; kill -9 $job 2> /dev/null
[ "$left" = 0 ] || { echo "$left ranks still run"; pkill -9 -f "^$weft train $work/recipe.toml"; exit 1; }
