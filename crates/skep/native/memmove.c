/*
 * memmove for static programs on x86-64.
 *
 * musl moves bytes one at a time, backwards, whenever the source does not lie above the destination, even when they are
 * the same. The TLS library decrypts in place and then moves what it decrypted to where it is. So each byte that came
 * over TLS cost about as much as three copies of it.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One piece, read as a whole before any of it is written. */
struct piece {
	uint64_t words[4];
};

void *memmove(void *destination, const void *source, size_t length)
{
	unsigned char *to = destination;
	const unsigned char *from = source;

	if (to == from)
		return destination;
	/* Below the source, or above its end. musl's memcpy runs upwards, and its own memmove relies on that too. */
	if ((uintptr_t)to - (uintptr_t)from >= length)
		return memcpy(destination, source, length);
	while (length >= sizeof(struct piece)) {
		struct piece piece;

		length -= sizeof piece;
		__builtin_memcpy(&piece, from + length, sizeof piece);
		__builtin_memcpy(to + length, &piece, sizeof piece);
	}
	while (length > 0) {
		length--;
		to[length] = from[length];
	}
	return destination;
}
