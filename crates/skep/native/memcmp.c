/*
 * memcmp for static programs on x86-64.
 *
 * musl compares bytes one at a time. Names in a cluster begin alike, and the operator looks them up all the time.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint64_t word(const unsigned char *from)
{
	uint64_t word;

	__builtin_memcpy(&word, from, sizeof word);
	return word;
}

/* Of two words that differ, the first byte that does decides: the lowest in memory. */
static int order(uint64_t left, uint64_t right)
{
	return __builtin_bswap64(left) < __builtin_bswap64(right) ? -1 : 1;
}

int memcmp(const void *left, const void *right, size_t length)
{
	const unsigned char *a = left, *b = right;

	if (length < sizeof(uint64_t)) {
		for (; length > 0; length--, a++, b++)
			if (*a != *b)
				return *a < *b ? -1 : 1;
		return 0;
	}
	for (const unsigned char *last = a + length - sizeof(uint64_t); a < last; a += sizeof(uint64_t), b += sizeof(uint64_t))
		if (word(a) != word(b))
			return order(word(a), word(b));
	/* The last word overlaps the one before it where the length is no multiple. */
	a = (const unsigned char *)left + length - sizeof(uint64_t);
	b = (const unsigned char *)right + length - sizeof(uint64_t);
	return word(a) == word(b) ? 0 : order(word(a), word(b));
}

int bcmp(const void *left, const void *right, size_t length)
{
	return memcmp(left, right, length);
}
