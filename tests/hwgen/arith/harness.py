"""Runs an arithmetic unit under Verilator over arrays of operands, without a Python call per cycle."""

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt
from amaranth.back import verilog
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.rtl.verilate import verilate

Words = npt.NDArray[np.uint32]
_STROBE = "start"


class Unit:
    """A component with ports of at most 32 bits, compiled.

    Parameters
    ----------
    component : wiring.Component
        Pipelined, or sequential with a ``start`` strobe.
    latency : int
        Clock edges from operands to result.
    interval : int
        Cycles between operands; between them the inputs carry noise.
    strobe : bool
        Whether ``start`` marks the operands; if not, it is an input like any other.
    text : str, optional
        Verilog whose module ``unit`` runs in the component's place: a netlist of it.
    """

    def __init__(
        self,
        component: wiring.Component,
        *,
        latency: int,
        interval: int = 1,
        strobe: bool = True,
        text: str | None = None,
    ) -> None:
        self.latency, self._interval = latency, interval
        inputs, self._outputs, masks = [], [], []
        for path, member, value in component.signature.flatten(component):
            name = "__".join(map(str, path))
            if member.flow != In:
                self._outputs.append(name)
            elif name != _STROBE or not strobe:
                inputs.append(name)
                masks.append(f"#define mask_{name} {(1 << len(Value.cast(value))) - 1}u")
        self._inputs = inputs
        header = [*masks]
        header.append("#define INPUTS(P) " + " ".join(f"P({name})" for name in inputs))
        header.append("#define OUTPUTS(P) " + " ".join(f"P({name})" for name in self._outputs))
        if strobe and _STROBE in component.signature.members:
            header.append(f"#define START {_STROBE}")
        if text is None:
            text = verilog.convert(component, name="unit", strip_internal_attrs=True)
        built = verilate(
            text,
            "unit",
            Path(__file__).with_name("unit_driver.cpp"),
            files={"ports.h": "\n".join([*header, ""])},
            optimize="-O1",
        )
        self._run = ctypes.CDLL(str(built)).run

    def __call__(self, **operands: npt.ArrayLike) -> dict[str, Words]:
        """Every output for every operand; scalars are repeated. float32 arrays stand for their bits."""
        if set(operands) != set(self._inputs):
            raise ValueError(f"operands must be {sorted(self._inputs)}, not {sorted(operands)}")
        arrays = [_words(operands[name]) for name in self._inputs]
        columns = [np.ascontiguousarray(column) for column in np.broadcast_arrays(*arrays)]
        n = columns[0].size
        outputs = {name: np.zeros(n, dtype=np.uint32) for name in self._outputs}
        self._run(
            _pointers(columns), _pointers(list(outputs.values())), ctypes.c_uint64(n), self.latency, self._interval
        )
        return outputs


def _words(x: npt.ArrayLike) -> Words:
    array = np.asarray(x)
    return array.view(np.uint32) if array.dtype == np.float32 else array.astype(np.uint32)


def _pointers(arrays: list[Words]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
