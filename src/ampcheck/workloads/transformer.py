"""Token ids: a causal transformer that predicts the next one; LayerNorm before attention, AdamW.

The vocabulary size is where a size that is no multiple of 8 hides: 50257, say.
https://arxiv.org/abs/1706.03762
"""

import numpy as np
import torch
from torch import nn

from ampcheck.workloads import Batch, Modules, Optimizers, Workload, require_counts


class Block(nn.Module):
    """Attention, then two linear layers, each beside an identity: (N, length, width) to the same shape."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.to_qkv = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width))
        self.from_heads = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        qkv = self.to_qkv(tokens).unflatten(-1, (3, self.num_heads, -1))  # N, length, 3, heads, width / heads
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        tokens = tokens + self.from_heads(heads.transpose(1, 2).flatten(-2))
        return tokens + self.mlp(tokens)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """ids (N, length) int64 to logits (N, length, vocabulary)."""

    def __init__(self, length: int, vocabulary: int, width: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers)))
        self.to_logits = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:  # noqa: D102 - see the class
        return self.to_logits(self.blocks(self.tokens(ids) + self.positions))  # type: ignore[no-any-return]


def build(batch_size: int, length: int, vocabulary: int, width: int, num_heads: int, num_layers: int) -> Workload:
    """Return the workload: ids (batch_size, length + 1) int64.

    ValueError names every size that is no integer of at least 1, and a width that its heads don't divide.
    """
    shape = {"length": length, "vocabulary": vocabulary, "width": width}
    shape |= {"num_heads": num_heads, "num_layers": num_layers}
    require_counts(batch_size=batch_size, **shape)
    if width % num_heads:
        raise ValueError(f"sizes.width: got {width}; a multiple of sizes.num_heads, {num_heads}")

    def batch(generator: np.random.Generator) -> Batch:
        return {"ids": generator.integers(vocabulary, size=(batch_size, length + 1))}

    def outputs(modules: Modules, batch: Batch) -> torch.Tensor:
        return modules["net"](batch["ids"][:, :-1])  # type: ignore[no-any-return]

    def losses(modules: Modules, batch: Batch) -> list[torch.Tensor]:
        return [nn.functional.cross_entropy(outputs(modules, batch).flatten(0, 1), batch["ids"][:, 1:].flatten())]

    def optimizers(modules: Modules, lr: float) -> Optimizers:
        return {"adamw": torch.optim.AdamW(modules["net"].parameters(), lr=lr)}

    return Workload(
        modules=lambda: {"net": Transformer(**shape)},
        batch=batch,
        outputs=outputs,
        losses=losses,
        optimizers=optimizers,
    )
