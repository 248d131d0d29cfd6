"""The best blocks of one row's scores, by all threads of a program: PTX for NVIDIA.

A search bit by bit asks all threads 31 times how many scores reach a number, and each answer waits
for every thread twice. Here threads count the scores by 8 bits at a time in shared memory, which
the language cannot reach: at most four answers, one barrier each, and every warp finds the border
in the counts for itself. It is integers only, so no order of anything matters.

Scores lie in whole runs of 16, -1 behind the last one, and a run starts at whole 16 bytes.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Runs of four scores that a thread asks for at once when it counts.
_AHEAD = 4


def _count() -> str:
    """Adds 1 to the bin of every score that has the prefix: bits `next` to `next + width`."""
    lines = ["mov.u32 i, first;", "count:"]
    for k in range(_AHEAD):
        lines += [
            f"mad.lo.u32 j, threads, {4 * k}, i;",
            f"setp.lt.u32 p{k}, j, $3;",
            "mul.wide.u32 at, j, 4;",
            "add.u64 at, at, $1;",
            *(f"mov.u32 x{k}{e}, 0xffffffff;" for e in range(4)),
            f"@p{k} ld.global.v4.u32 {{x{k}0, x{k}1, x{k}2, x{k}3}}, [at + 0];",
        ]
    for k in range(_AHEAD):
        lines.append(f"vote.sync.any.pred any, p{k}, 0xffffffff;")
        lines.append(f"@!any bra skip{k};")
        for e in range(4):
            lines += [
                f"shr.u32 y, x{k}{e}, next;",
                "sub.u32 y, y, base;",
                "setp.lt.u32 q, y, range;",
                "shl.b32 y, y, 2;",
                "add.u32 y, y, bins;",
                "@q red.shared.add.u32 [y + 0], 1;",
            ]
        lines.append(f"skip{k}:")
    lines += [
        f"mad.lo.u32 i, threads, {4 * _AHEAD}, i;",
        "sub.u32 j, i, lane4;",
        "setp.lt.u32 p, j, $3;",
        "@p bra count;",
        "bar.sync 0;",
    ]
    return "\n".join(lines)


def _find() -> str:
    """The largest digit that with those above it holds `need` scores: `digit`, the scores `over`
    it and those `here`. A lane has 8 of the 256 bins."""
    lines = [
        "shl.b32 t, lane, 5;",
        "add.u32 t, t, bins;",
        "ld.shared.v4.u32 {h0, h1, h2, h3}, [t + 0];",
        "ld.shared.v4.u32 {h4, h5, h6, h7}, [t + 16];",
        "add.u32 sum, h0, h1;",
        *(f"add.u32 sum, sum, h{j};" for j in range(2, 8)),
        "mov.u32 until, sum;",
    ]
    for distance in (1, 2, 4, 8, 16):
        lines += [
            f"shfl.sync.down.b32 t, until, {distance}, 0x1f, 0xffffffff;",
            f"setp.lt.u32 p, lane, {32 - distance};",
            "@p add.u32 until, until, t;",
        ]
    lines += [
        "setp.ge.u32 p, until, need;",
        "vote.sync.ballot.b32 t, p, 0xffffffff;",
        "clz.b32 t, t;",
        "sub.u32 owner, 31, t;",
        "sub.u32 over, until, sum;",
        "mov.u32 here, 0;",
        "mov.u32 digit, 0;",
        "mov.u32 until, over;",
    ]
    # From the highest bin on: where the sum reaches `need` for the first time.
    for j in range(7, -1, -1):
        lines += [
            "setp.lt.u32 p, until, need;",
            "@p mov.u32 over, until;",
            f"@p mov.u32 here, h{j};",
            f"@p mov.u32 digit, {j};",
            f"add.u32 until, until, h{j};",
        ]
    lines += [
        "mad.lo.u32 digit, lane, 8, digit;",
        *(
            f"shfl.sync.idx.b32 {name}, {name}, owner, 0x1f, 0xffffffff;"
            for name in ("over", "here", "digit")
        ),
        "sub.u32 need, need, over;",
        "add.u32 prefix, base, digit;",
    ]
    return "\n".join(lines)


def _search() -> str:
    """`border` and `need`: scores above the border are chosen, and the first `need` equal ones."""
    return f"""
