/*
 * What a training tells the client while it runs, at the level of the setting dana.notices.
 */
#pragma once

#include "utils/jsonb.h"

#include "models.h"

extern void dana_notices_define(void);

/* An epoch ended: the worker's EPOCH, and how many there will be at most */
extern void dana_notice_epoch(Jsonb *epoch, int64 epochs);

/* A training ended */
extern void dana_notice_run(const dana_new_model *model);
