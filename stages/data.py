"""The fixed data."""

from ampcheck import data, params, workloads
from stages import run


def main() -> None:
    """params.yaml -> data/fixed.safetensors."""
    given = params.load()
    data.make(
        data.PATH,
        workloads.load(given.workload, given.sizes),
        seed=given.seed,
        num_batches=given.data.num_batches,
        batch_size=given.sizes["batch_size"],
    )
    print(f"{given.data.num_batches} batches of {given.sizes['batch_size']}")


run(main)