mov.u32 need, $4;
mov.u32 base, 0;
mov.u32 next, 23;
mov.u32 range, 256;
mov.u32 bins, shared_bins;
again:
{_count()}
{_find()}
setp.eq.u32 p, here, need;
@p bra whole;
setp.eq.u32 p, next, 0;
@p bra found;
sub.s32 t, next, 8;
max.s32 t, t, 0;
sub.u32 width, next, t;
mov.u32 next, t;
shl.b32 base, prefix, width;
mov.u32 range, 1;
shl.b32 range, range, width;
add.u32 bins, bins, 1024;
bra again;
whole:
shl.b32 border, prefix, next;
sub.u32 border, border, 1;
mov.u32 need, 0;
bra chosen;
found:
mov.u32 border, prefix;
chosen:"""


def _scores(lines: list[str]) -> list[str]:
    """Of the four scores of a lane: `pa`, above the border, `pe`, equal to it."""
    load = [
        "add.u32 j, i, lane4;",
        "setp.lt.u32 p, j, $3;",
        "mul.wide.u32 at, j, 4;",
        "add.u64 at, at, $1;",
        *(f"mov.u32 x0{e}, 0x80000000;" for e in range(4)),
        "@p ld.global.v4.u32 {x00, x01, x02, x03}, [at + 0];",
    ]
    for e in range(4):
        load += [
            f"setp.gt.s32 pa{e}, x0{e}, border;",
            # The border may be -1, and nothing that is there is below 0.
            f"setp.eq.s32 pe{e}, x0{e}, border;",
        ]
    return load + lines


def _place() -> str:
    """Every warp counts its scores, learns what the warps before it have, and stores its choice."""
    lines = [
        # Scores of a warp, in runs of 128.
        "shl.b32 t, threads, 2;",
        "add.u32 share, $3, t;",
        "sub.u32 share, share, 1;",
        "div.u32 share, share, t;",
        "shl.b32 share, share, 7;",
        "mul.lo.u32 start, warp, share;",
        "add.u32 end, start, share;",
        "min.u32 end, end, $3;",
        "mov.u32 above, 0;",
        "mov.u32 equal, 0;",
        "mov.u32 i, start;",
        "setp.ge.u32 p, i, end;",
        "@p bra counted;",
        "tally:",
        *_scores(
            [
                line
                for e in range(4)
                for line in (
                    f"@pa{e} add.u32 above, above, 1;",
                    f"@pe{e} add.u32 equal, equal, 1;",
                )
            ]
        ),
        "add.u32 i, i, 128;",
        "setp.lt.u32 p, i, end;",
        "@p bra tally;",
        "counted:",
    ]
    for name, offset in (("above", 0), ("equal", 128)):
        lines += [
            f"redux.sync.add.s32 {name}, {name}, 0xffffffff;",
            "shl.b32 t, warp, 2;",
            "add.u32 t, t, shared_counts;",
            f"st.shared.u32 [t + {offset}], {name};",
        ]
    lines += ["bar.sync 0;", "shl.b32 t, lane, 2;", "add.u32 t, t, shared_counts;"]
    lines.append("setp.lt.u32 p, lane, warp;")
    for name, offset in (("above", 0), ("equal", 128)):
        lines += [
            f"mov.u32 {name}, 0;",
            f"@p ld.shared.u32 {name}, [t + {offset}];",
            f"redux.sync.add.s32 {name}, {name}, 0xffffffff;",
        ]
    lines += ["mov.u32 i, start;", "setp.ge.u32 p, i, end;", "@p bra placed;", "place:"]
    lines += _scores([])
    # Of the lanes before this one, and of all lanes.
    for name, short in (("above", "pa"), ("equal", "pe")):
        lines += [f"mov.u32 {name}_before, {name};"]
        for e in range(4):
            lines += [
                f"vote.sync.ballot.b32 t, {short}{e}, 0xffffffff;",
                "popc.b32 y, t;",
                f"add.u32 {name}, {name}, y;",
                "and.b32 t, t, below;",
                "popc.b32 t, t;",
                f"add.u32 {name}_before, {name}_before, t;",
            ]
    for e in range(4):
        lines += [
            f"setp.lt.and.u32 q, equal_before, need, pe{e};",
            f"or.pred q, q, pa{e};",
            "min.u32 t, equal_before, need;",
            "add.u32 t, t, above_before;",
            "mul.wide.u32 at, t, 4;",
            "add.u64 at, at, $2;",
            f"add.u32 y, j, {e};",
            "@q st.global.u32 [at + 0], y;",
            f"@pa{e} add.u32 above_before, above_before, 1;",
            f"@pe{e} add.u32 equal_before, equal_before, 1;",
        ]
    lines += ["add.u32 i, i, 128;", "setp.lt.u32 p, i, end;", "@p bra place;", "placed:"]
    return "\n".join(lines)


_REGISTERS = (
    "threads, tid, lane, warp, lane4, below, first, i, j, t, y, need, base, next, range, width,"
    " bins, digit, over, here, sum, until, owner, prefix, border, share, start, end, above, equal,"
    " above_before, equal_before, shared_bins, shared_counts"
)

CHOOSE = tl.constexpr(
    f"""{{
.reg .pred p, q, any, {", ".join(f"p{k}" for k in range(_AHEAD))};
.reg .pred {", ".join(f"{name}{e}" for name in ("pa", "pe") for e in range(4))};
.reg .b64 at;
.reg .b32 {_REGISTERS};
.reg .b32 {", ".join(f"x{k}{e}" for k in range(_AHEAD) for e in range(4))};
.reg .b32 {", ".join(f"h{j}" for j in range(8))};
.shared .align 16 .b32 counted_scores[1024];
.shared .align 16 .b32 counted_warps[64];
mov.u32 shared_bins, counted_scores;
mov.u32 shared_counts, counted_warps;
mov.u32 threads, %ntid.x;
mov.u32 tid, %tid.x;
mov.u32 lane, %laneid;
mov.u32 below, %lanemask_lt;
shr.u32 warp, tid, 5;
shl.b32 lane4, lane, 2;
shl.b32 first, tid, 2;
mov.u32 t, 0;
mov.u32 i, tid;
clear:
shl.b32 y, i, 2;
add.u32 y, y, shared_bins;
st.shared.u32 [y + 0], t;
add.u32 i, i, threads;
setp.lt.u32 p, i, 1024;
@p bra clear;
bar.sync 0;
{_search()}
{_place()}
mov.u32 $0, border;
}}"""
)


@triton.jit
def choose_best(SCORES, OUT, complete, budget):
    """Stores the numbers of the `budget` largest of `complete` scores, equal ones lowest number
    first, ascending. More scores than `budget`, all at least +0; at most 32 warps."""
    tl.inline_asm_elementwise(
        CHOOSE, "=r,l,l,r,r", [SCORES.to(tl.int64), OUT.to(tl.int64), complete, budget],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
