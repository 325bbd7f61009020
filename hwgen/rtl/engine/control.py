"""What the sequencer sends to the lanes, row by row: layouts of the buses.

In: the machine's configuration. Out: layouts. Each field travels one register tree (sequencer, thread, cluster) and is
sent so that it leaves the cluster's register in the stage in which it is used:

    stage 0   `a_address`, `b_address` are at the memories, swapped where `swap_lanes`, … say so
    stage 1   words arrive from block RAM, which takes more than half a cycle; `tail` is compared with the lanes
    stage 2   `a_tuple`, `b_tuple` choose the memory, masks replace a word by the identity
    stage 3   b goes to other lanes, clusters and threads, and becomes what `adjacent_choice` and `distant_choice`
              choose; a special function takes its lane
    stage 4   the operation starts: `subtract`, `select`, `choose`, `special`, `function`
    stage 3 + ALU latency   `side` chooses between the lane's `FloatSelect` and the cluster's word
    stage 4 + ALU latency   the result is at the memories: `write`

The index file, where there is one, adds to addresses between a thread's and its clusters' registers.
"""

from collections.abc import Sequence

from amaranth.hdl import Mux, Value
from amaranth.lib import data

from hwgen.rtl.arith.function import FUNCTION_BITS
from hwgen.rtl.arith.select import OPERATION_BITS
from hwgen.spec import engine
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig

INSTRUCTION = data.StructLayout(engine.WIDTHS)
"""An instruction word."""

TUPLE_NUMBER_BITS = engine.WIDTHS["outer"]
TAIL_BITS = engine.WIDTHS["tail"]
STRIDE_BITS = engine.WIDTHS["dst_outer"]
IDENTITY_BITS = 9
"""The identities of all operations differ in sign and exponent only."""

CLUSTER_NUMBER_BITS = 4
LANE_BITS = LANES_PER_CLUSTER.bit_length() - 1

ADJACENT_CHOICE_BITS = 2
"""Where operand b comes from: 0 is memory, d + 1 the lane of the same cluster whose number differs in bit d."""

MAX_SLOTS = 3
"""Words that a lane has from other clusters and threads. With what `adjacent_choice` chose they are four: a choice
among four is one LUT of six inputs."""


class Result:
    """Whose result is written: values of the write bus' field `unit`."""

    ADD = 0
    MULTIPLY = 1
    OTHER = 2  # the lane's `FloatSelect`, or the cluster's word
    BITS = 2


class Side:
    """What the cluster's word is: values of the control field `side`."""

    NONE = 0  # there is none: the lanes take their own results
    FUNCTION = 1  # a result of the unit for most special functions
    DIVIDE = 2  # a quotient or a root
    HOST = 3
    BITS = 2


def scratch_address_bits(config: MachineConfig) -> int:
    return (config.scratch_depth - 1).bit_length()


def row_address_bits(config: MachineConfig) -> int:
    """Width of an address of either memory of a lane."""
    return (max(config.scratch_depth, config.tuple_depth) - 1).bit_length()


def bound_bits(config: MachineConfig) -> int:
    """Width of a bound on the numbers that choose rows: no model has more of them than the scratchpad."""
    return config.scratch_depth.bit_length()


def entry_bits(config: MachineConfig) -> int:
    """Width of an entry's number in the index file."""
    return (config.index_depth - 1).bit_length()


def index_layout(config: MachineConfig) -> data.StructLayout:
    """How a result uses the index file.

    `set`: it is an entry, by SETX. `add`: its address has one added. `present`: only if the thread has tuple `tuple`.
    """
    entry = entry_bits(config)
    return data.StructLayout({"set": 1, "add": 1, "present": 1, "tuple": entry, "entry": entry})


def repeat_layout(config: MachineConfig) -> data.StructLayout:
    """Whether an entry that was set is among the ORDER_WINDOW before it."""
    return data.StructLayout({"set": 1, "entry": entry_bits(config), "repeats": 1})


def write_layout(config: MachineConfig) -> data.StructLayout:
    """A word for the lanes of one row."""
    return data.StructLayout(
        {
            "address": scratch_address_bits(config),
            "lanes": LANES_PER_CLUSTER,  # which of a cluster's lanes are written
            "unit": Result.BITS,
            "conditional": 1,  # only those whose condition (MOVC) holds
        }
    )


