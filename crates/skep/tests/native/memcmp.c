/* Compares `compared` and `unlike`, which are native/memcmp.c under other names, with the plainest comparison there is. */

#include <stddef.h>
#include <stdio.h>

int compared(const void *left, const void *right, size_t length);
int unlike(const void *left, const void *right, size_t length);

enum { MOST = 70, ROOM = MOST + 9 };

static int sign(int value)
{
	return (value > 0) - (value < 0);
}

int main(void)
{
	static const unsigned char values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	unsigned char left[ROOM], right[ROOM];

	for (size_t shift = 0; shift < 9; shift++)
		for (size_t length = 0; length <= MOST; length++)
			for (size_t first = 0; first <= length; first++)
				for (size_t pair = 0; pair < 25; pair++) {
					unsigned char a = values[pair / 5], b = values[pair % 5];
					int wanted = first < length ? sign((int)a - (int)b) : 0;

					for (size_t i = 0; i < ROOM; i++)
						left[i] = right[i] = (unsigned char)(i * 7);
					/* What follows the first difference, or the end, must not count. */
					for (size_t i = first; i < MOST; i++) {
						left[i] = (unsigned char)(first == i ? a : i * 5);
						right[i + shift] = (unsigned char)(first == i ? b : i * 3);
					}
					for (size_t i = 0; i < first; i++)
						right[i + shift] = left[i];
					if (a == b && first < length)
						for (size_t i = first + 1; i < length; i++)
							right[i + shift] = left[i];
					if (sign(compared(left, right + shift, length)) != wanted)
						return printf("another order: %zu %zu %zu %d %d\n", shift, length, first, a, b), 1;
					if ((unlike(left, right + shift, length) != 0) != (wanted != 0))
						return printf("another answer: %zu %zu %zu %d %d\n", shift, length, first, a, b), 1;
				}
	return 0;
}
