"""Waived warnings of Verilator's linter for generated Verilog, with reasons.

In: nothing. Out: the list, and a waiver file. `verilator --lint-only -Wall` must report nothing else.
"""

WAIVED = {
    "DECLFILENAME": "all modules are in one file",
    "UNUSEDSIGNAL": "Amaranth names parts of values that nothing reads",
    "PROCASSINIT": "registers have an initial value and a reset, as FPGAs do",
    "CASEINCOMPLETE": "yosys leaves out the cases in which nothing changes",
    "WIDTHEXPAND": "Amaranth's operands keep their own widths, and its rules of extension are Verilog's",
    "WIDTHTRUNC": "Amaranth's assignments truncate, as Verilog's do",
    "CMPCONST": "comparisons with the end of a parameter's range",
}


def waivers(files: str) -> str:
    """The list as a configuration file of Verilator, for files whose names end so: 'dana_board.v'."""
    lines = [f'// {reason}\nlint_off -rule {rule} -file "*{files}"' for rule, reason in WAIVED.items()]
    return "`verilator_config\n" + "\n".join(lines) + "\n"