def cluster_layout(config: MachineConfig) -> data.StructLayout:
    """The bus that every cluster receives."""
    swap = {
        "swap_lanes": LANE_BITS,  # bit of the lane's number that makes it swap its addresses
        "swap_clusters": max(1, cluster_distances(config)),  # the same for its cluster's number
        "swap_all": 1,  # all lanes do
        "choose": 1,  # those that do take the other of `Operation.MOV`, `SECOND`
    }
    return data.StructLayout(
        {
            **(swap if config.crossed else {}),
            "a_address": row_address_bits(config),
            "b_address": row_address_bits(config),
            "a_tuple": 1,
            "b_tuple": 1,
            "identity": IDENTITY_BITS,
            "tail_a": 1,
            "tail_b": 1,
            "tail": TAIL_BITS,
            "adjacent_choice": ADJACENT_CHOICE_BITS,
            "distant_choice": distant_choice_bits(config),
            "special_lane": LANE_BITS,  # that the special function unit takes in stage 3, or that the host reads
            "subtract": 1,
            "select": OPERATION_BITS,  # operation of the lanes' `FloatSelect`
            "special": 1,  # the special function `function` starts
            "function": FUNCTION_BITS,
            "side": Side.BITS,
            "host_data": 32,
            "write": write_layout(config),
            "one_cluster": 1,  # the write is for cluster `cluster` alone
            "cluster": CLUSTER_NUMBER_BITS,
        }
    )


def cluster_distances(config: MachineConfig) -> int:
    """Number of clusters' bits that LANE_XOR can flip."""
    return (config.clusters - 1).bit_length()


def cluster_slots(config: MachineConfig) -> list[list[int]]:
    """For each word that a lane has from other clusters: the bits of the cluster's number that it may be for."""
    return _slots(config)[0]


def thread_slots(config: MachineConfig) -> list[list[int]]:
    """For each word that a lane has from other threads, which come behind those from clusters: the same."""
    return _slots(config)[1]


def _slots(config: MachineConfig) -> tuple[list[list[int]], list[list[int]]]:
    clusters = [[bit] for bit in range(cluster_distances(config))]
    threads = [[bit] for bit in range((config.threads - 1).bit_length())]
    # too many words for one choice in the lanes: the last two of a kind share one, chosen before (`distant`)
    while len(clusters) + len(threads) > MAX_SLOTS:
        crowded = clusters if len(clusters) > len(threads) else threads
        crowded[-2:] = [crowded[-2] + crowded[-1]]
    return clusters, threads


def slots(config: MachineConfig) -> int:
    """Words that a lane has from other clusters and threads; one that means nothing where there are none."""
    return max(1, len(cluster_slots(config)) + len(thread_slots(config)))


def distant_choice_bits(config: MachineConfig) -> int:
    """Width of the choice of a lane among what `adjacent_choice` chose, 0, and its slots."""
    return slots(config).bit_length()


def distant_bits(config: MachineConfig) -> int:
    """Width of the choice among words that have one slot."""
    return max([1, *((len(slot) - 1).bit_length() for slot in cluster_slots(config) + thread_slots(config))])


def thread_layout(config: MachineConfig) -> data.StructLayout:
    """The bus that every thread receives."""
    indices = {
        "a_index": 1,  # the entry `a_entry` is added to a's address
        "a_entry": entry_bits(config),
        "bound": bound_bits(config),  # of the last SETX
        "stride": STRIDE_BITS,  # of the last SETX
        "index": index_layout(config),  # what goes with the clusters' `write`
    }
    return data.StructLayout(
        {
            "cluster": cluster_layout(config),
            "tuple_number": TUPLE_NUMBER_BITS + 1,  # of operand a within the thread
            "masked": 1,  # absent tuples count
            "pair": 1,  # b is of the next tuple
            "both": 1,  # b is of the same tuple
            # bit of the thread's number that makes its lanes swap their addresses
            **({"swap_threads": max(1, (config.threads - 1).bit_length())} if config.crossed else {}),
            "distant": distant_bits(config),  # which words stage 3 takes of those that have one slot
            **(indices if config.index_depth else {}),
        }
    )


def choose(values: Sequence[Value], index: Value) -> Value:
    """The value of that index, as a tree of choices between two; no other index is asked for."""
    values = list(values)
    for bit in index:
        if len(values) % 2:
            values.append(values[-1])
        values = [
            even if even is odd else Mux(bit, odd, even) for even, odd in zip(values[::2], values[1::2], strict=True)
        ]
    return values[0]
