/*
 * Checkpoints of a training on several servers, which its worker asks for and sends.
 */
#pragma once

#include "worker/channel.h"

/*
 * Answers DANA_MSG_RESUME with the state that the model's row of dana.checkpoint has, or nothing. Until the transaction
 * ends no other training has the row.
 */
extern void dana_checkpoint_resume(const char *model);

/* Has the state in a DANA_MSG_CHECKPOINT written, unless the one before is still being written; waits for nothing */
extern void dana_checkpoint_save(const char *model, const dana_reply *reply);

/* Removes the row, with the transaction: the training is over */
extern void dana_checkpoint_drop(const char *model);
