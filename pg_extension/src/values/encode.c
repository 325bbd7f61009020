/*
 * Encoding of columns that are not numbers: one number for each category of a text, parts of a date, values in place of
 * NULLs.
 *
 * A training builds a list with an encoder for each feature (features/). The list is in the model's metadata, and
 * predictions apply it. To the worker the encoded numbers are columns of a table: "city=Berlin".
 *
 * Values are compared by their bytes: no user-defined cast, operator or collation is called.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_index.h"
#include "common/hashfn.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/float.h"

#include "base/dana.h"
#include "base/json.h"
#include "values/encode.h"
#include "values/number_types.h"
#include "values/values.h"


const char *const dana_part_names[] = {"year", "month", "day", "dow", "hour"};

enum
{
	PART_YEAR,
	PART_MONTH,
	PART_DAY,
	PART_DOW,
	PART_HOUR
};

/* Values */

#define DATE_FUNCTIONS(type, unit, infinite, units) \
	static bool infinite_##type(Datum value) \
	{ \
		return infinite; \
	} \
	static int64 units_##type(Datum value) \
	{ \
		return units; \
	}
DANA_DATES(DATE_FUNCTIONS)

#define DATE_ROW(type, unit, ...) {type, unit, infinite_##type, units_##type},
static const dana_date_type date_types[] = {DANA_DATES(DATE_ROW)};

/* NULL if a type has no parts */
const dana_date_type *
dana_find_date_type(Oid type)
{
	for (int i = 0; i < lengthof(date_types); i++)
		if (date_types[i].type == type)
			return &date_types[i];
	return NULL;
}

/* Types that are encoded as categories by default; enums are ANYENUMOID */
bool
dana_is_text_type(Oid type)
{
	return type == TEXTOID || type == VARCHAROID || type == BPCHAROID || type == NAMEOID || type == ANYENUMOID;
}

bool
dana_is_integer_type(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

Oid
dana_encoded_type(Oid type)
{
	type = getBaseType(type);
	return type_is_enum(type) ? ANYENUMOID : type;
}

/* Whether a column of integers may be encoded as categories */
static bool
are_integers(const dana_texts *categories)
{
	for (int i = 0; i < categories->count; i++)
	{
		const char *digits = categories->values[i] + (categories->values[i][0] == '-');

		if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0')
			return false;
	}
	return true;
}

bool
dana_encoder_type(const dana_encoder *encoder, Oid given, dana_type *found)
{
	if (encoder->kind == DANA_ENCODE_NONE)
		return dana_type_of(given, found) && found->array == (encoder->width < 0);
	*found = (dana_type){.encoded = dana_encoded_type(given)};
	if (encoder->kind == DANA_ENCODE_PARTS)
		return dana_find_date_type(found->encoded) != NULL;
	return dana_is_text_type(found->encoded) || (dana_is_integer_type(found->encoded) && are_integers(&encoder->categories));
}

const char *
dana_encoder_wants(const dana_encoder *encoder)
{
	static const char *const wanted[] = {
		[DANA_ENCODE_NONE] = "a number",
		[DANA_ENCODE_ONE_HOT] = "a text or an enum",
		[DANA_ENCODE_PARTS] = "a date or a timestamp"};

	return encoder->width < 0 ? "an array of numbers" : wanted[encoder->kind];
}

/* Index of a text among the categories; -1 if it is not one of them */
static int
find_category(const dana_texts *categories, const char *text, Size length)
{
	int low = 0;
	int high = categories->count;

	while (low < high)
	{
		int			middle = (low + high) / 2;
		const char *one = categories->values[middle];
		const Size	bytes = strlen(one);
		int			order = memcmp(text, one, Min(length, bytes));

		if (order == 0 && length == bytes)
			return middle;
		if (order < 0 || (order == 0 && length < bytes))
			high = middle;
		else
			low = middle + 1;
	}
	return -1;
}

/* The number of a text's category; -1 if it has none */
static int
number_of_text(const dana_encoder *encoder, const char *text, Size length)
{
	if (encoder->buckets > 0)
		return (int)(hash_bytes_extended((const unsigned char *)text, (int)length, 0) % encoder->buckets);
	return find_category(&encoder->categories, text, length);
}

static int
category_of(const dana_encoder *encoder, Oid type, Datum value)
{
	char	  buffer[Max(NAMEDATALEN, 32)];
	char	 *text = buffer;
	HeapTuple tuple;

	if (type == TEXTOID || type == VARCHAROID || type == BPCHAROID)
	{
		struct varlena *packed = PG_DETOAST_DATUM_PACKED(value);
		int				length = VARSIZE_ANY_EXHDR(packed);

		text = VARDATA_ANY(packed);
		if (type == BPCHAROID)
			length = bpchartruelen(text, length);
		return number_of_text(encoder, text, length);
	}
	if (type == ANYENUMOID)
	{
		tuple = SearchSysCache1(ENUMOID, value);
		if (!HeapTupleIsValid(tuple))
			dana_error(INVALID_BINARY_REPRESENTATION, "invalid internal value for enum: %u", DatumGetObjectId(value));
		strlcpy(buffer, NameStr(((Form_pg_enum)GETSTRUCT(tuple))->enumlabel), sizeof buffer);
		ReleaseSysCache(tuple);
	}
	else if (dana_is_integer_type(type))
		pg_lltoa(type == INT2OID ? DatumGetInt16(value) : type == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value),
				 buffer);
	else
		text = DatumGetCString(value); /* a name */
	return number_of_text(encoder, text, strlen(text));
}

