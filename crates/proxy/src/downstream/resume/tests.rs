use skep_net::Body;

use super::*;

fn streams() -> Arc<Streams> {
    Arc::default()
}

fn outbox(streams: &Arc<Streams>, session: &str) -> (Outbox, mpsc::Receiver<Resume>) {
    let (ticket, resumed) = streams.open(&session.into(), &Budget::default()).unwrap();
    (Outbox::new(Some(ticket)), resumed)
}

/// Writes all that waits, and returns it.
fn drain(outbox: &mut Outbox) -> String {
    let mut text = String::new();
    while let Some(bytes) = outbox.next().cloned() {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
        outbox.wrote();
    }
    text
}

fn held(streams: &Streams) -> usize {
    streams.with(|state| state.held)
}

fn lost() -> Bytes {
    Bytes::from_static(b"lost")
}

#[test]
fn a_stream_without_a_ticket_keeps_nothing_and_has_no_ids() {
    let mut outbox = Outbox::new(None);
    outbox.message(b"1", None, false);
    outbox.answer(b"2", None, false);
    assert_eq!(drain(&mut outbox), "event: message\ndata: 1\n\nevent: message\ndata: 2\n\n");
    assert!(outbox.events.is_empty());
}

#[test]
fn what_is_kept_is_counted_and_given_back() {
    let streams = streams();
    let (mut outbox, _resumed) = outbox(&streams, "a");
    outbox.message(b"1", None, false);
    let text = drain(&mut outbox);
    assert_eq!(held(&streams), STREAM + text.len());
    outbox.rewind(0, lost);
    assert!(text.ends_with(&drain(&mut outbox)) && outbox.events.len() == 2);
    drop(outbox);
    assert_eq!(held(&streams), 0);
    assert!(streams.with(|state| state.sessions.is_empty()));
}

#[test]
fn a_stream_keeps_a_number_of_events_and_the_answer_before_all() {
    let streams = streams();
    let (mut outbox, _resumed) = outbox(&streams, "a");
    drain(&mut outbox);
    // Read ones make room for newer ones.
    for _ in 0..3 * EVENTS {
        outbox.message(b"x", None, false);
        drain(&mut outbox);
    }
    assert_eq!(outbox.events.len(), EVENTS);
    // Those that no client read do not, but for the response.
    let newest = outbox.number - 1;
    outbox.rewind(newest, lost);
    for _ in 0..3 * EVENTS {
        outbox.message(b"y", None, true);
    }
    assert_eq!(outbox.waiting(), EVENTS);
    outbox.answer(b"z", None, true);
    assert_eq!(outbox.events.len(), EVENTS);
    outbox.rewind(newest, lost);
    assert!(drain(&mut outbox).ends_with("data: z\n\n"));
}

#[test]
fn an_answer_that_is_too_long_is_written_once_and_not_kept() {
    let streams = streams();
    let (mut outbox, _resumed) = outbox(&streams, "a");
    outbox.answer(&vec![b'x'; SESSION + 1], None, false);
    assert!(drain(&mut outbox).len() > SESSION);
    assert_eq!((outbox.events.len(), held(&streams)), (0, STREAM));
    // A client that resumes it gets the reason why it is not there. One that has it needs nothing.
    outbox.rewind(1, lost);
    assert_eq!(drain(&mut outbox), "");
    outbox.rewind(0, lost);
    assert!(drain(&mut outbox).ends_with("-2\ndata: lost\n\n"));
    outbox.rewind(0, lost);
    assert!(drain(&mut outbox).ends_with("-2\ndata: lost\n\n"));
}

#[test]
fn a_reader_that_leaves_takes_what_is_too_long_along() {
    let streams = streams();
    let (mut outbox, _resumed) = outbox(&streams, "a");
    drain(&mut outbox);
    outbox.answer(&vec![b'x'; SESSION + 1], None, false);
    outbox.left();
    assert!(outbox.next().is_none());
    outbox.rewind(0, lost);
    assert!(drain(&mut outbox).ends_with("data: lost\n\n"));
    // The same when it was away already.
    let (ticket, _resumed) = streams.open(&"b".into(), &Budget::default()).unwrap();
    let mut away = Outbox::new(Some(ticket));
    drain(&mut away);
    away.answer(&vec![b'x'; SESSION + 1], None, true);
    away.rewind(0, lost);
    assert!(drain(&mut away).ends_with("data: lost\n\n"));
}

