# Times PyTorch's training step on one of the shapes and prints one JSON object; run.py looks for its best settings.
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--shape", default="gpt", help="of models.py")
    p.add_argument("--batch", type=int, default=0, help="rows of a step; 0: the shape's own")
    p.add_argument("--micro-batches", type=int, default=1, help="parts of a process's rows, whose gradients add up")
    p.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "bf16-weights", "bf16-all"],
                   help="bf16 is autocast; bf16-weights keeps bf16 weights beside fp32 masters; bf16-all keeps nothing "
                   "in fp32, the moments of AdamW neither")
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--threads", type=int, default=2, help="per process")
    p.add_argument("--processes", type=int, default=1, help="data-parallel ranks over gloo; they share the batch")
    p.add_argument("--compile", nargs="?", const="model", choices=["model", "blocks"],
                   help="blocks: each block by itself, as torchtitan does, and the loss; compiles once for all of them")
    p.add_argument("--fused-adamw", action=argparse.BooleanOptionalAction, default=True)
    p.add_argument("--fused-loss", action="store_true", help="linear_cross_entropy instead of head and cross_entropy")
    p.add_argument("--allocator", default="mapped", choices=["glibc", "mapped", "tcmalloc", "jemalloc"],
                   help="mapped: glibc told to keep freed memory")
    p.add_argument("--mkl", default="shipped", choices=["shipped", "avx512"],
                   help="avx512: on AMD, let MKL take the kernels that it keeps for Intel")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--warmup", type=int, default=3)
    return p.parse_args()


# The settings that PyTorch reads before it starts.
def environment(args):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), TOKENIZERS_PARALLELISM="false", WEFT_PEER="ready")
    env.setdefault("OMP_PROC_BIND", "false" if args.processes > 1 else "true")
    preload = []
    if args.allocator == "mapped":
        env.update(MALLOC_TRIM_THRESHOLD_="-1", MALLOC_MMAP_THRESHOLD_=str(1 << 40), MALLOC_TOP_PAD_=str(64 << 20))
    elif args.allocator != "glibc":
        name = {"tcmalloc": "libtcmalloc_minimal.so.4", "jemalloc": "libjemalloc.so.2"}[args.allocator]
        preload.append(name)
    if args.mkl == "avx512":
        preload.append(mkl_shim())
    if preload:
        env["LD_PRELOAD"] = ":".join(preload)
    return env


def mkl_shim():
    path = os.path.join(tempfile.gettempdir(), f"weft-peers-mkl-{os.getuid()}.so")
    if not os.path.exists(path):
        source = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source.encode(), check=True)
    return path


def launch(args):
    env = environment(args)
    command = [sys.executable, *sys.argv]
    if args.processes == 1:
        os.execve(sys.executable, command, env)
    env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), WORLD_SIZE=str(args.processes))
    ranks = [subprocess.Popen(command, env=dict(env, RANK=str(r))) for r in range(args.processes)]
    return max(rank.wait() for rank in ranks)


class Masters:
    """fp32 copies of bf16 weights, on which AdamW works."""

    def __init__(self, model):
        import torch
        self.foreach_copy = torch._foreach_copy_
        self.weights = list(model.parameters())
        self.masters = [w.detach().float().requires_grad_() for w in self.weights]
        for m in self.masters:
            m.grad = m.detach().clone()

    def gradients_up(self):
        self.foreach_copy([m.grad for m in self.masters], [w.grad for w in self.weights])

    def weights_down(self):
        import torch
        with torch.no_grad():
            self.foreach_copy(self.weights, self.masters)


def measure(args):
    import torch
    import torch.distributed as dist

    from models import SHAPES, Model

    torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    ranks, rank = args.processes, int(os.environ.get("RANK", 0))
    if ranks > 1:
        dist.init_process_group("gloo")
    s = SHAPES[args.shape]
    batch = (args.batch or s.batch) // ranks
    with torch.device(args.device):
        model = Model(s)
    masters = None
    if args.precision in ("bf16-weights", "bf16-all"):
        model = model.bfloat16()
    if args.precision == "bf16-weights":
        masters = Masters(model)
    parameters = masters.masters if masters else list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=args.fused_adamw, foreach=not args.fused_adamw)
    if args.compile == "blocks":
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    if args.compile == "model":
        model = torch.compile(model)
    if batch % args.micro_batches or (ranks > 1 and args.micro_batches > 1):
        sys.exit(f"{batch} rows of one of {ranks} processes: --micro-batches divides them, and is for one process")
    ids = torch.randint(s.vocab, (args.micro_batches, batch // args.micro_batches, s.context + 1), device=args.device)
    autocast = (torch.autocast(args.device, dtype=torch.bfloat16) if args.precision == "bf16"
                else contextlib.nullcontext())

    seconds = []
    for _ in range(args.warmup + args.steps):
        if ranks > 1:
            dist.barrier()
        begin = time.perf_counter()
        for rows in ids:
            with autocast:
                loss = model(rows[:, :-1], rows[:, 1:], args.fused_loss)
            (loss / len(ids)).backward()
        if masters:
            masters.gradients_up()
        optimizer.step()
        if masters:
            masters.weights_down()
        model.zero_grad(set_to_none=ranks == 1)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[args.warmup:])
    if rank == 0:
        print(json.dumps({
            "peer": "pytorch", "version": torch.__version__, "shape": args.shape, "precision": args.precision,
            "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu", "batch": ranks * batch,
            "micro_batches": args.micro_batches,
            "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if args.device == "cuda" else None,
            "processes": ranks, "threads": args.threads, "step_ms": round(1e3 * step, 2),
            "best_step_ms": round(1e3 * min(seconds[args.warmup:]), 2),
            "tokens_per_s": round(ranks * batch * s.context / step), "steps": args.steps,
            "compile": args.compile, "fused_adamw": args.fused_adamw, "fused_loss": args.fused_loss,
            "allocator": args.allocator, "mkl": args.mkl, "loss": round(loss.item(), 4)}), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    args = arguments()
    if os.environ.get("WEFT_PEER") == "ready":
        measure(args)
    else:
        sys.exit(launch(args))
