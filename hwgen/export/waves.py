"""What to look at first in the waveforms of a board: a saved view for GTKWave, which Surfer and others read, too.

In: a board's Verilog, the scope that a waveform has the board in. Out: a file's text. Signals are the ports of blocks,
so that docs/hardware.md explains them.
"""

from hwgen.export.verilog import modules
from hwgen.spec.board import PAGE_BASES, PAGE_BUS, of_bus

PAGES = ["arvalid", "arready", "araddr", "arlen", "rvalid", "rready", "rlast", "rresp", "rdata"]
"""Signals of a bus of pages."""

GROUPS = (
    ("clock", "", "clk rst irq"),
    (
        "register bus",
        "",
        "s_axil_awvalid s_axil_awready s_axil_awaddr s_axil_wvalid s_axil_wready s_axil_wdata s_axil_bvalid "
        "s_axil_bresp s_axil_arvalid s_axil_arready s_axil_araddr s_axil_rvalid s_axil_rdata s_axil_rresp",
    ),
    ("training loop", "loop", "train busy epochs_run loss_valid loss_word converged fault stopped"),
    *(
        (of_bus("page bus", k), "", " ".join(f"{of_bus(PAGE_BUS, k)}_{name}" for name in PAGES))
        for k in range(len(PAGE_BASES))
    ),
    (
        "record bus",
        "",
        "m_axi_records_arvalid m_axi_records_arready m_axi_records_araddr m_axi_records_rvalid m_axi_records_rdata "
        "m_axi_records_awvalid m_axi_records_awready m_axi_records_awaddr m_axi_records_wvalid m_axi_records_wdata "
        "m_axi_records_bvalid",
    ),
    ("page link", "machine", "page_req_valid page_req_page page_valid page_data"),
    ("Strider 0", "machine.access.strider_0", "loaded room push entry skip"),
    (
        "rows of tuples",
        "machine.access",
        "tuples_valid tuples_thread tuples_half tuples_row tuples_lane_enable tuples_data",
    ),
    (
        "rounds",
        "machine.access",
        "rounds_round_valid rounds_count rounds_batch_last rounds_epoch_last half_release "
        "fault_valid fault_code fault_page",
    ),
    ("engine", "machine.engine", "start tag finished tuples batches busy merging cycles"),
    ("sequencer", "machine.engine.sequencer", "section_end count half_base control"),
    ("waiting", "machine.access", "waiting_for_engine waiting_for_pages"),
)
"""Headings, the block below the board, names of its ports; a port that the machine lacks is left out."""

SOME = ("record bus", *(of_bus("page bus", k) for k in range(1, len(PAGE_BASES))))
"""Groups that only machines with a record memory or with several buses of pages have."""

FORMAT_HEX, FORMAT_HEADING = "@22", "@200"
"""How GTKWave shows what follows: in hexadecimal, as a comment."""


def view(verilog: str, top: str, scope: str) -> str:
    """The saved view of a board, for a waveform that has its signals in `scope`: 'TOP.dana_board'.

    Raises
    ------
    KeyError
        A block or a port is not in the Verilog: `GROUPS` names it wrongly.
    """
    found = modules(verilog)
    lines = ["[timestart] 0", "[sst_expanded] 1"]
    for heading, block, names in GROUPS:
        module, path = found[top], scope
        for part in block.split(".") if block else ():
            module, path = found[module.instances[part]], f"{path}.{part}"
        if heading in SOME and names.split()[0] not in module.ports:
            continue
        lines += [FORMAT_HEADING, f"-{heading}", FORMAT_HEX]
        lines += [f"{path}.{name}{module.ports[name]}" for name in names.split()]
    return "\n".join(lines) + "\n"
