/*
 * Common to all files of the extension: PostgreSQL's headers after postgres.h, errors, lists of texts.
 */
#pragma once

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"

/* Raises an error with a code and a message */
#define dana_error(code, ...) ereport(ERROR, (errcode(ERRCODE_##code), errmsg(__VA_ARGS__)))

/* Elements of a text[] */
typedef struct dana_texts
{
	int	   count;  /* -1: the array is NULL */
	char **values; /* NULL for a NULL element */
} dana_texts;
