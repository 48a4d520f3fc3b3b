#!/usr/bin/env python3
"""Train a small model twice from the same start: with flashladder's attention, and with PyTorch's own.

    python3 examples/train.py                  # both losses every 20 steps; status 1 where the curves part
    python3 examples/train.py losses.json      # and all of them as a file

The model is a decoder of bytes, of the Markdown files of docs/. It trains in bfloat16 with AdamW: 300 steps on a GPU.
In host memory flashladder runs on the emulator, so model and steps are small there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flashladder.torch import scaled_dot_product_attention

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
LAYERS, WIDTH, HEADS, KV_HEADS = (6, 512, 4, 2) if CUDA else (1, 128, 2, 1)
BATCH, LENGTH, STEPS, EACH = (16, 1024, 300, 20) if CUDA else (2, 48, 6, 1)
NEAR = 0.02  # of the loss: how far two runs may be apart, in the mean of the last tenth of the steps


class Block(nn.Module):
    """Attention and a multilayer perceptron, each added to its normalized input."""

    def __init__(self, attend: object) -> None:
        super().__init__()
        self.attend, self.d_head = attend, WIDTH // HEADS
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * self.d_head, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.qkv(self.norm_1(x)).unflatten(-1, (-1, self.d_head)).transpose(1, 2)
        q, k, v = rows.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        seen = self.attend(q, k, v, is_causal=True, enable_gqa=True)  # type: ignore[operator]
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class Model(nn.Module):
    """Bytes to the logits of the next ones."""

    def __init__(self, attend: object) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block(attend) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device)
        return self.head(self.blocks(self.embed(x) + self.position(at)))


def text() -> Tensor:
    files = sorted((Path(__file__).resolve().parent.parent / "docs").rglob("*.md"))
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in files)), dtype=torch.uint8)


def train(name: str, attend: object) -> list[float]:
    """The loss of each step: the same start and the same bytes in every call."""
    torch.manual_seed(0)
    data, model = text(), Model(attend).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
    losses = []
    for step in range(STEPS):
        first = torch.randint(len(data) - LENGTH, (BATCH, 1))
        rows = data[first + torch.arange(LENGTH + 1)].long().to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % EACH == 0 or step == STEPS - 1:
            print(f"{name:12} step {step:4}  loss {losses[-1]:.4f}", flush=True)
    return losses


def main() -> int:
    losses = {
        "flashladder": train("flashladder", scaled_dot_product_attention),
        "PyTorch": train("PyTorch", F.scaled_dot_product_attention),
    }
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(losses) + "\n")
    last = max(STEPS // 10, 1)
    ours, theirs = (sum(values[-last:]) / last for values in losses.values())
    print(f"mean of the last {last} steps: {ours:.4f} and {theirs:.4f}")
    return 0 if abs(ours - theirs) <= NEAR * theirs else 1


if __name__ == "__main__":
    sys.exit(main())