/* Parts of a moment in units since 2000-01-01, of a timestamp with time zone in UTC */
void
dana_write_parts(const dana_encoder *encoder, const dana_date_type *type, int64 units)
{
	const int64 units_of_day = USECS_PER_DAY / type->unit;
	const int64 rest = (units % units_of_day + units_of_day) % units_of_day;
	const int	date = (units - rest) / units_of_day + POSTGRES_EPOCH_JDATE;
	int			parts[lengthof(dana_part_names)];

	j2date(date, &parts[PART_YEAR], &parts[PART_MONTH], &parts[PART_DAY]);
	parts[PART_YEAR] -= parts[PART_YEAR] <= 0; /* as extract() has it: there is no year 0 */
	parts[PART_DOW] = j2day(date);
	parts[PART_HOUR] = rest * type->unit / USECS_PER_HOUR;
	for (int i = 0; i < encoder->width - encoder->indicator; i++)
		encoder->made[i] = parts[encoder->parts[i]];
}

/* The same for a value; NaN for an infinite one */
static void
encode_date(const dana_encoder *encoder, const dana_date_type *type, Datum value)
{
	if (!type->infinite(value))
		return dana_write_parts(encoder, type, type->units(value));
	for (int i = 0; i < encoder->width; i++)
		encoder->made[i] = get_float4_nan();
}

bool
dana_encode(const dana_encoder *encoder, const dana_type *type, Datum value, bool isnull, dana_numbers *numbers)
{
	const float *made = encoder->made;

	/* the length of a NULL array is known by its replacements */
	if (isnull && (encoder->fill == NULL || (encoder->width < 0 && encoder->fills == 1)))
		return false;
	if (isnull)
	{
		*numbers = (dana_numbers){.element = DANA_ELEMENT_FLOAT8, .count = encoder->fills, .stored = encoder->fills,
								  .values = (const char *)encoder->fill};
		return true;
	}
	if (encoder->kind == DANA_ENCODE_ONE_HOT)
	{
		int category = category_of(encoder, type->encoded, value);

		/* a one among zeros: the window starts so that the one is at the category's place */
		made += category >= 0 ? encoder->width - 1 - category
				: encoder->other ? encoder->width - 1 - encoder->categories.count : encoder->width;
	}
	else if (encoder->kind == DANA_ENCODE_PARTS)
		encode_date(encoder, dana_find_date_type(type->encoded), value);
	else if (encoder->indicator)
	{
		encoder->pair[0] = dana_number_of(type, value);
		*numbers = (dana_numbers){.element = DANA_ELEMENT_FLOAT8, .count = 2, .stored = 2,
								  .values = (const char *)encoder->pair};
		return true;
	}
	else
	{
		dana_numbers_of(type, value, numbers);
		numbers->fill = encoder->fill;
		numbers->fills = encoder->fills;
		return true;
	}
	*numbers = (dana_numbers){.element = DANA_ELEMENT_FLOAT4, .count = encoder->width, .stored = encoder->width,
							  .values = (const char *)made};
	return true;
}

