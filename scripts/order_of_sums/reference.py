"""The order of sums as plain numpy: float32 operations one at a time, loops where order matters."""

import numpy as np
import torch

from scripts.order_of_sums.records import Activations, Matrix

F32 = np.float32


def integer_linear(x: Activations, w: Matrix, columns: np.ndarray) -> np.ndarray:
    """Terms of groups in order inside a segment of 16 groups, segments ascending: [R, columns]."""
    pick = torch.from_numpy(columns)
    halves = _half_sums(x.q.cpu(), w.codes[pick.to(w.codes.device)].cpu())  # [2, G, R, N]
    groups = w.k // 32
    if w.multiplier is None:
        whole = halves[0] + halves[1]
    else:
        m = w.multiplier[pick.to(w.codes.device)].cpu().numpy().astype(np.int32)
        m = np.broadcast_to(m, (len(columns), groups, 2)) if m.shape[2] == 1 else m
        whole = halves[0] * m[:, :, 0].T[:, None, :] + halves[1] * m[:, :, 1].T[:, None, :]
    assert np.abs(whole).max() < 2**24
    scale = _per_group(w.scale, pick, w.kind.scale_groups)
    s = x.scale.cpu().numpy()
    lows = None
    if w.minimum_multiplier is not None and w.minimum_scale is not None:
        mm = w.minimum_multiplier[pick.to(w.codes.device)].cpu().numpy().astype(np.int32)
        q_sum = x.sums.cpu().numpy().sum(-1)  # [R, G]
        m_g = mm.T[:, None, :] * q_sum.T[:, :, None]
        lows = (m_g.astype(F32), _per_group(w.minimum_scale, pick, w.kind.scale_groups))
    total = None
    for start in range(0, groups, 16):
        acc = np.zeros((s.shape[0], len(columns)), F32)
        for g in range(start, min(start + 16, groups)):
            term = whole[g].astype(F32) * s[:, g, None]
            term = term * scale[None, :, g]
            if lows is not None:
                low = lows[0][g] * s[:, g, None]
                low = low * lows[1][None, :, g]
                term = term - low
            acc = acc + term
        total = acc if total is None else total + acc
    assert total is not None
    assert total.dtype == F32
    return total


def _per_group(scale: torch.Tensor, pick: torch.Tensor, every: int) -> np.ndarray:
    rows = scale[pick.to(scale.device)].cpu().numpy().astype(F32)
    return np.repeat(rows, every, axis=1)


def _half_sums(q: torch.Tensor, codes: torch.Tensor) -> np.ndarray:
    """Exact sums over 16 elements, by float32 products of small integers: int32 [2, G, R, N]."""
    rows, k = q.shape
    a = q.float().view(rows, k // 32, 2, 16).permute(2, 1, 0, 3)
    b = codes.float().view(codes.shape[0], k // 32, 2, 16).permute(2, 1, 3, 0)
    return torch.matmul(a, b).to(torch.int32).numpy()


def tree(lanes: np.ndarray, axis: int = -1) -> np.ndarray:
    """Adds adjacent pairs along `axis` until one is left."""
    lanes = np.moveaxis(lanes, axis, -1)
    while lanes.shape[-1] > 1:
        lanes = lanes[..., 0::2] + lanes[..., 1::2]
    return lanes[..., 0]


def dot32(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """[..., K] times [..., K] (broadcast): 32 lanes, pair tree, segments of 512 ascending."""
    total = None
    k = x.shape[-1]
    for start in range(0, k, 512):
        lanes = np.zeros((*np.broadcast_shapes(x.shape[:-1], w.shape[:-1]), 32), F32)
        for at in range(start, min(start + 512, k), 32):
            lanes = lanes + x[..., at : at + 32] * w[..., at : at + 32]
        part = tree(lanes)
        total = part if total is None else total + part
    assert total is not None
    assert total.dtype == F32
    return total


def blocks64(values: np.ndarray) -> np.ndarray:
    """Sums the first axis: sequentially in blocks of 64, block sums ascending."""
    total = None
    for start in range(0, values.shape[0], 64):
        acc = np.zeros(values.shape[1:], F32)
        for value in values[start : start + 64]:
            acc = acc + value
        total = acc if total is None else total + acc
    assert total is not None
    assert total.dtype == F32
    return total
