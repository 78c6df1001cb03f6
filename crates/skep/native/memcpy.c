/*
 * memcpy for static programs on x86-64.
 *
 * musl leaves every length to the processor's string instruction, which takes longer to begin than most copies take: they
 * are of names, headers and small messages.
 *
 * Where the destination lies below the source, they may overlap: everything is read before it is written over. memmove.c
 * relies on that.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Below this, pieces of 16 bytes are faster than the string instruction. */
#define LONG 160

struct piece {
	uint64_t words[2];
};

#define READ(type, name, from) type name; __builtin_memcpy(&name, (from), sizeof name)
#define WRITE(name, to) __builtin_memcpy((to), &name, sizeof name)

void *memcpy(void *destination, const void *source, size_t length)
{
	unsigned char *to = destination;
	const unsigned char *from = source;

	/* Short ones are two pieces, which overlap unless the length is exactly both. */
	if (length >= 16) {
		READ(struct piece, last, from + length - 16);
		unsigned char *end = to + length - 16;

		if (length < LONG) {
			for (; to < end; to += 16, from += 16) {
				READ(struct piece, next, from);
				WRITE(next, to);
			}
		} else {
			size_t words = (length - 1) / 8;

			__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
		}
		WRITE(last, end);
	} else if (length >= 8) {
		READ(uint64_t, first, from);
		READ(uint64_t, last, from + length - 8);
		WRITE(first, to);
		WRITE(last, to + length - 8);
	} else if (length >= 4) {
		READ(uint32_t, first, from);
		READ(uint32_t, last, from + length - 4);
		WRITE(first, to);
		WRITE(last, to + length - 4);
	} else if (length >= 2) {
		READ(uint16_t, first, from);
		READ(uint16_t, last, from + length - 2);
		WRITE(first, to);
		WRITE(last, to + length - 2);
	} else if (length == 1) {
		*to = *from;
	}
	return destination;
}
