//! The fuzz targets, driven by seeds, damaged seeds and random bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::SEEDS;

fn everything(data: &[u8]) {
    super::message(data);
    super::splice(data);
    super::sse(data);
    super::lines(data);
    super::headers(data);
    super::bridge(data);
}

fn joined(first: &[u8], second: &[u8]) -> Vec<u8> {
    [first, b"\0", second].concat()
}

#[test]
fn seeds_hold_alone_and_in_pairs() {
    for first in SEEDS {
        everything(first);
        for second in [b"7".as_slice(), b"\"x\"", b"null", b"{\"a\":{}}", b"[1]"].iter().chain(SEEDS) {
            everything(&joined(first, second));
            everything(&joined(second, first));
        }
    }
}

fn seed() -> impl Strategy<Value = Vec<u8>> {
    proptest::sample::select(SEEDS).prop_map(<[u8]>::to_vec)
}

/// A seed with some bytes replaced by those that matter to readers.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = proptest::sample::select(b"{}[]\":,\\ \n\r\0nNiIdMm19-".as_slice());
    (seed(), vec((any::<prop::sample::Index>(), byte), 0..4)).prop_map(|(mut seed, damage)| {
        for (at, byte) in damage.into_iter().filter(|_| !seed.is_empty()).collect::<Vec<_>>() {
            let at = at.index(seed.len());
            seed[at] = byte;
        }
        seed
    })
}

proptest! {
    #[test]
    fn random_bytes_cause_no_panic(data in vec(any::<u8>(), 0..200)) {
        everything(&data);
    }

    #[test]
    fn damaged_seeds_cause_no_panic(first in damaged(), second in damaged()) {
        everything(&first);
        everything(&joined(&first, &second));
    }

    #[test]
    fn event_streams_are_parsed_alike_in_any_chunks(
        length in 1_u8..20,
        parts in vec(proptest::sample::select(vec!["data", "id", "event", "retry", ":", ": ", " ", "\r", "\n", "\r\n", "7", "x", "\u{feff}"]), 0..60),
    ) {
        let mut data = vec![length];
        data.extend(parts.concat().into_bytes());
        super::sse(&data);
        super::lines(&data);
    }
}
