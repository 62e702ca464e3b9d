"""Independent float64 reference of the synthetic experiment (numpy only, hand-derived gradients).

Knows nothing of the program it judges. `python tests/assets/synthetic/make_reference.py` writes environment.npz and
trajectories.json.gz beside itself.
"""

import gzip
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
T = 8
rng = np.random.default_rng(20261115)
ANGLES = rng.uniform(0, 2 * np.pi, T)
TARGETS = np.array([(5 + 7 * np.sin(2 * np.pi * t / T), 5 + 7 * np.cos(2 * np.pi * t / T)) for t in range(T)])
COEFF = np.array([0.8, 11.0, 0.9, 7.0])
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)


def loss_and_grad(theta):
    """theta [T, 2] -> losses [T], gradients [T, 2]."""
    d = theta - TARGETS
    u, v = (COS * d[:, 0] - SIN * d[:, 1]) / 3, (SIN * d[:, 0] + COS * d[:, 1]) / 3
    a, b = u * u + v - COEFF[1], u + v * v - COEFF[3]
    du = COEFF[0] * 4 * a * u + COEFF[2] * 2 * b
    dv = COEFF[0] * 2 * a + COEFF[2] * 4 * b * v
    loss = COEFF[0] * a**2 + COEFF[2] * b**2
    return loss, np.stack([(COS * du + SIN * dv) / 3, (-SIN * du + COS * dv) / 3], axis=1)


class Inner:
    """T task learners with SGD + momentum, all restarted from phi."""

    def __init__(self, phi, alpha, mu):
        self.theta, self.velocity = np.tile(phi, (T, 1)), np.zeros((T, 2))
        self.alpha, self.mu = alpha, mu

    def step(self):
        self.velocity = self.mu * self.velocity + loss_and_grad(self.theta)[1]
        self.theta = self.theta - self.alpha * self.velocity
        return self.theta


def meta_train(method, start, alpha=0.05, beta=0.1, K=100, M=3, mu=0.9):
    """Momentum starts at zero in every trajectory here (the synthetic experiment makes fresh optimizers)."""
    phi = np.array(start, float)
    trajectory, steps = [phi.copy()], 0

    def update(theta):
        nonlocal phi
        delta = beta * (theta - phi).mean(0)
        phi = phi + delta
        trajectory.append(phi.copy())
        return delta

    for _ in range(M):
        if method == "shifting":
            inner = Inner(phi, alpha, mu)
            for _ in range(K):
                theta = inner.step()
                inner.theta = theta + update(theta)
                steps += T
        else:  # the same number of meta-updates: M * K
            for k in range(1, K + 1):
                length = K if method == "reptile" else k
                inner = Inner(phi, alpha, mu)
                for _ in range(length):
                    theta = inner.step()
                update(theta)
                steps += T * length
    inner = Inner(phi, alpha, mu)
    for _ in range(K):
        theta = inner.step()
    loss_after = float(loss_and_grad(theta)[0].mean())
    return {"trajectory": np.array(trajectory).tolist(), "inner_steps": steps, "loss_after": loss_after}


def main() -> None:
    np.savez(HERE / "environment.npz", angles=ANGLES[:, None], targets=TARGETS, coeff=COEFF)
    settings = {"alpha": 0.05, "beta": 0.1, "inner_steps": 100, "trajectories": 3, "optimizer": "momentum"}
    golden = [
        {"method": method, "start": list(start), **settings, "result": meta_train(method, start)}
        for method in ("shifting", "reptile", "accurate")
        for start in ((-5.0, 5.0), (5.0, -5.0), (15.0, 5.0))
    ]
    (HERE / "trajectories.json.gz").write_bytes(gzip.compress(json.dumps(golden).encode(), mtime=0))


if __name__ == "__main__":
    main()
