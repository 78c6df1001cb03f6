/* Compares `moved`, which is native/memmove.c under another name and on top of native/memcpy.c, with the plainest move. */

#include <stddef.h>
#include <stdio.h>

void *moved(void *destination, const void *source, size_t length);

enum { ROOM = 1600, MOST = 700 };

int main(void)
{
	unsigned char ours[ROOM], theirs[ROOM], kept[ROOM];

	for (size_t from = 100; from <= 100 + 9; from++)
		for (size_t to = 0; to <= 210; to += to < 90 || to > 120 ? 7 : 1)
			for (size_t length = 0; length <= MOST; length += length < 200 || length > 500 ? 1 : 13) {
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
