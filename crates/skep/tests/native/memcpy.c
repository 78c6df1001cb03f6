/* Compares `copied`, which is native/memcpy.c under another name, with the plainest copy there is. */

#include <stddef.h>
#include <stdio.h>

void *copied(void *destination, const void *source, size_t length);

enum { MARGIN = 40, MOST = 1200, ROOM = MOST + 2 * MARGIN };

int main(void)
{
	unsigned char source[ROOM], ours[ROOM];

	for (size_t i = 0; i < ROOM; i++)
		source[i] = (unsigned char)(i * 7 + i / 251 + 3);
	for (size_t from = 0; from < 9; from++)
		for (size_t to = MARGIN; to < MARGIN + 17; to++)
			for (size_t length = 0; length <= MOST; length++) {
				for (size_t i = 0; i < ROOM; i++)
					ours[i] = 0xa5;
				if (copied(ours + to, source + from, length) != ours + to)
					return printf("another address: %zu %zu %zu\n", from, to, length), 1;
				for (size_t i = 0; i < ROOM; i++) {
					unsigned char wanted = i >= to && i < to + length ? source[from + i - to] : 0xa5;

					if (ours[i] != wanted)
						return printf("another byte: %zu %zu %zu\n", from, to, length), 1;
				}
			}
	return 0;
}
