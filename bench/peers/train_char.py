# Trains nanoGPT's CPU configuration with PyTorch and prints the mean loss over the whole validation part: the
# reference that weft's own run is held against.
import argparse
import contextlib
import json
import math
import time

import torch

from models import SHAPES, Model, parameter_groups


def learning_rate(step, steps, peak=1e-3, low=1e-4, warmup=100):
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    share = (step - warmup) / (steps - warmup)
    return low + 0.5 * (1 + math.cos(math.pi * share)) * (peak - low)


# Mean over all windows of `context` characters that follow each other without overlap.
@torch.no_grad()
def whole_loss(model, data, context, autocast):
    count = (len(data) - 1) // context
    x = data[: count * context].view(count, context)
    y = data[1: count * context + 1].view(count, context)
    total = 0.0
    for i in range(0, count, 64):
        with autocast:
            loss = model(x[i: i + 64], y[i: i + 64])
        total += loss.item() * len(x[i: i + 64])
    return total / count


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("text", help="a text file; its first 90%% is trained on, the rest is held out")
    p.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1337)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    text = open(args.text, encoding="utf-8").read()
    letters = sorted(set(text))
    number = {c: i for i, c in enumerate(letters)}
    data = torch.tensor([number[c] for c in text])
    cut = int(0.9 * len(data))
    train, valid = data[:cut], data[cut:]

    s = SHAPES["nanogpt-cpu"].__class__(**{**SHAPES["nanogpt-cpu"].__dict__, "vocab": len(letters)})
    model = Model(s)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), betas=(0.9, 0.99))
    autocast = (torch.autocast("cpu", dtype=torch.bfloat16) if args.precision == "bf16"
                else contextlib.nullcontext())
    begin = time.perf_counter()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps)
        starts = torch.randint(len(train) - s.context, (s.batch,))
        windows = torch.stack([train[i: i + s.context + 1] for i in starts])
        with autocast:
            loss = model(windows[:, :-1], windows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - begin
    print(json.dumps({
        "peer": "pytorch", "version": torch.__version__, "shape": "nanogpt-cpu", "precision": args.precision,
        "steps": args.steps, "seed": args.seed, "parameters": sum(p.numel() for p in model.parameters()),
        "train_loss": round(loss.item(), 4),
        "valid_loss": round(whole_loss(model, valid, s.context, autocast), 4), "seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
