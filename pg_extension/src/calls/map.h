/*
 * The shards of a table: where they lie, connections to their servers, and what each is like.
 */
#pragma once

#include "replication/walreceiver.h"
#include "utils/timestamp.h"

#include "base/dana.h"

typedef struct dana_shard
{
	int				 number;
	int				 timeout; /* milliseconds without a message after which it is lost */
	char			*server;
	char			*table; /* its name there, qualified and quoted */
	char			*label; /* for messages: number, name and server */
	Oid				 source; /* the table with the map */
	char			*named;	 /* its foreign server in the map, or NULL */
	char			*relation; /* its name there in the map, until it is qualified; or NULL */
	Oid				 foreign;  /* its foreign server, if it has one */
	char			*conninfo; /* its connection string; without either it is on this server */
	bool			 password_required;
	WalReceiverConn *connection;
	/* from here on it is what it has answered */
	char	   *columns; /* with their types; NULL: it has not answered yet */
	dana_texts	key_columns; /* of the primary key */
	char	   *key;	 /* the same, quoted here; empty: it has none */
	char	   *place;	 /* distinguishes it from all other tables */
	char	   *function; /* the name of dana_shard_pages() there */
	char	   *no_pages; /* why it has none to hand over, or NULL */
	char	   *version;
	int64		rows; /* as its planner has counted them; negative: it has not */
	int64		pages;
	TimestampTz snapshot; /* when it was taken, by this server's clock */
	char	   *release; /* of the extension there, or NULL */
	char	   *statement; /* that it runs */
	int			answer_columns;
	const Oid  *answer_types;
	WalRcvExecResult *answer;
	pgsocket	socket; /* of the connection, once a message was waited for */
	char	   *message; /* the last one, which is libpq's, and its length */
	int			length;
} dana_shard;

/* Most bytes of what a shard's server says in a message */
#define DANA_SHARD_SAID 2000

/* Raises an error that begins with the shard */
#define dana_shard_error(code, shard, ...) \
	ereport(ERROR, (errcode(code), errmsg("%s: %s", (shard)->label, dana_plain(psprintf(__VA_ARGS__), DANA_SHARD_SAID))))

/* The shards of a table, in their order: those of dana.shard, else its partitions; connected to SPI */
extern int dana_shards_of(Oid source, int timeout, dana_shard **shards);

/* A timeout in milliseconds; an error unless it is one */
extern int dana_shard_timeout(double seconds);

/* Connects to a shard's server; nothing for one on this server */
extern void dana_shard_connect(dana_shard *shard);

/* Reads under a snapshot what its table is like, which cannot change until it is closed */
extern void dana_shard_look(dana_shard *shard);

/* Connects to all, looks at all, and raises an error unless they fit together and, if so asked, have pages to gather */
extern void dana_shards_open(dana_shard *shards, int count, Oid source, bool pages);

/* A NOTICE of how far apart their snapshots were taken */
extern void dana_shards_say_when(const dana_shard *shards, int count);

/* The rows of a statement there; a malicious server may send more than its LIMIT */
typedef struct dana_shard_rows
{
	WalRcvExecResult *answer;
	TupleTableSlot	 *slot; /* the row */
	int				  left; /* most rows to come */
} dana_shard_rows;

/* Runs a statement there whose columns have these types, and takes at most `most` rows */
extern dana_shard_rows dana_shard_select(dana_shard *shard, char *statement, int columns, const Oid *types, int most);

/* Whether there is a next row, which is then in `slot`; at the end all is freed */
extern bool dana_shard_next(dana_shard_rows *rows);

/* Has the shard send the rows of a query, by binary COPY; or run a statement that sends and receives, by CopyBoth */
extern void dana_shard_copy(dana_shard *shard, const char *query);
extern void dana_shard_exchange(dana_shard *shard, char *statement);

/* The next message, which lives until another one is asked for: its length, -1 at the end, 0: none has come yet */
extern int	dana_shard_receive(dana_shard *shard, char **message);
extern void dana_shard_send(dana_shard *shard, const char *message, Size length);
extern void dana_shards_close(dana_shard *shards, int count);

/* Raises an error unless shard `number` (from 0) fits to those before it and, if so asked, has pages to gather */
extern void dana_shard_check(const dana_shard *shards, int number, Oid source, bool pages);

/* The context of errors that others raise; its argument is the shard */
extern void dana_shard_context(void *shard);

/* Raises an error unless the caller may read the table's shards */
extern void dana_shards_require(Oid source);

/* The same for its rows; open, and locked */
extern Relation dana_shards_lock(Oid source);

/* Adds the primary key of the shards to a table of their rows, unless two of them have the same, which is a warning */
extern void dana_shards_index(const char *table, const char *key);

/*
 * A temporary table of the pages of all shards, by that name, or by the table's until the transaction ends (NULL); it
 * has the index of their primary key, unless it is for one training alone, and it is certain without one that keys are
 * distinct
 */
extern Oid dana_gather_shards(Oid source, char *into, int timeout, bool one_training);

/* Milliseconds without a message after which a shard is lost: dana.shard_timeout */
extern int	dana_shards_timeout;
extern void dana_shards_define(void);
