use std::time::Duration;

use tokio::time::Instant;

use super::*;

const MIB: usize = 1024 * 1024;

fn network(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn mib(count: usize) -> Bytes {
    Bytes::from(vec![1; count * MIB])
}

#[test]
fn bytes_count_until_their_last_clone_is_dropped() {
    let budget = Budget::new(MIB);
    let bytes = budget.hold(Bytes::from(vec![1; 10_000]), Purpose::Response).unwrap();
    let part = bytes.slice(5_000..5_001);
    assert_eq!((bytes.len(), budget.held()), (10_000, 10_000));
    drop(bytes);
    assert_eq!(budget.held(), 10_000);
    assert_eq!(&*part, [1]);
    drop(part);
    assert_eq!(budget.held(), 0);
}

#[test]
fn requests_leave_room_for_responses_and_both_for_small_calls() {
    let budget = Budget::new(16 * MIB);
    let body = budget.reserve(8 * MIB, Purpose::Request).unwrap();
    assert!(budget.reserve(SMALL + 1, Purpose::Request).is_err());
    assert!(budget.reserve(6 * MIB + 1, Purpose::Response).is_err());
    let response = budget.reserve(6 * MIB, Purpose::Response).unwrap();
    assert!(budget.reserve(SMALL + 1, Purpose::Response).is_err());
    let small: Vec<_> = (0..32).map(|_| budget.reserve(SMALL, Purpose::Request).unwrap()).collect();
    assert!(budget.reserve(1, Purpose::Response).is_err());
    assert_eq!(budget.refused(), 4);
    drop((body, response, small));
    assert_eq!(budget.held(), 0);
    assert!(budget.take_pressure().concerns(network(1)) && !budget.take_pressure().concerns(network(1)));
}

#[test]
fn a_reservation_that_cannot_grow_keeps_what_it_has() {
    let budget = Budget::new(16 * MIB);
    let mut body = budget.reserve(4 * MIB, Purpose::Request).unwrap();
    assert!(body.grow(usize::MAX).is_err());
    assert!(body.grow(4 * MIB + 1).is_err());
    assert_eq!((body.bytes(), budget.held()), (4 * MIB, 4 * MIB));
    body.grow(4 * MIB).unwrap();
    body.shrink_to(MIB);
    assert_eq!(budget.held(), MIB);
    let _other = budget.reserve(7 * MIB, Purpose::Request).unwrap();
}

#[test]
fn whatever_one_client_holds_there_is_room_for_another() {
    let budget = Budget::new(16 * MIB);
    let (one, other) = (budget.of_client(network(1)), budget.of_client(network(2)));
    for kind in
        [(MIB, Purpose::Request), (MIB, Purpose::Response), (SMALL, Purpose::Request), (SMALL, Purpose::Response)]
    {
        let (bytes, purpose) = kind;
        let mut held = Vec::new();
        while let Ok(reservation) = one.reserve(bytes, purpose) {
            held.push(reservation);
        }
        assert!(budget.held() <= 8 * MIB && budget.held() >= 4 * MIB, "{kind:?}: {}", budget.held());
        // Another one has as much as it would have alone, or what the share of a client leaves.
        assert_eq!(other.largest(Purpose::Request), 4 * MIB);
        drop(other.reserve(4 * MIB, Purpose::Request).unwrap());
        drop(other.reserve(6 * MIB, Purpose::Response).unwrap());
        let small: Vec<_> = (0..128).map(|_| other.reserve(SMALL, Purpose::Request).unwrap()).collect();
        assert!(other.reserve(1, Purpose::Request).is_err());
        drop((held, small));
        assert_eq!(budget.held(), 0);
    }
    assert_eq!(budget.inner.shares.count(), 0, "nothing is kept of clients that hold nothing");
}

#[test]
fn a_client_whose_share_is_used_up_gets_no_other_client_cut() {
    let budget = Budget::new(16 * MIB);
    let one = budget.of_client(network(1));
    let held = one.reserve(7 * MIB, Purpose::Response).unwrap();
    assert!(one.reserve(MIB, Purpose::Response).is_err());
    let pressure = budget.take_pressure();
    assert!(pressure.concerns(network(1)) && !pressure.concerns(network(2)));
    assert!(!budget.take_pressure().concerns(network(1)));
    let _others = budget.reserve(7 * MIB, Purpose::Response).unwrap();
    assert!(budget.of_client(network(3)).reserve(MIB, Purpose::Response).is_err());
    assert!(budget.take_pressure().concerns(network(2)), "all of it is used up");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_response_waits_until_there_is_room() {
    let budget = Budget::new(16 * MIB);
    let one = budget.reserve(7 * MIB, Purpose::Response).unwrap();
    let _other = budget.reserve(7 * MIB, Purpose::Response).unwrap();
    let waits = tokio::spawn({
        let budget = budget.of_client(network(3));
        async move { budget.hold_or_wait(mib(5), Purpose::Response).await }
    });
    let started = Instant::now();
    // The budget stays under pressure for as long as it waits.
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(budget.take_pressure().concerns(network(1)) && !waits.is_finished());
    }
    drop(one);
    assert_eq!(waits.await.unwrap().unwrap().len(), 5 * MIB);
    assert_eq!((started.elapsed().as_secs(), budget.held(), budget.refused()), (30, 7 * MIB, 0));
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_for_long_enough_is_refused() {
    let budget = Budget::new(16 * MIB);
    let _held = budget.reserve(14 * MIB, Purpose::Response).unwrap();
    let started = Instant::now();
    let over = budget.hold_or_wait(mib(1), Purpose::Response).await.unwrap_err();
    assert_eq!(over, OverBudgetError::NoRoom { bytes: MIB, limit: 16 * MIB });
    assert_eq!((started.elapsed(), budget.refused()), (ROOM_TIMEOUT, 1));
}

#[tokio::test(start_paused = true)]
async fn what_can_never_fit_is_refused_at_once_and_gets_no_client_cut() {
    let budget = Budget::new(16 * MIB);
    let (started, one) = (Instant::now(), budget.of_client(network(1)));
    let over = one.hold_or_wait(mib(8), Purpose::Response).await.unwrap_err();
    assert_eq!(over, OverBudgetError::TooLong { bytes: 8 * MIB, most: 7 * MIB });
    let mut begun = one.reserve(6 * MIB, Purpose::Response).unwrap();
    let over = begun.grow_or_wait(2 * MIB, 0).await.unwrap_err();
    assert_eq!(over, OverBudgetError::TooLong { bytes: 8 * MIB, most: 7 * MIB });
    assert_eq!((started.elapsed(), budget.refused()), (Duration::ZERO, 2));
    assert!(!budget.take_pressure().concerns(network(1)));
}

#[test]
fn what_does_not_fit_is_not_in_the_way_of_others_for_a_moment() {
    let budget = Budget::new(MIB);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(budget.reserve(10 * MIB, Purpose::Response).is_err());
            }
        });
        let refused = (0..200_000).filter(|_| budget.try_reserve(SMALL, Purpose::Response).is_none()).count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_memory_is_limited_as_well() {
    let budget = Budget::new(16 * MIB);
    let _held = budget.reserve(14 * MIB, Purpose::Response).unwrap();
    let wait = |client: u8, count: usize| {
        let budget = budget.of_client(network(client));
        tokio::spawn(async move { budget.hold_or_wait(mib(count), Purpose::Response).await })
    };
    let (first, second) = (wait(1, 1), wait(1, 1));
    tokio::task::yield_now().await;
    let started = Instant::now();
    // One client may have an eighth, all of them a quarter.
    assert!(wait(1, 1).await.unwrap().is_err());
    let third = wait(2, 2);
    tokio::task::yield_now().await;
    assert!(wait(3, 1).await.unwrap().is_err());
    assert_eq!(started.elapsed(), Duration::ZERO);
    // What its sender waits with takes no place.
    let mut outside = budget.reservation(Purpose::Response);
    assert!(outside.grow_or_wait(MIB, 0).await.is_err());
    assert!(started.elapsed() >= ROOM_TIMEOUT);
    for waited in [first, second, third] {
        assert!(waited.await.unwrap().is_err());
    }
    let alone = wait(1, 7);
    tokio::task::yield_now().await;
    assert!(!alone.is_finished(), "one alone may have any length that fits");
}

