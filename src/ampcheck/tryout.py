"""Can the drill's network be trained with the optimizer and the scheduler that are asked for by name?"""

from ampcheck.reference import STEPS, Setup
from ampcheck.training import train


def try_out(setup: Setup, mode: str) -> None:
    """Train the small network to the end. ValueError if what is asked for in `train` can't train it, or not so long."""
    setup.make_data()
    try:
        train(setup.run(mode), setup.batches(), STEPS)
    except Exception as error:  # whatever an optimizer or a scheduler raises
        raise ValueError(
            f"train.optimizer, train.scheduler: the drill's network, which has biases and BatchNorm, can't be trained "
            f"for its {STEPS} steps: {error}; make them in the workload's own optimizers and schedulers instead"
        ) from error
