use proptest::prelude::*;

use super::*;

const LIFE: Duration = Duration::from_hours(2);
const FEW: SessionLimits =
    SessionLimits { total: 12 * SESSION_BYTES, per_identity: 4 * SESSION_BYTES, per_peer: 6 * SESSION_BYTES };

fn peer(number: u8) -> Owner {
    Owner { peer: Some(IpAddr::from([10, 0, 0, number])), ..Owner::default() }
}

fn named(identity: &str, number: u8) -> Owner {
    Owner { identity: Some(identity.into()), ..peer(number) }
}

/// The sessions that exist, in the order of their names.
fn ids(ledger: &Ledger<()>) -> Vec<String> {
    let mut ids: Vec<String> = ledger.entries.values().map(|entry| entry.id.to_string()).collect();
    ids.sort();
    ids
}

fn open(ledger: &mut Ledger<()>, id: &str, owner: &Owner) {
    assert_eq!(ledger.insert(id, 0, owner, (), Instant::now()), Inserted::New);
}

/// Opens a session that gets a second message.
fn open_used(ledger: &mut Ledger<()>, id: &str, owner: &Owner) {
    open(ledger, id, owner);
    assert!(ledger.touch(id, Instant::now()).is_some());
}

#[tokio::test(start_paused = true)]
async fn one_peer_cannot_displace_the_sessions_of_another() {
    let mut ledger = Ledger::new(LIFE, FEW);
    open(&mut ledger, "other-used", &peer(2));
    assert!(ledger.touch("other-used", Instant::now()).is_some());
    open(&mut ledger, "other-unused", &peer(2));
    for number in 0..1000 {
        open(&mut ledger, &format!("flood-{number:03}"), &peer(1));
    }
    let expected = ["flood-994", "flood-995", "flood-996", "flood-997", "flood-998", "flood-999"];
    assert_eq!(ids(&ledger), expected.into_iter().chain(["other-unused", "other-used"]).collect::<Vec<_>>());
    assert_eq!(ledger.evictions(), 994);
}

#[tokio::test(start_paused = true)]
async fn one_identity_is_bounded_whatever_address_it_comes_from() {
    let mut ledger = Ledger::new(LIFE, FEW);
    open(&mut ledger, "bob", &named("bob", 1));
    for number in 0..100 {
        open(&mut ledger, &format!("ann-{number:02}"), &named("ann", number));
    }
    assert_eq!(ids(&ledger), ["ann-96", "ann-97", "ann-98", "ann-99", "bob"]);
}

