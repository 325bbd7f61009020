/*
 * What a training tells the client while it runs, at the level of the setting dana.notices.
 */
#pragma once

#include "utils/guc.h"
#include "utils/jsonb.h"

#include "models.h"

typedef enum dana_notice_level
{
	DANA_NOTICES_NONE,
	DANA_NOTICES_RUN,
	DANA_NOTICES_EPOCH
} dana_notice_level;

extern int								dana_notices;
extern const struct config_enum_entry dana_notices_options[];

/* An epoch ended: the worker's EPOCH, and how many there will be at most */
extern void dana_notice_epoch(Jsonb *epoch, int64 epochs);

/* A training ended */
extern void dana_notice_run(const dana_new_model *model);
