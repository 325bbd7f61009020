"""Faults for a rule's own code: what is compiled, and what is refused."""

from __future__ import annotations

from benchmarks.faults.fault import faults

JIT = (
    *faults(
        "dana/jit",
        "tests/lockstep/test_compiled_code.py -k 'engine_s_bits and records'",
        (
            "parts.py",
            "alone = late.issuperset(readers[k])",
            "alone = True",
            "what a turn reads is computed after it, too",
        ),
    ),
    *faults(
        "dana/jit",
        "tests/lockstep/test_compiled_code.py -k 'engine_s_bits and rows-20'",
        ("emit.py", "self._outermost = t.level  #", "self._outermost = 0  #", "models are read once for all tuples"),
    ),
    *faults(
        "dana/jit",
        "tests/lockstep/test_compiled_code.py -k counting",
        ("emit.py", "builder.add(I64(self._run), builder.load", "builder.add(I64(1), builder.load", "a block is a row"),
        ("emit.py", "for k in self._counting if is_last else ():", "for k in ():", "epochs are not counted"),
        ("values.py", "number = builder.add(first.value, I64(t.const))", "number = first.value", "rows of a block"),
    ),
    *faults(
        "dana/jit",
        "tests/lockstep/test_compiled_code.py",
        ("arithmetic.py", "if i + extent >= before:", "if i + extent > before:", "folds beyond what is left"),
        ("folds.py", "FLOAT(IDENTITIES[op])", "FLOAT(IDENTITIES[op] or 0.0)", "sums of -0.0 alone"),
        ("arithmetic.py", 'Op.LE: "<="', 'Op.LE: "<"', "<= is <"),
        ("arithmetic.py", 'builder.fcmp_unordered("!="', 'builder.fcmp_ordered("!="', "a NaN is false"),
        (
            "plan.py",
            "if any(model in self.reads(other.value) for other in self.graph.updates):",
            "if False:",
            "a model is changed too soon",
        ),
        ("emit.py", "while group >> (at - low) & 1:", "while group >> (at - low) & 2:", "a block's halves not joined"),
        ("emit.py", "self._builder.add(count, I64(self._run))", "count", "a batch's rows over each other"),
        (
            "emit.py",
            "builder.fadd(errors, builder",
            "builder.fadd(FLOAT(0.0), builder",
            "only the last error of the losses' sum",
        ),
        ("plan.py", "reads > self.phase[k] and any(", "False and any(", "a later pass reads the last block's values"),
        ("emit.py", "if plan.phase[k] == phase + 1:", "if True:", "merges in every pass"),
        (
            "values.py",
            "if self.places[k].spacing or k in self.plan.flushed:",
            "if True:",
            "a page's subnormals in a model",
        ),
        ("folds.py", "k, (), Index(const=n * size))", "k, (), ZERO)", "folds of a block over each other"),
        ("folds.py", "[(group, rest // SIDE)]", "[(group, 1)]", "folds of some tuples over each other"),
        ("plan.py", "is self.nodes[k].op for one in", "in REDUCTIONS for one in", "a maximum as a sum, beside one"),
    ),
    *faults(
        "dana/simulator",
        "tests/lockstep/test_compiled_code.py",
        (
            "layout.py",
            "return (*shape[:-1], -(-shape[-1] // lanes) * lanes)",
            "return (*shape[:-1], shape[-1])",
            "rows without room",
        ),
    ),
    *faults(
        "dana/jit",
        "tests/lockstep/test_tables.py -k side_by_side",
        ("code.py", "batch=bundle.rule_batch,\n    )", "batch=bundle.batch,\n    )", "code with the machine's batches"),
    ),
    *faults(
        "dana/jit",
        "tests/lockstep/test_turns.py",
        ("parts.py", "scalars - earlier - early", "scalars - early", "what a turn reads comes after it"),
        ("parts.py", "{Op.EXPAND, Op.GATHER}", "{Op.EXPAND}", "rows that have moved on"),
        ("emit.py", "[FLOAT(float(t)) for t in range(BLOCK)]", "[FLOAT(0.0)] * BLOCK", "a block's numbers are one"),
        ("emit.py", "builder.sitofp(count, FLOAT)", "FLOAT(16.0)", "blocks that are not full count as full"),
    ),
    *faults(
        "dana/simulator/native",
        "tests/lockstep/test_compiled_code.py -k 'there_is_not or later_one'",
        (
            "compiled.c",
            "for (int32_t t = 0; !right && t < count; t++)",
            "for (int32_t t = 0; !right && t < 1; t++)",
            "the first row alone",
        ),
        ("compiled.c", "if (code->merges[k].pass == number)", "if (true)", "merges joined before they are made"),
    ),
    *faults(
        "dana/simulator/native",
        "tests/lockstep/test_compiled_code.py -k 'engine_s_bits and phases'",
        ("core.c", "compiled->n_passes > 0 && sim->most", "false && sim->most", "passes over parts of a batch"),
        ("compiled.c", "if (!(tuples >> level & 1))\n\t\t\tcontinue;", "", "levels that hold nothing"),
    ),
)
