/* Compares `moved`, which is native/memmove.c under another name, with the plainest move there is. */

#include <stddef.h>
#include <stdio.h>

void *moved(void *destination, const void *source, size_t length);

/* Stands for musl's memcpy. */
void *upwards(void *destination, const void *source, size_t length)
{
	volatile unsigned char *to = destination;
	const volatile unsigned char *from = source;

	for (size_t i = 0; i < length; i++)
		to[i] = from[i];
	return destination;
}

enum { ROOM = 400 };

int main(void)
{
	unsigned char ours[ROOM], theirs[ROOM], kept[ROOM];

	for (size_t from = 100; from <= 100 + 9; from++)
		for (size_t to = 0; to <= 210; to++)
			for (size_t length = 0; length <= 180; length++) {
				for (size_t i = 0; i < ROOM; i++)
					ours[i] = theirs[i] = (unsigned char)(i * 7 + 3);
				for (size_t i = 0; i < length; i++)
					kept[i] = theirs[from + i];
				for (size_t i = 0; i < length; i++)
					theirs[to + i] = kept[i];
				if (moved(ours + to, ours + from, length) != ours + to)
					return printf("another address: %zu %zu %zu\n", from, to, length), 1;
				for (size_t i = 0; i < ROOM; i++)
					if (ours[i] != theirs[i])
						return printf("another byte: %zu %zu %zu\n", from, to, length), 1;
			}
	return 0;
}