/* The list, as JSON */

/* Completes an encoder that has all members but `made` */
void
dana_encoder_finish(dana_encoder *encoder)
{
	if (encoder->kind == DANA_ENCODE_ONE_HOT)
		encoder->width = encoder->categories.count + encoder->buckets + encoder->other;
	encoder->width += encoder->indicator;
	encoder->pair = palloc0(sizeof(double) * 2);
	encoder->made = palloc0(sizeof(float) * 2 * Max(encoder->width, 1));
	if (encoder->kind == DANA_ENCODE_ONE_HOT && encoder->width > 0)
		encoder->made[encoder->width - 1] = 1;
}

static int
part_number(const char *name)
{
	int i = 0;

	while (i < lengthof(dana_part_names) && strcmp(name, dana_part_names[i]) != 0)
		i++;
	return i;
}

/* Sets the parts that words name; false if one is unknown or occurs twice */
bool
dana_encoder_set_parts(dana_encoder *encoder, const dana_texts *words)
{
	encoder->kind = DANA_ENCODE_PARTS;
	encoder->width = words->count;
	for (int i = 0; i < words->count && i < lengthof(dana_part_names); i++)
	{
		encoder->parts[i] = part_number(words->values[i]);
		for (int k = 0; k < i; k++)
			if (encoder->parts[k] == encoder->parts[i])
				return false;
		if (encoder->parts[i] == lengthof(dana_part_names))
			return false;
	}
	return words->count > 0 && words->count <= lengthof(dana_part_names);
}

/* Reads an encoder that dana_encoding_append() wrote; false if it is invalid */
static bool
encoder_read(Jsonb *from, dana_encoder *encoder)
{
	char	  *kind = dana_json_string(from, "encode");
	dana_texts words;

	*encoder = (dana_encoder){.column = dana_json_string(from, "column"), .width = 1};
	if (strcmp(kind, "array") == 0)
		encoder->width = -1;
	else if (strcmp(kind, "one_hot") == 0)
	{
		encoder->kind = DANA_ENCODE_ONE_HOT;
		if (!dana_json_are_texts(from, "categories"))
			return false;
		encoder->categories = dana_json_texts(from, "categories");
		encoder->other = dana_json_boolean(from, "other");
		for (int i = 1; i < encoder->categories.count; i++)
			if (strcmp(encoder->categories.values[i - 1], encoder->categories.values[i]) >= 0)
				return false;
	}
	else if (strcmp(kind, "hash") == 0)
	{
		encoder->kind = DANA_ENCODE_ONE_HOT;
		encoder->buckets = (int)dana_json_double(from, "buckets");
		if (encoder->buckets < 1 || encoder->buckets > DANA_MAX_COLUMNS)
			return false;
	}
	else if (!dana_json_is_null(from, "encode"))
	{
		if (!dana_json_are_texts(from, "encode"))
			return false;
		words = dana_json_texts(from, "encode");
		if (!dana_encoder_set_parts(encoder, &words))
			return false;
	}
	encoder->indicator = dana_json_boolean(from, "indicator");
	if (encoder->indicator && encoder->width < 0)
		return false;
	dana_encoder_finish(encoder);
	if (dana_json_is_null(from, "impute"))
		return true;
	encoder->fills = dana_json_doubles(from, "impute", &encoder->fill);
	return encoder->width < 0 ? encoder->fills > 0 : encoder->fills == Max(encoder->width, 1);
}

double
dana_centres_read(Jsonb *metadata, int64 numbers, const char *model, double **centres)
{
	Jsonb *stored;
	int	   count;

	*centres = NULL;
	if (dana_json_is_null(metadata, "centres"))
		return 0;
	stored = dana_json_member(metadata, "centres");
	count = JB_ROOT_IS_OBJECT(stored) ? dana_json_doubles(stored, "features", centres) : -1;
	if (count != 0 && count != numbers)
		dana_error(DATA_CORRUPTED, "metadata.centres of model \"%s\" is malformed", model);
	if (count == 0)
		*centres = NULL;
	return dana_json_double(stored, "label");
}

