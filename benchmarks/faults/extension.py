"""Faults for the extension's C: predictors, what a snapshot sees, metrics, columns encoded."""

from __future__ import annotations

from benchmarks.faults.fault import faults

SRC = "pg_extension/src"

EXTENSION = (
    *faults(
        SRC,
        "tests/postgres/test_predictor.py",
        (
            "predictor.c",
            "if (i->out < scratch_start || i->out + out > end)",
            "if (i->out + out > end)",
            "results over weights",
        ),
        ("predictor.c", "if (last >= end)", "if (last > end)", "an operand a number beyond memory"),
        ("predictor.c", "if (total > DANA_PREDICTOR_FLOATS)", "if (0)", "extents whose product overflows"),
        ("predictor.c", "if (words[0] != DANA_PREDICTOR_MAGIC)", "if (0)", "predictors of another version"),
        ("predictor.c", "(uint64_t)predictor->result + predictor->width > end", "0", "a result outside memory"),
        ("predictor.c", "|| index != (float)(uint32_t)index", "", "half a row"),
        (
            "predictor.c",
            "(uint32_t)index >= i->operand[2].start)",
            "(uint32_t)index > i->operand[2].start)",
            "a row behind the last",
        ),
        ("predictor.c", "return UINT32_C(1) << (31 - __builtin_clz(n - 1));", "return n / 2;", "sums by halves"),
        ("predictor_codes.h", "CODE(LE, 2, dn_le(A, B))", "CODE(LE, 2, dn_lt(A, B))", "<= is <"),
    ),
    *faults(
        SRC,
        "tests/postgres/test_visibility.py --postgresql 16 -k 'states or snapshot or uncommitted or serializable'",
        (
            "source.c",
            "(HEAP_XMAX_INVALID | HEAP_XMIN_COMMITTED)) != (HEAP_XMAX_INVALID | HEAP_XMIN_COMMITTED)",
            "HEAP_XMIN_COMMITTED) != HEAP_XMIN_COMMITTED",
            "rows that are deleted",
        ),
        (
            "source.c",
            "TransactionIdPrecedes(HeapTupleHeaderGetRawXmin(tuple), xmin_horizon)",
            "true",
            "rows of the future",
        ),
        (
            "source.c",
            "HeapCheckForSerializableConflictOut(visible, source->relation, &tuple, buffer, snapshot);",
            ";",
            "serializable dependencies",
        ),
        (
            "source.c",
            "ItemIdSetUnused(PageGetItemId(copy, i));\n\t}\n}\n\n/*\n * ",
            "(void)copy;\n\t}\n}\n\n/*\n * ",
            "invisible rows",
        ),
    ),
    *faults(
        SRC,
        "tests/sql/test_metrics.py -k 'two_classes or regression or several or no_number'",
        ("regression.c", "distance * (label - state->mean)", "distance * distance", "the spread of the labels"),
        ("regression.c", "sqrtl(state->squared / state->rows)", "state->squared / state->rows", "no root"),
        ("metrics.c", "(below + negatives / 2.0L)", "(below + negatives)", "ties are won"),
    ),
    *faults(
        SRC,
        "tests/sql/test_several.py -k 'metrics or refusals or labels'",
        ("predict.c", "if (model != NULL && model->several)", "if (false)", "the largest of several numbers"),
        ("regression.c", "known++;", "known = count;", "a mean over outputs that have no metric"),
        ("regression.c", "add_error(&state->each[i], labels[i]", "add_error(&state->each[i], labels[0]", "one label"),
        ("values.c", "to += numbers[i].count;", "to += 1;", "labels of several arrays"),
        ("values.c", "if (numbers[i].present != NULL)", "if (false)", "a label that is NULL"),
    ),
    *faults(
        SRC,
        "tests/sql/test_encoding.py -k 'by_hand or christ or rare or nulls_are or predictions'",
        ("encode.c", "encoder->width - 1 - category", "encoder->width - category", "the next category"),
        (
            "encode.c",
            "(units % units_of_day + units_of_day) % units_of_day",
            "units % units_of_day",
            "dates before 2000",
        ),
        ("encode.c", "length = bpchartruelen(text, length);", ";", "char(n) with its blanks"),
        ("encode.c", "parts[PART_YEAR] -= parts[PART_YEAR] <= 0;", "", "years before Christ"),
    ),
)
