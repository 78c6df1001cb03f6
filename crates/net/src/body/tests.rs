use std::collections::VecDeque;

use super::*;

/// Parts that arrive one after the other, and never an end if `endless`.
struct Parts {
    left: VecDeque<Bytes>,
    hint: SizeHint,
    endless: bool,
}

fn parts(parts: &[&'static str]) -> Parts {
    let parts = parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect();
    Parts { left: parts, hint: SizeHint::default(), endless: false }
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.left.pop_front() {
            Some(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
            None if self.endless => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

const fn limit(bytes: usize) -> Limit {
    Limit { bytes, idle: Duration::from_secs(30), pace: 1 }
}

#[tokio::test]
async fn exactly_the_limit_is_fine_and_one_more_is_not() {
    assert_eq!(collect(parts(&["12", "34"]), limit(4)).await.unwrap(), "1234");
    assert_eq!(collect(parts(&["1234"]), limit(4)).await.unwrap(), "1234");
    assert_eq!(collect(parts(&["1", "2", "3", "4"]), limit(4)).await.unwrap(), "1234");
    assert_eq!(collect(parts(&[]), limit(0)).await.unwrap(), "");
    assert_eq!(collect(parts(&["", "12"]), limit(2)).await.unwrap(), "12");
    for longer in [&["12345"][..], &["1234", "5"], &["12", "34", "5"]] {
        let error = collect(parts(longer), limit(4)).await.unwrap_err();
        assert!(matches!(error, BodyError::TooLarge { limit: 4 }), "{error:?}");
    }
}

#[tokio::test]
async fn one_part_is_not_copied() {
    let part = Bytes::from(vec![7_u8; 1000]);
    let collected = collect(Body::full(part.clone()), limit(1000)).await.unwrap();
    assert_eq!(collected.as_ptr(), part.as_ptr());
}

#[tokio::test]
async fn an_announced_length_over_the_limit_is_refused_unread() {
    let announced = Parts { hint: SizeHint::with_exact(5), endless: true, ..parts(&[]) };
    let error = collect(announced, limit(4)).await.unwrap_err();
    assert!(matches!(error, BodyError::TooLarge { limit: 4 }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_stalls_times_out() {
    let silent = Parts { endless: true, ..parts(&["12"]) };
    let error = collect(silent, limit(4)).await.unwrap_err();
    assert!(matches!(error, BodyError::Stalled { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_sender_that_keeps_sending_is_served() {
    let (sender, body) = Body::channel(1);
    tokio::spawn(async move {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(29)).await;
            sender.send(Bytes::from_static(b"x")).await.unwrap();
        }
    });
    assert_eq!(collect(body, limit(100)).await.unwrap().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_sender_of_single_bytes_times_out() {
    let (sender, body) = Body::channel(1);
    tokio::spawn(async move {
        while sender.send(Bytes::from_static(b"x")).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let started = tokio::time::Instant::now();
    let error = collect(body, Limit { pace: 40, ..limit(1000) }).await.unwrap_err();
    assert!(matches!(error, BodyError::Stalled { .. }), "{error:?}");
    assert!(started.elapsed() <= Duration::from_secs(61), "{:?}", started.elapsed());
    // The same at the required pace.
    let (sender, body) = Body::channel(1);
    tokio::spawn(async move {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.send(Bytes::from_static(b"xx")).await.unwrap();
        }
    });
    assert_eq!(collect(body, Limit { pace: 40, ..limit(1000) }).await.unwrap().len(), 200);
}

#[tokio::test]
async fn an_aborted_body_is_not_taken_for_complete() {
    let (sender, body) = Body::channel(2);
    sender.send(Bytes::from_static(b"half")).await.unwrap();
    sender.abort(BodyError::Broken("backend gone".into())).await;
    let error = collect(body, limit(100)).await.unwrap_err();
    assert!(matches!(error, BodyError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn a_writer_gets_backpressure_and_learns_that_its_reader_has_left() {
    let (sender, body) = Body::channel(1);
    assert_eq!(sender.try_send(Bytes::from_static(b"1")), Ok(None));
    assert_eq!(sender.try_send(Bytes::from_static(b"2")), Ok(Some(Bytes::from_static(b"2"))));
    drop(body);
    sender.closed().await;
    assert_eq!(sender.send(Bytes::from_static(b"3")).await, Err(BodyClosedError));
    assert_eq!(sender.try_send(Bytes::from_static(b"3")), Err(BodyClosedError));
}

#[test]
fn sizes_are_known_where_they_can_be() {
    assert_eq!(Body::empty().size_hint().exact(), Some(0));
    assert_eq!(Body::full("").size_hint().exact(), Some(0));
    assert_eq!(Body::full("1234").size_hint().exact(), Some(4));
    assert_eq!(Body::channel(1).1.size_hint().exact(), None);
    assert_eq!(Body::boxed(http_body_util::Full::new(Bytes::from_static(b"123"))).size_hint().exact(), Some(3));
    assert!(Body::empty().is_end_stream());
    assert!(Body::full("").is_end_stream());
    assert!(!Body::full("1").is_end_stream());
    let (sender, body) = Body::channel(1);
    assert!(!body.is_end_stream());
    drop(sender);
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn the_parts_of_a_body_are_sent_in_their_order() {
    let bytes = |parts: &[&'static str]| Body::parts(parts.iter().map(|part| Bytes::from_static(part.as_bytes())));
    for (made, whole) in [(&["ab", "", "cd", "e"][..], "abcde"), (&["", "ab"], "ab"), (&["", ""], ""), (&[], "")] {
        let body = bytes(made);
        assert_eq!(body.size_hint().exact(), Some(whole.len() as u64), "{made:?}");
        assert_eq!(body.is_end_stream(), whole.is_empty(), "{made:?}");
        assert_eq!(collect(body, limit(5)).await.unwrap(), whole, "{made:?}");
    }
}

#[tokio::test]
async fn a_value_is_held_until_the_body_has_ended_or_is_let_go_of() {
    use http_body_util::BodyExt as _;
    let held = || {
        let value = std::sync::Arc::new(());
        (std::sync::Arc::downgrade(&value), value)
    };
    let (known, value) = held();
    let _body = Body::full("all of it").holding(value);
    assert!(known.upgrade().is_none());

    let (sender, body) = Body::channel(1);
    let (streamed, value) = held();
    let mut body = body.holding(value);
    sender.send(Bytes::from_static(b"part")).await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "part");
    assert!(streamed.upgrade().is_some());
    drop(sender);
    assert!(body.frame().await.is_none());
    assert!(streamed.upgrade().is_none());

    let (_sender, body) = Body::channel(1);
    let (unread, value) = held();
    drop(body.holding(value));
    assert!(unread.upgrade().is_none());
}

#[tokio::test]
async fn a_body_whose_writer_panics_breaks_off() {
    use http_body_util::BodyExt as _;
    for written in [0, 1, 2] {
        let (sender, mut body) = Body::channel(2);
        let writer = tokio::spawn(async move {
            for _ in 0..written {
                sender.send(Bytes::from_static(b"part")).await.unwrap();
            }
            panic!("as tests do");
        });
        assert!(writer.await.unwrap_err().is_panic());
        for _ in 0..written {
            assert!(body.frame().await.unwrap().is_ok());
        }
        assert!(matches!(body.frame().await, Some(Err(BodyError::Broken(_)))), "after {written} parts");
    }
}

/// A sender that sends so many bytes at an interval, until it has sent enough or is not read any more.
fn trickle(bytes: usize, every: Duration, total: usize) -> Body {
    let (sender, body) = Body::channel(1);
    tokio::spawn(async move {
        let mut left = total;
        while left > 0 {
            let part = bytes.min(left);
            if sender.send(Bytes::from(vec![b'x'; part])).await.is_err() {
                return;
            }
            left -= part;
            tokio::time::sleep(every).await;
        }
    });
    body
}

#[tokio::test(start_paused = true)]
async fn a_body_has_a_least_rate_over_the_whole_of_it() {
    let budget = Budget::new(1 << 30);
    let intake = Intake::of_request(&budget, 16 * 1024);
    let limit = Limit { bytes: 8 << 20, idle: Duration::from_secs(30), pace: 64 * 1024 };
    // As fast as each read must be, which would take more than an hour for all of it.
    let started = tokio::time::Instant::now();
    let error = collect_within(trickle(64 * 1024, Duration::from_secs(29), 8 << 20), limit, intake).await.unwrap_err();
    assert!(matches!(error, BodyError::TooSlow { rate: 16_384 }), "{error:?}");
    assert!(started.elapsed() < Duration::from_mins(1), "{:?}", started.elapsed());
    // A burst is no credit for a pause.
    let started = tokio::time::Instant::now();
    let error = collect_within(trickle(4 << 20, Duration::from_hours(1), 8 << 20), limit, intake).await.unwrap_err();
    assert!(matches!(error, BodyError::Stalled { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(61), "{:?}", started.elapsed());
    assert_eq!(budget.held(), 0);
    // Twice the minimum rate is fine, however long it takes.
    let body = trickle(32 * 1024, Duration::from_secs(1), 8 << 20);
    assert_eq!(collect_within(body, limit, intake).await.unwrap().len(), 8 << 20);
}

#[tokio::test]
async fn an_announced_length_is_set_aside_before_anything_is_read() {
    let budget = Budget::new(16 << 20);
    let intake = Intake::of_request(&budget, 1);
    let mib = |mib: usize| Bytes::from(vec![b'x'; mib << 20]);
    let first = collect_within(Body::full(mib(6)), limit(8 << 20), intake).await.unwrap();
    assert_eq!(budget.held(), 6 << 20);
    let error = collect_within(Body::full(mib(3)), limit(8 << 20), intake).await.unwrap_err();
    assert!(matches!(error, BodyError::OverBudget(_)), "{error:?}");
    // A body without a length is counted as it arrives, and a small call always finds room.
    let (sender, body) = Body::channel(8);
    for _ in 0..3 {
        sender.send(mib(1)).await.unwrap();
    }
    drop(sender);
    let error = collect_within(body, limit(8 << 20), intake).await.unwrap_err();
    assert!(matches!(error, BodyError::OverBudget(_)), "{error:?}");
    assert_eq!(collect_within(Body::full("small"), limit(8 << 20), intake).await.unwrap(), "small");
    assert_eq!(budget.held(), 6 << 20);
    drop(first);
    assert_eq!(budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_response_of_a_server_is_read_on_when_there_is_room() {
    let budget = Budget::new(16 << 20);
    let intake = Intake::of_response(&budget);
    let mib = |mib: usize| Bytes::from(vec![b'x'; mib << 20]);
    let held = budget.reserve(12 << 20, Purpose::Response).unwrap();
    let (sender, body) = Body::channel(1);
    let written = tokio::spawn(async move {
        for _ in 0..5 {
            sender.send(mib(1)).await.unwrap();
        }
    });
    let mut whole = std::pin::pin!(collect_within(Body::full(mib(5)), limit(8 << 20), intake));
    let mut in_parts = std::pin::pin!(collect_within(body, limit(8 << 20), intake));
    let patience = Duration::from_secs(20);
    assert!(tokio::time::timeout(patience, &mut whole).await.is_err());
    assert!(tokio::time::timeout(patience, &mut in_parts).await.is_err());
    assert!(!written.is_finished(), "its server waits as well");
    drop(held);
    assert_eq!(in_parts.await.unwrap().len(), 5 << 20);
    assert_eq!(whole.await.unwrap().len(), 5 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_response_counts_until_it_is_sent() {
    use http_body_util::BodyExt as _;
    let budget = Budget::new(1 << 20);
    let long = || Bytes::from(vec![b'x'; 500_000]);
    for make in [|bytes| Body::full(bytes), |bytes| Body::parts([Bytes::from_static(b"data: "), bytes])] {
        let body = make(long()).within(&budget).await.unwrap();
        assert!(budget.held() >= 500_000);
        assert!(make(long()).within(&budget).await.is_err());
        let sent = body.collect().await.unwrap();
        assert!(budget.held() >= 500_000, "the connection has it");
        drop(sent);
        assert_eq!(budget.held(), 0);
    }
}

#[tokio::test]
async fn a_tiny_body_needs_no_room_in_the_budget() {
    let budget = Budget::new(64 * 1024);
    let intake = Intake::of_request(&budget, 1);
    let _full = budget.reserve(64 * 1024, Purpose::Request).unwrap();
    assert_eq!(collect_within(Body::full("tiny"), limit(1 << 20), intake).await.unwrap(), "tiny");
    // Without a length, too.
    let (sender, body) = Body::channel(8);
    sender.send(Bytes::from_static(b"tiny")).await.unwrap();
    drop(sender);
    assert_eq!(collect_within(body, limit(1 << 20), intake).await.unwrap(), "tiny");
    let error = collect_within(Body::full(vec![b'x'; 2000]), limit(1 << 20), intake).await.unwrap_err();
    assert!(matches!(error, BodyError::OverBudget(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn item_8_a_body_that_passes_through_counts_for_what_is_buffered_of_it() {
    use http_body_util::BodyExt as _;
    let budget = Budget::new(1 << 20);
    let passing = |length: Option<u64>| {
        let hint = length.map(SizeHint::with_exact).unwrap_or_default();
        let left = VecDeque::from([Bytes::from(vec![b'x'; 20_000]), Bytes::from_static(b"short")]);
        Body::boxed(Parts { left, hint, endless: false }).passing()
    };
    for (length, held) in [(None, PASSING), (Some(1 << 30), PASSING), (Some(20_005), 20_005), (Some(16 * 1024), 0)] {
        let mut body = passing(length).within(&budget).await.unwrap();
        assert_eq!(budget.held(), held, "{length:?}");
        // A second call reserves nothing more, nor does a wrapper.
        body = body.try_within(&budget).unwrap().holding(());
        assert_eq!(budget.held(), held, "{length:?}");
        let long = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let short = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((long.len(), short.len()), (20_000, 5));
        assert!(body.frame().await.is_none());
        drop(body);
        assert_eq!(budget.held(), held, "the connection has a part of it");
        drop(long);
        assert_eq!(budget.held(), 0, "{length:?}");
    }
    // A wrapper that was made before the body is counted counts in its place.
    let wrapped = passing(None).holding(()).within(&budget).await.unwrap();
    assert_eq!(budget.held(), PASSING);
    drop(wrapped);
    let full = budget.reserve(1 << 20, Purpose::Response);
    assert!(full.is_err(), "responses leave some");
    let held: Vec<_> = std::iter::from_fn(|| budget.try_reserve(64 * 1024, Purpose::Response)).collect();
    assert!(passing(None).try_within(&budget).is_err());
    let error = passing(None).within(&budget).await.unwrap_err();
    assert!(matches!(error, OverBudgetError::NoRoom { .. }), "{error}");
    drop(held);
    assert_eq!((budget.held(), budget.waiting()), (0, 0));
}
