"""Train a perceptron on handwritten digits on two localities: python examples/train_mlp.py (needs the extra `har`)."""

import numpy as np

import futurex as fx
from futurex.models import mlp


def loss(params, x, y, key=None):
    logits = mlp.apply(params, x, key, rate=0.2)
    return fx.nn.softmax_cross_entropy(logits, y).mean(), {"train_accuracy": (logits.argmax(axis=1) == y).mean()}


def accuracy(params, x, y):
    return (mlp.apply(params, x).argmax(axis=1) == y).mean()


def main():
    digits = fx.data.load_digits()
    params = mlp.init(np.random.default_rng(0), (64, 128, 10))
    with fx.Cluster(2) as cluster:
        run = fx.fit(
            loss,
            params,
            (digits.x_train, digits.y_train),
            optimizer=fx.optim.adamw(3e-3),
            epochs=20,
            batch_size=64,
            on=cluster,
            validation=(digits.x_test, digits.y_test),
            metrics={"accuracy": accuracy},
        )
        trained = run.result(timeout=300)
    print(run)
    wrong = np.asarray(mlp.apply(trained, digits.x_test)).argmax(axis=1) != digits.y_test
    print(f"{run.history[-1]['accuracy']:.1%} of {len(wrong)} unseen digits are right, {wrong.sum()} are wrong")


if __name__ == "__main__":  # worker processes import this file
    main()
