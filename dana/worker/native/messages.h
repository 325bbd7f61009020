/* What dana/worker/messages.py says, in C. Written by python -m dana.generated. */
#ifndef DANA_MESSAGES_H
#define DANA_MESSAGES_H

/*
 * A message on the socket:
 *
 *   +----------------+------+-------------------------------+
 *   | length: uint32 | type | payload: `length` bytes       |
 *   +----------------+------+-------------------------------+
 *
 * The payload is JSON in UTF-8; that of DANA_MSG_TRAIN and DANA_MSG_RESULT is a uint32 with the JSON's length, the JSON,
 * zeros up to a multiple of four bytes, and raw bytes.
 */
#define DANA_FRAME_HEADER 5u /* bytes before a payload */
#define DANA_MAX_REQUEST 67108864u /* bytes of JSON that a worker accepts */
#define DANA_MAX_MESSAGE 1048576000u /* bytes of a payload with raw bytes; below MaxAllocSize */

enum dana_message
{
	DANA_MSG_HELLO = 'H', /* to the worker: release, block_size, server_version, pid, encoding; carries the ring's memfd */
	DANA_MSG_CHECK = 'C', /* to the worker: rule source to be checked */
	DANA_MSG_CATEGORIES = 'K', /* to the worker: what TRAIN has but for weights; of which columns are the numbers to be looked at? */
	DANA_MSG_TRAIN = 'T', /* to the worker: a training: its rule, relation, arguments; raw: weights that it starts from */
	DANA_MSG_EXPLAIN = 'P', /* to the worker: a training that is not to be, in `training`, and device, search, rows, last */
	DANA_MSG_WELCOME = 'h', /* answer to HELLO: release, pid */
	DANA_MSG_CHECKED = 'c', /* answer to CHECK */
	DANA_MSG_COUNTED = 'k', /* answer to CATEGORIES: columns to find the largest number of, choosing rows, and those also below 0 */
	DANA_MSG_EXPLAINED = 'p', /* answer to EXPLAIN: numbers, and lines for people */
	DANA_MSG_DESIGN = 'd', /* the rule compiled: stream the first epoch's pages, or frames; once more: begin anew */
	DANA_MSG_HELD_OUT = 'o', /* before DESIGN: stream the rows that are left out for a test, as frames */
	DANA_MSG_AGAIN = 'a', /* stream the pages once more, under the same snapshot */
	DANA_MSG_EPOCH = 'e', /* an epoch ended */
	DANA_MSG_NOTICE = 'n', /* something that the user should see */
	DANA_MSG_RESULT = 'r', /* the trained model; raw: its weights, and its predictor */
	DANA_MSG_ERROR = 'x', /* the request failed; ends it */
	DANA_MSG_BYE = 'z', /* the session idled and ends; whatever comes now is not read */
	DANA_MSG_BELL = 'b', /* both ways, empty: look at the ring */
};

#endif
