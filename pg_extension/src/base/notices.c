/*
 * Reports on a training's data, as NOTICE or WARNING: immediately, or in a job's row for its starter to read.
 *
 * Across the trainings of a cross-validation, a search or groups, messages that differ only in their numbers are
 * reported once.
 */
#include "postgres.h"

#include <ctype.h>

#include "base/dana.h"
#include "base/notices.h"

#define MAX_REPORTED 100

typedef struct reported
{
	char *essence; /* without numbers */
	char *text;
} reported;

static MemoryContext context; /* of the messages reported */
static reported			 list[MAX_REPORTED];
static int			 count;
static TimestampTz	 merged_in; /* start of the statement that reports each message once; 0: none yet */
static bool			 is_job;
void (*dana_notices_to)(int level, const char *hint, const char *message) = NULL;
static const char	*part; /* the part of the data that messages are about, or NULL */

void
dana_notices_merge(void)
{
	if (merged_in == GetCurrentStatementStartTimestamp())
		return;
	merged_in = GetCurrentStatementStartTimestamp();
	part = NULL;
	if (context != NULL && !is_job)
	{
		MemoryContextReset(context);
		count = 0;
	}
}

void
dana_notices_about(const char *model)
{
	part = model;
}

void
dana_notices_keep(void)
{
	is_job = true;
}

/* Whether a message has already been reported about any part of the data, in a statement that reports each once */
static bool
notices_remember(const char *level, const char *message, const char *about, const char *hint)
{
	const bool	  merged = merged_in == GetCurrentStatementStartTimestamp();
	MemoryContext caller;
	char		 *essence;
	char		 *to;
	bool		  name = false; /* a digit after these is part of a name */

	if (!merged && !is_job)
		return false;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "dana notices", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	essence = to = pstrdup(message);
	for (const char *from = message; *from != '\0'; from++)
	{
		if (!isdigit((unsigned char)*from))
			name = isalpha((unsigned char)*from) || *from == '_' || IS_HIGHBIT_SET(*from);
		else if (!name)
			continue;
		*to++ = *from;
	}
	*to = '\0';
	MemoryContextSwitchTo(caller);
	for (int i = 0; i < count && merged; i++)
		if (strcmp(list[i].essence, essence) == 0)
			return true;
	if (count < MAX_REPORTED)
		list[count++] = (reported){essence, MemoryContextStrdup(context, psprintf(
			"%s: %s%s%s%s", level, message, about, hint != NULL ? "\nHint: " : "", hint != NULL ? hint : ""))};
	return false;
}

/* Messages held back until they are reported or dropped */
typedef struct held
{
	int			level;
	const char *message;
	const char *hint;
} held;

static List *holding; /* its first element is empty; NIL: nothing is held back */

void
dana_notices_hold(void)
{
	holding = list_make1(palloc0(sizeof(held)));
}

void
dana_notices_let_go(bool report)
{
	List *let_go = holding;

	holding = NIL;
	for (int i = 1; report && i < list_length(let_go); i++)
	{
		const held *one = list_nth(let_go, i);

		dana_notice(one->level, one->hint, "%s", one->message);
	}
}

Datum
dana_notices_kept(void)
{
	Datum *texts = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		texts[i] = CStringGetTextDatum(list[i].text);
	return PointerGetDatum(construct_array(texts, count, TEXTOID, -1, false, TYPALIGN_INT));
}

void
dana_notice(int level, const char *hint, const char *format, ...)
{
	const char	  *about = part != NULL ? psprintf(" (model \"%s\")", part) : "";
	StringInfoData message;
	va_list		   arguments;
	int			   needed;

	initStringInfo(&message);
	do
	{
		va_start(arguments, format);
		needed = appendStringInfoVA(&message, format, arguments);
		va_end(arguments);
		if (needed > 0)
			enlargeStringInfo(&message, needed);
	} while (needed > 0);
	if (holding != NIL)
	{
		MemoryContext caller = MemoryContextSwitchTo(GetMemoryChunkContext(holding));
		held		 *one = palloc(sizeof *one);

		*one = (held){level, pstrdup(message.data), hint != NULL ? pstrdup(hint) : NULL};
		holding = lappend(holding, one);
		MemoryContextSwitchTo(caller);
	}
	else if (dana_notices_to != NULL && level >= NOTICE)
		dana_notices_to(level, hint, message.data);
	else if (level < NOTICE || !notices_remember(level == WARNING ? "WARNING" : "NOTICE", message.data, about, hint))
		ereport(level, (errmsg_internal("%s%s", message.data, about), hint != NULL ? errhint("%s", hint) : 0));
	pfree(message.data);
}
