# Looks for PyTorch's best settings shape by shape, one change at a time, and prints every measurement as a JSON line.
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Tried in turn; what helps is kept for the ones after it.
CHOICES = [
    ["--mkl=avx512"],
    ["--allocator=tcmalloc", "--allocator=jemalloc", "--allocator=glibc"],
    ["--no-fused-adamw"],
    ["--compile"],
    ["--fused-loss"],
]


def measure(shape, precision, ranks, settings, steps):
    command = [sys.executable, os.path.join(HERE, "train_step.py"), "--shape", shape, "--precision", precision,
               "--processes", str(ranks), "--threads", "1" if ranks > 1 else "2", "--steps", str(steps), *settings]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command[1:])}: failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    result = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(result), flush=True)
    return result


def search(shape, precisions, ranks, steps):
    best, best_settings = None, []
    for precision in precisions:
        settings = []
        kept = measure(shape, precision, ranks, settings, steps)
        for alternatives in CHOICES:
            for change in alternatives:
                tried = measure(shape, precision, ranks, settings + [change], steps)
                if tried and (kept is None or tried["step_ms"] < 0.99 * kept["step_ms"]):
                    kept, settings = tried, settings + [change]
        if kept and (best is None or kept["step_ms"] < best["step_ms"]):
            best, best_settings = kept, settings
    if best:
        print(json.dumps({"best": True, "settings": best_settings, **best}), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--shapes", nargs="+", default=["gpt", "llama", "gpt2-124m"])
    p.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"],
                   help="bf16 is the better one of autocast and bf16 weights with fp32 masters")
    p.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    p.add_argument("--steps", type=int, default=12)
    args = p.parse_args()
    for shape in args.shapes:
        for precision in args.precisions:
            for ranks in args.processes:
                if ranks > 1 and shape == "gpt2-124m":
                    continue
                search(shape, ["bf16", "bf16-weights"] if precision == "bf16" else ["fp32"], ranks, args.steps)


if __name__ == "__main__":
    main()
