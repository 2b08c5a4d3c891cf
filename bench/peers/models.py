# GPT-2 and Llama as PyTorch users write them for speed: the shapes that weft is compared on.
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Shape:
    family: str
    layers: int
    heads: int
    hidden: int
    ffn: int
    context: int
    batch: int
    vocab: int
    tied: bool
    bias: bool
    kv_heads: int = 0  # of keys and values; 0: as many as heads


SHAPES = {
    "gpt": Shape("gpt2", 6, 6, 384, 4 * 384, 256, 12, 65, True, True),
    "llama": Shape("llama", 8, 8, 512, 1376, 512, 4, 32000, False, False),
    "gpt2-124m": Shape("gpt2", 12, 12, 768, 4 * 768, 64, 4, 50257, True, True),
    "nanogpt-cpu": Shape("gpt2", 4, 4, 128, 4 * 128, 64, 12, 65, True, False),
    "gpt2-1.5b": Shape("gpt2", 48, 25, 1600, 4 * 1600, 1024, 4, 50257, True, True),
    "llama-1b": Shape("llama", 22, 32, 2048, 5632, 1024, 4, 32000, False, False, 4),
    "llama-3.2-3b": Shape("llama", 28, 24, 3072, 8192, 1024, 4, 128256, True, False, 8),
    "llama-3-8b": Shape("llama", 32, 32, 4096, 14336, 1024, 4, 128256, False, False, 8),
}


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.kv_heads, self.dim = s.heads, s.kv_heads or s.heads, s.hidden // s.heads
        self.qkv = nn.Linear(s.hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=s.bias)
        self.out = nn.Linear(s.hidden, s.hidden, bias=s.bias)

    def forward(self, x, rope):
        b, t, h = x.shape
        rows = self.qkv(x).view(b, t, -1, self.dim).transpose(1, 2)
        q, k, v = rows.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        return self.out(y.transpose(1, 2).reshape(b, t, h))


def rotate(x, rope):
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class GeluMlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.up = nn.Linear(s.hidden, s.ffn, bias=s.bias)
        self.out = nn.Linear(s.ffn, s.hidden, bias=s.bias)

    def forward(self, x):
        return self.out(F.gelu(self.up(x), approximate="tanh"))


class SwigluMlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_up = nn.Linear(s.hidden, 2 * s.ffn, bias=False)
        self.out = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        norm = (lambda: nn.RMSNorm(s.hidden, eps=1e-5)) if s.family == "llama" else (
            lambda: nn.LayerNorm(s.hidden, bias=s.bias))
        self.norm1, self.norm2 = norm(), norm()
        self.attention = Attention(s)
        self.mlp = SwigluMlp(s) if s.family == "llama" else GeluMlp(s)

    def forward(self, x, rope):
        x = x + self.attention(self.norm1(x), rope)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.shape = s
        self.embed = nn.Embedding(s.vocab, s.hidden)
        self.position = nn.Embedding(s.context, s.hidden) if s.family == "gpt2" else None
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.RMSNorm(s.hidden, eps=1e-5) if s.family == "llama" else nn.LayerNorm(s.hidden, bias=s.bias)
        self.head = nn.Linear(s.hidden, s.vocab, bias=False)
        self.apply(self.initialise)
        for name, p in self.named_parameters():
            if name.endswith("out.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * s.layers))
        if s.tied:
            self.head.weight = self.embed.weight
        half = s.hidden // s.heads // 2
        angles = torch.arange(s.context)[:, None] / 10000 ** (torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @staticmethod
    def initialise(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    # ids and targets: [B, T]; mean loss in nats per token.
    def forward(self, ids, targets, fused_loss=False):
        t = ids.shape[1]
        x = self.embed(ids)
        if self.position is not None:
            x = x + self.position.weight[:t]
        rope = None if self.position is not None else (self.cos[:t], self.sin[:t])
        for block in self.blocks:
            x = block(x, rope)
        x = self.norm(x)
        if fused_loss:
            return F.linear_cross_entropy(x.flatten(0, 1), self.head.weight, targets.flatten())
        return self.loss(x, targets)

    def loss(self, x, targets):
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.flatten())


def parameter_groups(model, weight_decay):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
