"""An audit beside a training loop in plain numpy: three parties, federated averaging, logistic regression on digits.

Run it with `python examples/numpy_loop.py FOLDER`. docs/architecture.md explains it, in "Audit another framework".
"""

import sys

import numpy as np
from sklearn.datasets import load_digits

import fedaudit

PARTIES, ROUNDS, EPOCHS, BATCH, RATE = ("north", "south", "west"), 10, 5, 16, 0.5


class Logistic:
    """The model, as the audit asks for it. Its state: names, and arrays of floats."""

    classes = 10

    def initial(self, seed):
        return {"weights": np.zeros((64, 10)), "bias": np.zeros(10)}

    def outputs(self, state, x):
        return x @ state["weights"] + state["bias"]  # logits: what goes into the softmax

    def last_layer(self, state, x):  # not required; with it, gradient-norm runs as well
        return self.outputs(state, x), np.column_stack([x, np.ones(len(x))])  # the inputs, and a 1 for the bias


def train(model, state, records, rng):
    """What a party does: some epochs of stochastic gradient descent from the model that it received."""
    weights, bias = state["weights"].copy(), state["bias"].copy()
    onehot = np.eye(model.classes)[records.y]
    for _ in range(EPOCHS):
        order = rng.permutation(len(records))
        for batch in np.array_split(order, len(order) // BATCH):
            logits = model.outputs({"weights": weights, "bias": bias}, records.x[batch])
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            error = p / p.sum(axis=1, keepdims=True) - onehot[batch]
            weights -= RATE * records.x[batch].T @ error / len(batch)
            bias -= RATE * error.mean(axis=0)
    return {"weights": weights, "bias": bias}


def main(out):
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    parties, games = {}, []
    for number, name in enumerate(PARTIES):  # what each party trains on, and what it sets aside for the audit
        parties[name], game = fedaudit.set_aside(x[number::3], y[number::3], party=name, seed=0)
        games.append(game)

    model, rng = Logistic(), np.random.default_rng(0)
    state = model.initial(0)
    with fedaudit.record(model, games, out=out, rounds=ROUNDS) as audit:
        audit.observe(0, state)  # what the first round starts from
        for round in range(1, ROUNDS + 1):
            updates = {name: train(model, state, records, rng) for name, records in parties.items()}
            sizes = [len(records) for records in parties.values()]
            state = {key: np.average([u[key] for u in updates.values()], axis=0, weights=sizes) for key in state}
            audit.observe(round, state, updates=updates)
    return audit.document


if __name__ == "__main__":
    document = main(sys.argv[1] if len(sys.argv) > 1 else "runs/numpy")
    for headline in document.headlines:
        print(headline.sentence, *headline.details)
    print(*document.notices, sep="\n")
