"""Arrays that do not fit the tensors, as a GPU reads them: offsets, lengths and page numbers are clamped in the kernel.

The executables and the library reject such arrays in host memory, so these launches fill serving_args themselves.
"""

import ctypes
import re
from itertools import chain, pairwise, product
from typing import Any

import emu
import numpy as np
import numpy.typing as npt
import pytest
from made_up_gpu import ROOT

from analysis.ladder.config import KernelConfig
from analysis.ladder.headers import GRADIENTS, load_attention, load_backward

Array = npt.NDArray[Any]
UNWRITTEN = 7  # of O and of log-sum-exp

_TYPES: dict[str, Any] = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "float": ctypes.c_float}


def _struct(name: str, header: str, front: type[ctypes.Structure] | None = None) -> type[ctypes.Structure]:
    """A struct of a header as a ctypes class, after the members of another one."""
    text = re.sub(r"/\*.*?\*/|^#.*?$", "", (ROOT / "common" / header).read_text(), flags=re.S | re.M)
    (body,) = re.findall(rf"\{{([^{{}}]*)\}} {name};", text)
    members: list[tuple[str, Any]] = [("front", front)] if front else []
    for kind, declared in re.findall(r"(?:const )?(\w+) ([^;]*);", " ".join(body.split())):
        for pointer, member, count in re.findall(r"(\*?)(\w+)(?:\[(\d+)\])?(?:, |$)", declared):
            made = ctypes.c_uint64 if pointer else _TYPES[kind]
            if made:
                members.append((member, made * int(count) if count else made))
    return type(name, (ctypes.Structure,), {"_fields_": members})


_TYPES["tensor_strides"] = _struct("tensor_strides", "abi.h")
_TYPES |= {"attention_args": None, "backward_args": None, "backward_serving_args": None}
AttentionArgs = _struct("attention_args", "abi.h")
ServingArgs = _struct("serving_args", "serving.h", AttentionArgs)
BackwardArgs = _struct("backward_serving_args", "backward.h", _struct("backward_args", "backward.h", AttentionArgs))
StridedArgs = _struct("backward_strided_args", "backward.h", BackwardArgs)
assert ctypes.sizeof(ServingArgs) == 320
SWIZZLE_128B = 1 + re.findall(
    r"EMU_SWIZZLE_\w+", (emu.FOLDER / "emu.h").read_text().partition("EMU_SWIZZLE_NONE")[2]
).index("EMU_SWIZZLE_128B")