#[test]
fn sessions_do_not_share_what_they_may_keep_but_all_have_one_bound() {
    let streams = streams();
    let big = vec![b'x'; SESSION - 2 * STREAM];
    let mut all = Vec::new();
    // Streams count too, until there is no room for one.
    for session in 0.. {
        let Some((ticket, resumed)) = streams.open(&session.to_string().into(), &Budget::default()) else { break };
        let mut outbox = Outbox::new(Some(ticket));
        outbox.answer(&big, None, true);
        all.push((outbox, resumed));
    }
    assert!(all.len() > TOTAL / SESSION);
    assert!(held(&streams) <= TOTAL && held(&streams) > TOTAL - STREAM);
    drop(all);
    assert_eq!(held(&streams), 0);
}

#[test]
fn a_session_has_so_many_streams_and_answered_ones_go_first() {
    let streams = streams();
    let mut all: Vec<_> = (0..STREAMS).map(|_| outbox(&streams, "a")).collect();
    assert!(streams.open(&"a".into(), &Budget::default()).is_none());
    all[3].0.answer(b"x", None, false);
    let newest = streams.open(&"a".into(), &Budget::default());
    assert!(newest.is_some());
    assert!(all[3].1.try_recv().is_err_and(|error| error == mpsc::error::TryRecvError::Disconnected));
    assert!(all[2].1.try_recv().is_err_and(|error| error == mpsc::error::TryRecvError::Empty));
}

#[test]
fn a_stream_is_found_by_its_events_in_its_own_session() {
    let streams = streams();
    let (one, mut resumed) = outbox(&streams, "a");
    let (_other, _resumed) = outbox(&streams, "b");
    let id = one.id().unwrap();
    assert!(streams.find("b", &id).is_none() && streams.find("c", &id).is_none());
    let (resume, after) = streams.find("a", &id).unwrap();
    assert_eq!(after, 1);
    resume.try_send(Resume { after, reader: Body::channel(1).0 }).unwrap();
    assert_eq!(resumed.try_recv().unwrap().after, 1);
    streams.forget("a");
    assert!(streams.find("a", &id).is_none());
}

#[test]
fn a_stream_that_is_older_than_what_is_kept_of_its_session_gives_back_no_more_than_there_is() {
    let streams = streams();
    let (mut before, _resumed) = outbox(&streams, "a");
    before.message(&[b'x'; 1000], None, true);
    streams.forget("a");
    let after = streams.open(&"a".into(), &Budget::default()).unwrap();
    drop(before);
    assert_eq!(held(&streams), STREAM);
    drop(after);
    assert!(streams.with(|state| state.held == 0 && state.sessions.is_empty()));
}

#[test]
fn what_is_kept_leaves_room_for_responses() {
    let streams = streams();
    let budget = Budget::new(48 << 20);
    let share = budget.of_client([192, 0, 2, 1].into());
    let mut kept = Vec::new();
    for number in 0..60 {
        let Some((ticket, resumed)) = streams.open(&format!("s{number}").into(), &share) else { break };
        let mut outbox = Outbox::new(Some(ticket));
        let room = share.try_reserve(470_000, Purpose::Response);
        outbox.answer(&vec![b'x'; 470_000], Some(room.expect("room for the response")), false);
        drain(&mut outbox);
        kept.push((outbox, resumed));
    }
    assert!(kept.len() > 5 && budget.held() <= budget.limit() / PART / 2, "{} of {}", budget.held(), kept.len());
    let other = budget.of_client([192, 0, 2, 2].into());
    assert!(streams.open(&"other".into(), &other).is_some(), "another client has its own half");
    drop(kept);
    assert_eq!((budget.held(), held(&streams)), (0, 0));
}