dana_encoder *
dana_encoders_read(Jsonb *metadata, int *count)
{
	Jsonb		**list;
	dana_encoder *encoders;

	*count = dana_json_objects(metadata, "preprocess", &list);
	if (*count < 0)
		dana_error(DATA_CORRUPTED, "metadata.preprocess of a model is malformed");
	if (*count == 0)
		return NULL;
	encoders = palloc0(sizeof *encoders * *count);
	for (int i = 0; i < *count; i++)
		if (!encoder_read(list[i], &encoders[i]))
			dana_error(DATA_CORRUPTED, "element %d of metadata.preprocess of a model is malformed", i + 1);
	return encoders;
}

/* Appends the list as a member "preprocess" */
static void
append_encoders(StringInfo to, const dana_encoding *encoding)
{
	dana_json_open(to, "preprocess", '[');
	for (int i = 0; i < encoding->count; i++)
	{
		const dana_encoder *encoder = &encoding->encoders[i];

		dana_json_open(to, NULL, '{');
		dana_json_text(to, "column", encoder->column);
		if (encoder->buckets > 0)
		{
			dana_json_text(to, "encode", "hash");
			dana_json_number(to, "buckets", encoder->buckets);
		}
		else if (encoder->kind == DANA_ENCODE_ONE_HOT)
		{
			dana_json_text(to, "encode", "one_hot");
			dana_json_open(to, "categories", '[');
			for (int k = 0; k < encoder->categories.count; k++)
				dana_json_text(to, NULL, encoder->categories.values[k]);
			dana_json_close(to, ']');
			dana_json_truth(to, "other", encoder->other);
		}
		else if (encoder->kind == DANA_ENCODE_PARTS)
		{
			dana_json_open(to, "encode", '[');
			for (int k = 0; k < encoder->width - encoder->indicator; k++)
				dana_json_text(to, NULL, dana_part_names[encoder->parts[k]]);
			dana_json_close(to, ']');
		}
		else if (encoder->width < 0)
			dana_json_text(to, "encode", "array");
		if (encoder->indicator)
			dana_json_truth(to, "indicator", true);
		if (encoder->fill != NULL)
		{
			dana_json_open(to, "impute", '[');
			for (int k = 0; k < encoder->fills; k++)
				dana_json_number(to, NULL, encoder->fill[k]);
			dana_json_close(to, ']');
		}
		dana_json_close(to, '}');
	}
	dana_json_close(to, ']');
}

/* The name of a number that an encoder makes, as a column */
static char *
virtual_name(const dana_encoder *encoder, int number)
{
	char *other = "other";

	if (encoder->indicator && number == encoder->width - 1)
		return psprintf("%s.null", encoder->column);
	if (encoder->kind == DANA_ENCODE_NONE)
		return encoder->column;
	if (encoder->kind == DANA_ENCODE_PARTS)
		return psprintf("%s.%s", encoder->column, dana_part_names[encoder->parts[number]]);
	if (encoder->buckets > 0)
		return psprintf("%s#%d", encoder->column, number);
	if (number < encoder->categories.count)
		return psprintf("%s=%s", encoder->column, encoder->categories.values[number]);
	while (find_category(&encoder->categories, other, strlen(other)) >= 0)
		other = psprintf("(%s)", other);
	return psprintf("%s=%s", encoder->column, other);
}

dana_texts
dana_encoding_names(const dana_encoding *encoding)
{
	dana_texts names = {.values = palloc(sizeof(char *) * Max(encoding->columns, 1))};

	for (int i = 0; i < encoding->count; i++)
		for (int k = 0; k < abs(encoding->encoders[i].width); k++)
			names.values[names.count++] = virtual_name(&encoding->encoders[i], k);
	return names;
}

void
dana_encoding_append(StringInfo to, const dana_encoding *encoding)
{
	dana_texts names = dana_encoding_names(encoding);

	dana_json_open(to, "features", '[');
	for (int i = 0; i < encoding->count; i++)
		dana_json_text(to, NULL, encoding->encoders[i].column);
	dana_json_close(to, ']');
	dana_json_open(to, "encoded", '[');
	for (int i = 0; i < names.count; i++)
		dana_json_text(to, NULL, names.values[i]);
	dana_json_close(to, ']');
	append_encoders(to, encoding);
}
