/* Declarations of dana/worker/messages.py. Written by python -m dana.generated. */
#ifndef DANA_MESSAGES_H
#define DANA_MESSAGES_H

/*
 * A message on the socket:
 *
 *   +----------------+------+-------------------------------+
 *   | length: uint32 | type | payload: `length` bytes       |
 *   +----------------+------+-------------------------------+
 *
 * The payload is JSON in UTF-8. Exceptions: DANA_MSG_TRAIN, DANA_MSG_CHECKPOINT and DANA_MSG_RESULT
 * have a uint32 with the length of the JSON, the JSON, zeros up to a multiple of four bytes, and raw bytes;
 * DANA_MSG_EXCHANGE and DANA_MSG_RESUME have bytes that only trainers read.
 */
#define DANA_FRAME_HEADER 5u /* bytes before a payload */
#define DANA_MAX_REQUEST 67108864u /* bytes of JSON that a worker accepts */
#define DANA_MAX_MESSAGE 1048576000u /* bytes of a payload with raw bytes; below MaxAllocSize */

enum dana_message
{
	DANA_MSG_HELLO = 'H', /* to the worker: release, block_size, server_version, pid, encoding; carries the ring's memfd */
	DANA_MSG_CHECK = 'C', /* to the worker: the text of a rule to check */
	DANA_MSG_CATEGORIES = 'K', /* to the worker: TRAIN without weights; asks for the columns to examine */
	DANA_MSG_TRAIN = 'T', /* to the worker: a training with rule, relation and arguments; raw: initial weights */
	DANA_MSG_EXPLAIN = 'P', /* to the worker: a training to explain, in `training`, and device, search, rows, last */
	DANA_MSG_WELCOME = 'h', /* answer to HELLO: release, pid */
	DANA_MSG_CHECKED = 'c', /* answer to CHECK */
	DANA_MSG_COUNTED = 'k', /* answer to CATEGORIES: columns that need their largest number, that choose rows, that may be negative */
	DANA_MSG_EXPLAINED = 'p', /* answer to EXPLAIN: numbers, and formatted lines */
	DANA_MSG_DESIGN = 'd', /* the rule is compiled: stream the pages or frames of the first epoch; a second one starts over */
	DANA_MSG_HELD_OUT = 'o', /* before DESIGN: stream the held-out rows as frames */
	DANA_MSG_AGAIN = 'a', /* stream the pages again, under the same snapshot */
	DANA_MSG_EPOCH = 'e', /* an epoch ended */
	DANA_MSG_EXCHANGE = 'j', /* both ways, bytes alone: what the parts of a training on several servers say to each other */
	DANA_MSG_RESUME = 's', /* both ways: asks for the checkpoint of a training; answered with its state, or with no bytes */
	DANA_MSG_CHECKPOINT = 'w', /* the state after an epoch; raw: bytes that only the trainer reads */
	DANA_MSG_NOTICE = 'n', /* a message to the user */
	DANA_MSG_RESULT = 'r', /* the trained model; raw: its weights and predictor */
	DANA_MSG_ERROR = 'x', /* the request failed; ends the request */
	DANA_MSG_BYE = 'z', /* the session was idle and ends; later requests are not read */
	DANA_MSG_BELL = 'b', /* both ways, empty: look at the ring */
};

#endif