def made_map(address: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> bytes:
    info = emu._library.structs["emu_tensor_info"](address=address, rank=5, element_bytes=2, swizzle=SWIZZLE_128B)
    info.sizes[:], info.strides[:], info.box[:] = sizes, strides, box
    text, error = ctypes.create_string_buffer(128), emu._library.error()
    make = emu._library.c.emu_make_tensor_map
    make.restype = ctypes.c_bool
    assert make(ctypes.byref(info), text, ctypes.byref(error)), error.text
    return text.raw


def launch(
    kernel: str, config: KernelConfig, tensors: dict[str, Array], seq_k: int, arrays: dict[str, Array], **more: int
) -> tuple[Array, Array]:
    """O and log-sum-exp. Q, K and V are [samples or pages, rows, heads, d_head]; `more` are members of serving_args."""
    module = emu.Module(ROOT / f"build/{kernel}/{kernel}.ptx")
    Q, K = tensors["Q"], tensors["K"]
    (batch, rows, heads, d), KV_heads = Q.shape, K.shape[2]
    given = tensors | {"O": np.full_like(Q, UNWRITTEN), "LSE": np.full((batch, heads, rows), UNWRITTEN, np.float32)}
    given |= {"tickets": np.zeros(1 << 16, np.int32)}
    on_device = {name: module.buffer(array, name, False) for name, array in given.items()}
    args = ServingArgs(window_left=-1, window_right=-1, Q_rows=rows, KV_rows=K.shape[1], **more)
    buffers = {name: module.buffer(array, name, False) for name, array in arrays.items()}
    for name, buffer in buffers.items():
        setattr(args, name, buffer.address)
    front, maps = args.front, b""
    front.seq_q, front.heads, front.seq_k, front.KV_heads = rows, heads, seq_k, KV_heads
    front.batch = len(arrays["Q_offsets"]) - 1 if "Q_offsets" in arrays else batch
    front.softmax_scale, front.causal = d**-0.5, "pages" in arrays
    for name, buffer in on_device.items():
        setattr(front, name, buffer.address)
    boxes = (0,) * 4 if "mma_sync" in kernel else config.box_rows()
    for name, box in zip("QKVO", boxes, strict=True):
        samples, size, of, _ = given[name].shape
        of_pages = name in "KV" and kernel == "attention.wgmma"  # with a copy for each 64 columns of a small page
        box = min(box, size) if of_pages and "pages" in arrays else box
        setattr(front, f"{name}_strides", type(front.Q_strides)(batch=size * of * d, seq=of * d, head=d))
        if "mma_sync" in kernel:
            continue  # no maps
        if getattr(config, "packs", False) and name == "O":  # Q by groups of heads, instead of O
            group = heads // KV_heads
            slots = 1 << (group - 1).bit_length()
            strides = (2 * d, 2 * d * heads, 2 * d * group, 2 * d * heads * rows)
            maps += made_map(front.Q, (d, group, rows, KV_heads, 1), strides, (64, slots, 64 // slots, 1, 1))
        else:
            tiles = 1 if of_pages and box < config.B_c else d // 64
            strides = (2 * of * d, 128, 2 * d, 2 * of * size * d)
            maps += made_map(on_device[name].address, (64, size, d // 64, of, samples), strides, (64, box, tiles, 1, 1))
    grid = 4 if "decode" in kernel else 3
    parameters = (bytes(args), maps) if maps else (bytes(args),)
    module[config.symbol()][grid, config.threads(), config.smem_bytes()](*parameters)
    return on_device["O"].array, on_device["LSE"].array


def config_of(kernel: str, d_head: int, pages: bool, packs: bool = False) -> KernelConfig:
    for config in load_attention(ROOT)[kernel].header.serving:
        if ("decode" in kernel or kernel == "attention/mma_sync") and config.d_head == d_head:
            return config
        found = tuple(getattr(config, name, False) for name in ("d_head", "cap", "paged_kv", "packs"))
        if found == (d_head, False, pages, packs):
            return config
    raise KeyError(kernel)


def attend(Q: Array, K: Array, V: Array, causal: bool) -> tuple[Array, Array]:
    """O and log-sum-exp of the rows of one sequence, in float64."""
    group, aligned = Q.shape[1] // K.shape[1], len(K) - len(Q)
    output, LSE = np.zeros(Q.shape), np.full((Q.shape[1], len(Q)), -np.inf)
    for row, head in product(range(len(Q)), range(Q.shape[1])):
        seen = max(0, min(len(K), row + aligned + 1)) if causal else len(K)
        scores = K[:seen, head // group].astype(float) @ Q[row, head].astype(float) * Q.shape[2] ** -0.5
        if seen:
            output[row, head] = np.exp(scores) @ V[:seen, head // group].astype(float) / np.exp(scores).sum()
            LSE[head, row] = np.log(np.exp(scores).sum())
    return output, LSE


@pytest.mark.parametrize("kernel", ["attention.wgmma", "attention.mma_sync"])
@pytest.mark.parametrize(
    ("Q_offsets", "KV_offsets", "lengths", "rows", "keys"),
    [
        ((4, 2, -7, 2**31 - 1, -(2**31)), (0, 0, 30, 2**31 - 1, 5), 2**31 - 1, (0, 12), (30, 40)),
        ((12, 9, 2, 5, 3), (40, -1, -9, 7, 0), -1, (2, 5), (0, 0)),
    ],
)
def test_offsets_and_lengths_are_clamped(
    kernel: str,
    Q_offsets: tuple[int, ...],
    KV_offsets: tuple[int, ...],
    lengths: int,
    rows: tuple[int, int],
    keys: tuple[int, int],
) -> None:
    """Decreasing, negative, past the end. Nothing outside of a tensor is read or written, and of four sequences at most
    the third has rows, those that are left of it."""
    rng = np.random.default_rng(1)
    sizes = {"Q": 12, "K": 40, "V": 40}
    tensors: dict[str, Array] = {
        name: rng.standard_normal((1, n, 2, 64)).astype(np.float16) for name, n in sizes.items()
    }
    arrays = {"Q_offsets": Q_offsets, "KV_offsets": KV_offsets, "KV_lengths": (lengths,) * 4}
    integers = {name: np.array(array, np.int32) for name, array in arrays.items()}
    config = config_of(kernel.replace(".", "/"), 64, pages=False)
    output, LSE = launch(kernel, config, tensors, 40, integers)
    wanted, wanted_LSE = np.full(output[0].shape, 7.0), np.full(LSE[0].shape, 7.0)
    Q, K, V = tensors["Q"][0, slice(*rows)], tensors["K"][0, slice(*keys)], tensors["V"][0, slice(*keys)]
    wanted[slice(*rows)], wanted_LSE[:, slice(*rows)] = attend(Q, K, V, causal=False)
    assert np.abs(output[0] - wanted).max() < 2e-3
    np.testing.assert_allclose(LSE[0], wanted_LSE, atol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "page", "packs", "d_head"),
    [
        ("attention.wgmma", 16, False, 128),
        ("attention.wgmma", 128, False, 64),
        ("attention.wgmma", 16, True, 256),
        ("attention.decode", 16, False, 64),
        ("attention.decode", 128, False, 128),
        ("attention.mma_sync", 16, False, 128),
        ("attention.mma_sync", 128, False, 96),
        ("attention.decode_mma_sync", 16, False, 64),
    ],
)
def test_page_numbers_and_lengths_are_clamped(kernel: str, page: int, packs: bool, d_head: int) -> None:
    """Tables name the same first pages. A number outside is a page of zeros, lengths are cut to what the table can
    name, and the table ends after the last page in use. Past every length there are NaN."""
    rng = np.random.default_rng(page + d_head)
    of_sequence, n_pages, packed = 3, 7, "decode" not in kernel
    rows = [0, 2, 7, 7, 9] if packed else [0, 2, 4, 6, 8]
    shape = (1, 9) if packed else (4, 2)
    tensors: dict[str, Array] = {"Q": rng.standard_normal((*shape, 4, d_head)).astype(np.float16)}
    tensors |= {name: rng.standard_normal((n_pages, page, 2, d_head)).astype(np.float16) for name in "KV"}
    lengths = [page + 5, 3 * page + 9, 0, 2 * page]
    table = [[3, 0, 2**31 - 1], [3, -5, 1], [2**31 - 1] * 3, [3, 2**30]]
    for name in "KV":
        tensors[name][0, 5:] = tensors[name][[2, 4, 5, 6]] = np.nan
    arrays = {"KV_lengths": np.array(lengths, np.int32), "pages": np.array([*chain(*table)], np.int32)}
    if packed:
        arrays["Q_offsets"] = np.array(rows, np.int32)
    sizes = {"page_rows": page, "pages_of_sequence": of_sequence, "n_pages": n_pages}
    config = config_of(kernel.replace(".", "/"), d_head, True, packs)
    output, LSE = launch(kernel, config, tensors, of_sequence * page, arrays, **sizes)
    output, LSE = output.reshape(-1, 4, d_head), LSE.transpose(1, 0, 2).reshape(4, -1)
    pools = {name: np.concatenate([tensors[name], np.zeros_like(tensors[name][:1])]) for name in "KV"}
    Q = tensors["Q"].reshape(-1, 4, d_head)
    for sequence, (first, end) in enumerate(pairwise(rows)):
        used = min(lengths[sequence], of_sequence * page)
        numbers = [n if 0 <= n < n_pages else n_pages for n in table[sequence][: -(-used // page)]]
        K, V = (pools[name][numbers].reshape(-1, 2, d_head)[:used] for name in "KV")
        wanted, wanted_LSE = attend(Q[first:end], K, V, causal=True)
        assert np.abs(output[first:end] - wanted).max(initial=0) < 2e-3
        np.testing.assert_allclose(LSE[:, first:end], wanted_LSE, atol=1e-3)


def test_no_cta_waits_for_a_block_that_another_sequence_has() -> None:
    """The keys of the first sequence end in a block that the decreasing offsets give to the second one."""
    kernel = GRADIENTS[1].replace("/", ".")
    ordered = load_backward(ROOT)[GRADIENTS[1]].header.ordered
    config = next(one for one in ordered if one.B_r == one.B_c == 64)
    module = emu.Module(ROOT / f"build/{kernel}/{kernel}.ptx")
    rows, keys, d, blocks = 256, 192, config.d_head, 256 // 64 + 4
    arrays: dict[str, Array] = {name: np.ones((rows, d), np.float16) for name in ("Q", "O", "dO", "dQ")}
    arrays |= {name: np.ones((keys, d), np.float16) for name in ("K", "V", "dK", "dV")}
    arrays |= {"LSE": np.zeros(rows, np.float32), "delta": np.zeros(2 * 64 * blocks, np.float32)}
    arrays |= {"sums": np.zeros(64 * blocks * d, np.float32), "turns": np.zeros(4 + 4 * blocks, np.int32)}
    arrays |= {"Q_offsets": np.arange(5, dtype=np.int32) * 64, "KV_offsets": np.array([64, 192, 0, 0, 0], np.int32)}
    buffers = {name: module.buffer(array, name, False) for name, array in arrays.items()}
    args = StridedArgs()
    serving, backward, attention = args.front, args.front.front, args.front.front.front
    for name, buffer in buffers.items():
        owner = next(one for one in (attention, backward, serving) if hasattr(one, name))
        setattr(owner, name, buffer.address)
    for owner, names in ((attention, "QKVO"), (args, ("dQ", "dK", "dV"))):
        for name in names:
            setattr(owner, f"{name}_strides", type(attention.Q_strides)(batch=0, seq=d, head=d))
    attention.batch, attention.heads, attention.KV_heads, attention.causal = 4, 1, 1, 1
    attention.seq_q, attention.seq_k, attention.softmax_scale = 64, 128, d**-0.5
    attention.all_Q_rows, attention.all_KV_rows = rows, keys
    serving.window_left = serving.window_right = -1
    module[config.symbol().replace("14flash_backward", "8row_sums")][(64 * blocks // 8, 1, 1), 128, 0](bytes(args))
    module[config.symbol()][keys // 64 + 4, config.threads(), config.smem_bytes()](bytes(args))
    assert not buffers["turns"].array[4:].any()  # no sequence has all of its blocks
