"""A transformer block whose scaled_dot_product_attention is flashladder's: one line differs, the logits agree.

    python examples/transformer_block.py            # on a GPU, or small on the emulator

Both blocks are compared with the same block in fp32. flashladder's may differ from it by as much as PyTorch's own does
in 16 bits, times two: what two right kernels may differ by depends on the weights, and this is a measure of it.
"""

from __future__ import annotations

import argparse
import copy
import sys
from typing import Any

import torch
from torch import nn

import flashladder.torch


class Block(nn.Module):
    """Grouped-query attention and a feed-forward part, each after a norm and around a residual."""

    def __init__(self, width: int, heads: int, kv_heads: int, attend: Any) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.attend = heads, kv_heads, attend
        d_head = width // heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * d_head, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.qkv(self.norms[0](x)).unflatten(-1, (self.heads + 2 * self.kv_heads, -1)).transpose(1, 2)
        q, k, v = rows.split([self.heads, self.kv_heads, self.kv_heads], dim=1)  # [batch, heads, seq, d_head]
        o = self.attend(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cuda = torch.cuda.is_available()
    parser.add_argument("--seq", type=int, default=2000 if cuda else 80)
    parser.add_argument("--heads", type=int, default=32 if cuda else 4)
    parser.add_argument("--kv-heads", type=int, default=8 if cuda else 2)
    parser.add_argument("--d-head", type=int, default=128 if cuda else 64)
    parser.add_argument("--compile", action="store_true", help="run flashladder's block through torch.compile")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if cuda else "cpu"
    sizes = (arguments.heads * arguments.d_head, arguments.heads, arguments.kv_heads)
    block = Block(*sizes, attend=nn.functional.scaled_dot_product_attention).to(device, torch.bfloat16).eval()
    ours = copy.deepcopy(block)
    ours.attend = flashladder.torch.scaled_dot_product_attention
    exact = copy.deepcopy(block).float()
    if arguments.compile:
        ours = torch.compile(ours, fullgraph=True)
    x = torch.randn(2, arguments.seq, sizes[0], device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        expected = exact(x.float())
        theirs_off, ours_off = ((model(x).float() - expected).abs().max().item() for model in (block, ours))
    right = ours_off <= 2 * theirs_off
    print(f"largest difference from fp32: PyTorch {theirs_off:.4f}, flashladder {ours_off:.4f}:", end=" ")
    print("they agree" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