#[tokio::test(start_paused = true)]
async fn responses_that_grow_do_not_wait_for_each_other() {
    let budget = Budget::new(1 << 20);
    for clients in [[1, 1, 1], [1, 2, 3]] {
        let shares = clients.map(|number| budget.of_client([192, 0, 2, number].into()));
        let limit = shares[0].largest(Purpose::Response);
        let started = tokio::time::Instant::now();
        let grown = shares.map(|share| async move {
            let mut reservation = share.reservation(Purpose::Response);
            // As parts of a response arrive.
            while reservation.bytes() < limit / 32 * 31 {
                reservation.grow_or_wait(limit / 32, 0).await?;
                tokio::task::yield_now().await;
            }
            // It is sent then.
            Ok::<_, OverBudgetError>(())
        });
        let [first, second, third] = grown;
        let grown = tokio::join!(first, second, third);
        let complete = [grown.0, grown.1, grown.2].iter().filter(|one| one.is_ok()).count();
        assert!(complete >= 1, "{clients:?}");
        assert_eq!(started.elapsed(), Duration::ZERO, "{clients:?}: nothing is waited for");
        assert_eq!(budget.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn responses_that_grow_wait_for_what_others_hold() {
    let budget = Budget::new(1 << 20);
    let share = budget.of_client([192, 0, 2, 1].into());
    let held = share.reserve(300_000, Purpose::Response).unwrap();
    let grow = || async {
        let mut reservation = share.reservation(Purpose::Response);
        reservation.grow_or_wait(70_000, 0).await?;
        reservation.grow_or_wait(70_000, 0).await.map(|()| reservation)
    };
    let released = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(held);
    };
    let (first, second, ()) = tokio::join!(grow(), grow(), released);
    assert!(first.is_ok() && second.is_ok());
}