#[tokio::test(start_paused = true)]
async fn never_used_sessions_go_first_and_then_the_longest_idle() {
    let mut ledger = Ledger::new(LIFE, FEW);
    for id in ["a", "b", "c", "d", "e", "f"] {
        open(&mut ledger, id, &peer(1));
    }
    for id in ["b", "a", "d", "b"] {
        assert!(ledger.touch(id, Instant::now()).is_some());
    }
    let mut evicted = Vec::new();
    tokio::time::advance(SPARED).await;
    for id in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        // The session that displaces the others is used itself, so that it is not evicted first.
        open_used(&mut ledger, id, &peer(1));
        evicted.extend(ledger.reap(None).into_iter().map(|ended| ended.id.to_string()));
    }
    assert_eq!(evicted, ["c", "e", "f", "a", "d", "b", "1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_to_its_second_message_beside_clients_that_use_their_sessions() {
    let mut ledger = Ledger::new(LIFE, SessionLimits { per_peer: 12 * SESSION_BYTES, ..FEW });
    for number in 0..12 {
        open_used(&mut ledger, &format!("used-{number:02}"), &peer(1));
    }
    open(&mut ledger, "new", &peer(1));
    for number in 12..60 {
        open_used(&mut ledger, &format!("used-{number:02}"), &peer(1));
    }
    assert!(ledger.touch("new", Instant::now()).is_some());
    // But one that stays unused for long is evicted before any that is used.
    open(&mut ledger, "late", &peer(1));
    tokio::time::advance(SPARED).await;
    open_used(&mut ledger, "last", &peer(1));
    let used = (50..60).map(|number| format!("used-{number}"));
    assert_eq!(ids(&ledger), ["last".to_owned(), "new".to_owned()].into_iter().chain(used).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_new_sessions_displaces_itself_and_at_most_a_quarter_of_the_used_ones() {
    let mut ledger = Ledger::new(LIFE, FEW);
    for number in 0..6 {
        open_used(&mut ledger, &format!("used-{number}"), &peer(1));
    }
    for number in 0..1000 {
        open(&mut ledger, &format!("flood-{number:03}"), &peer(1));
    }
    assert_eq!(ids(&ledger), ["flood-999", "used-1", "used-2", "used-3", "used-4", "used-5"]);
}

#[tokio::test(start_paused = true)]
async fn a_flood_from_many_addresses_leaves_used_sessions_and_newcomers_alone() {
    let mut ledger = Ledger::new(LIFE, FEW);
    for number in 1..=8 {
        open_used(&mut ledger, &format!("used-{number}"), &peer(number));
    }
    // Each comes from another address, and none is ever used.
    let flood = |ledger: &mut Ledger<()>, numbers: std::ops::Range<u8>| {
        for number in numbers {
            open(ledger, &format!("flood-{number:03}"), &peer(number));
        }
    };
    flood(&mut ledger, 20..120);
    open(&mut ledger, "new", &peer(9));
    flood(&mut ledger, 120..122);
    assert!(ledger.touch("new", Instant::now()).is_some(), "a newcomer is as new as the flood");
    flood(&mut ledger, 122..220);
    let used: Vec<String> = ids(&ledger).into_iter().filter(|id| !id.starts_with("flood")).collect();
    assert_eq!(used, ["new", "used-1", "used-2", "used-3", "used-4", "used-5", "used-6", "used-7", "used-8"]);
    assert_eq!(ids(&ledger).len(), 12);
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_of_the_largest_peer_makes_room_when_all_of_them_reach_the_total() {
    let mut ledger = Ledger::new(LIFE, FEW);
    for (number, count) in [(3, 2), (2, 4), (1, 6)] {
        for one in 0..count {
            open_used(&mut ledger, &format!("{number}-{one}"), &peer(number));
        }
    }
    assert!(ledger.touch("1-0", Instant::now()).is_some());
    open_used(&mut ledger, "new", &peer(4));
    let evicted: Vec<String> = ledger.reap(None).into_iter().map(|ended| ended.id.to_string()).collect();
    assert_eq!(evicted, ["1-1"]);
}

/// Sizes differ by a few letters of a path: which of many small peers is the largest is arbitrary.
#[tokio::test(start_paused = true)]
async fn of_many_peers_with_little_the_session_goes_that_is_idle_for_longest() {
    let limits = SessionLimits::of_total(40 * SESSION_BYTES);
    let mut ledger = Ledger::new(LIFE, limits);
    assert_eq!(ledger.insert("honest", 300, &peer(1), (), Instant::now()), Inserted::New);
    for number in 2..=200 {
        assert!(ledger.touch("honest", Instant::now()).is_some(), "{number}");
        open_used(&mut ledger, &format!("flood-{number:03}"), &peer(number));
    }
    let flood: Vec<String> = (162..=200).map(|number| format!("flood-{number:03}")).collect();
    let left = ids(&ledger);
    assert_eq!(left.last().map(String::as_str), Some("honest"));
    assert!(flood.ends_with(&left[..left.len() - 1]), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn ended_sessions_leave_nothing_behind() {
    let mut ledger = Ledger::new(LIFE, SessionLimits::default());
    for number in 0..40_000 {
        open(&mut ledger, &format!("{number}"), &named(&format!("{}", number % 999), 1));
    }
    for number in 0..20_000 {
        assert!(ledger.remove(&format!("{number}"), Instant::now()));
    }
    tokio::time::advance(LIFE).await;
    assert_eq!(ledger.reap(Some(Instant::now())).len(), 20_000);
    let room = ledger.entries.capacity() + ledger.index.capacity() + ledger.names.capacity();
    assert!(room <= 3 * SMALL, "{room} places are kept");
    assert!(ledger.groups.is_empty() && ledger.largest.is_empty() && ledger.all.bytes == 0);
}

/// An operation on sessions.
#[derive(Clone, Debug)]
enum Step {
    Insert { id: u8, owner: u8, identity: Option<u8>, texts: usize },
    Touch(u8),
    Update(u8, usize),
    Remove(u8),
    Pass(u64),
    Reap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let texts = prop_oneof![Just(0_usize), 0..3 * SESSION_BYTES];
    let insert = (any::<u8>(), 0..4_u8, proptest::option::of(0..3_u8), texts.clone());
    let step = prop_oneof![
        6 => insert.prop_map(|(id, owner, identity, texts)| Step::Insert { id, owner, identity, texts }),
        3 => any::<u8>().prop_map(Step::Touch),
        1 => (any::<u8>(), texts).prop_map(|(id, texts)| Step::Update(id, texts)),
        1 => any::<u8>().prop_map(Step::Remove),
        1 => prop_oneof![0..3_u64, 0..90_u64].prop_map(Step::Pass),
        1 => Just(Step::Reap),
    ];
    proptest::collection::vec(step, 0..120)
}

/// The same rules as a simple model: a list in the order of use.
#[derive(Clone, Debug)]
struct Plain {
    id: u8,
    owner: u8,
    identity: Option<u8>,
    bytes: usize,
    is_used: bool,
    expires: Instant,
}

#[derive(Default)]
struct Model {
    all: Vec<Plain>,
    /// The peers in the order of their arrival.
    peers: Vec<u8>,
}

impl Model {
    fn make_room(&mut self, bytes: usize, limit: usize, is_all: bool, now: Instant, is_owned: impl Fn(&Plain) -> bool) {
        while self.bytes(&is_owned) + bytes > limit {
            let unused = self.all.iter().position(|one| is_owned(one) && !one.is_used);
            let idle = match self.largest().filter(|_| is_all) {
                Some(largest) => self.all.iter().position(|one| one.is_used && one.owner == largest),
                None => self.all.iter().position(|one| one.is_used && is_owned(one)),
            };
            let is_new = |place: usize| now + UNUSED_TIME_TO_LIVE - self.all[place].expires < SPARED;
            let is_flood = self.bytes(|one| is_owned(one) && !one.is_used) + bytes > limit / 4;
            let place = if !is_flood && unused.is_some_and(is_new) { idle.or(unused) } else { unused.or(idle) };
            self.all.remove(place.unwrap());
        }
    }

    /// The peer with the most used sessions, if it is large.
    fn largest(&self) -> Option<u8> {
        let used = |peer: u8| self.bytes(|one| one.owner == peer && one.is_used);
        let most = self.peers.iter().copied().max_by_key(|peer| used(*peer))?;
        (used(most) > FEW.total / 16).then_some(most)
    }

    fn bytes(&self, is_owned: impl Fn(&Plain) -> bool) -> usize {
        self.all.iter().filter(|one| is_owned(one)).map(|one| one.bytes).sum()
    }

    fn insert(&mut self, new: Plain, now: Instant) -> Inserted {
        if self.all.iter().any(|one| one.id == new.id && now < one.expires) {
            return Inserted::Existed;
        }
        let is_too_large = new.bytes > FEW.per_peer || new.identity.is_some() && new.bytes > FEW.per_identity;
        if is_too_large {
            return Inserted::TooLarge;
        }
        self.all.retain(|one| one.id != new.id);
        self.make_room(new.bytes, FEW.per_peer, false, now, |one| one.owner == new.owner);
        if new.identity.is_some() {
            self.make_room(new.bytes, FEW.per_identity, false, now, |one| one.identity == new.identity);
        }
        self.make_room(new.bytes, FEW.total, true, now, |_| true);
        if !self.all.iter().any(|one| one.owner == new.owner) {
            self.peers.retain(|peer| *peer != new.owner);
            self.peers.push(new.owner);
        }
        self.all.push(new);
        Inserted::New
    }
}

proptest! {
    /// Queues and sums equal those of the model, and so does the choice of what is evicted.
    #[test]
    fn the_ledger_agrees_with_the_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (mut ledger, mut model) = (Ledger::new(LIFE, FEW), Model::default());
            for step in steps {
                let now = Instant::now();
                match step {
                    Step::Insert { id, owner, identity, texts } => {
                        let who = Owner { identity: identity.map(|one| one.to_string().into()), ..peer(owner) };
                        let bytes = SESSION_BYTES + texts;
                        let expires = now + UNUSED_TIME_TO_LIVE;
                        let new = Plain { id, owner, identity, bytes, is_used: false, expires };
                        assert_eq!(ledger.insert(&id.to_string(), texts, &who, (), now), model.insert(new, now));
                    }
                    Step::Touch(id) | Step::Update(id, _) => {
                        let found = match step {
                            Step::Update(_, texts) => ledger.update(&id.to_string(), texts, (), now),
                            _ => ledger.touch(&id.to_string(), now).is_some(),
                        };
                        let place = model.all.iter().position(|one| one.id == id && now < one.expires);
                        assert_eq!(found, place.is_some());
                        if let Some(place) = place {
                            let mut one = model.all.remove(place);
                            (one.is_used, one.expires) = (true, now + LIFE);
                            if let Step::Update(_, texts) = step {
                                one.bytes = SESSION_BYTES + texts;
                            }
                            model.all.push(one);
                        }
                    }
                    Step::Remove(id) => {
                        let there = model.all.iter().any(|one| one.id == id && now < one.expires);
                        model.all.retain(|one| one.id != id);
                        assert_eq!(ledger.remove(&id.to_string(), now), there);
                    }
                    Step::Pass(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
                    Step::Reap => {
                        ledger.reap(Some(now));
                        model.all.retain(|one| now < one.expires);
                    }
                }
                let mut expected: Vec<String> = model.all.iter().map(|one| one.id.to_string()).collect();
                expected.sort();
                assert_eq!(ids(&ledger), expected);
                assert_eq!(ledger.all.bytes, model.bytes(|_| true));
                assert_eq!(ledger.index.len(), ledger.entries.len());
                assert_eq!(ledger.groups.len(), ledger.names.len());
                let largest: usize = ledger.largest.iter().map(|(bytes, _)| bytes).sum();
                assert_eq!((largest, largest), (ledger.all.used_bytes, model.bytes(|one| one.is_used)));
            }
        });
    }
}
