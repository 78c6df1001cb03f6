use proptest::prelude::*;

use super::*;

const LIFE: Duration = Duration::from_hours(2);
const FEW: SessionLimits =
    SessionLimits { total: 12 * SESSION_BYTES, per_identity: 4 * SESSION_BYTES, per_peer: 6 * SESSION_BYTES };

fn peer(number: u8) -> Owner {
    Owner { identity: None, peer: Some(IpAddr::from([10, 0, 0, number])) }
}

fn named(identity: &str, number: u8) -> Owner {
    Owner { identity: Some(identity.into()), ..peer(number) }
}

/// The sessions that are there, in the order of their names.
fn ids(ledger: &Ledger<()>) -> Vec<String> {
    let mut ids: Vec<String> = ledger.entries.values().map(|entry| entry.id.to_string()).collect();
    ids.sort();
    ids
}

fn open(ledger: &mut Ledger<()>, id: &str, owner: &Owner) {
    assert_eq!(ledger.insert(id, 0, owner, (), Instant::now()), Inserted::New);
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
    for id in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        open(&mut ledger, id, &peer(1));
        // What displaces the others is used itself, so that it does not go first.
        assert!(ledger.touch(id, Instant::now()).is_some());
        evicted.extend(ledger.reap(None).into_iter().map(|ended| ended.id.to_string()));
    }
    assert_eq!(evicted, ["c", "e", "f", "a", "d", "b", "1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn the_largest_peer_makes_room_when_all_of_them_reach_the_total() {
    let mut ledger = Ledger::new(LIFE, FEW);
    for (number, count) in [(1, 6), (2, 4), (3, 2)] {
        for one in 0..count {
            open(&mut ledger, &format!("{number}-{one}"), &peer(number));
        }
    }
    open(&mut ledger, "new", &peer(4));
    assert!(!ids(&ledger).contains(&"1-0".to_owned()) && ids(&ledger).contains(&"2-0".to_owned()));
    // A flood from ever new addresses displaces what it brought itself, one by one, and whoever has no more than that stays.
    for number in 5..200 {
        open(&mut ledger, &format!("flood-{number:03}"), &peer(number));
    }
    assert_eq!(ids(&ledger).len(), 12);
}

#[tokio::test(start_paused = true)]
async fn nothing_stays_of_sessions_that_are_gone() {
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
    assert!(ledger.groups.is_empty() && ledger.largest.is_empty() && ledger.bytes == 0);
}

/// What can be done to sessions.
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
        1 => (0..90_u64).prop_map(Step::Pass),
        1 => Just(Step::Reap),
    ];
    proptest::collection::vec(step, 0..120)
}

/// The same rules, written down plainly: a list in the order of use.
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
struct Model(Vec<Plain>);

impl Model {
    fn evict(&mut self, is_owned: impl Fn(&Plain) -> bool) {
        let unused = self.0.iter().position(|one| is_owned(one) && !one.is_used);
        let place = unused.or_else(|| self.0.iter().position(is_owned)).unwrap();
        self.0.remove(place);
    }

    fn bytes(&self, is_owned: impl Fn(&Plain) -> bool) -> usize {
        self.0.iter().filter(|one| is_owned(one)).map(|one| one.bytes).sum()
    }

    fn insert(&mut self, new: Plain, now: Instant) -> Inserted {
        if self.0.iter().any(|one| one.id == new.id && now < one.expires) {
            return Inserted::Existed;
        }
        self.0.retain(|one| one.id != new.id);
        if new.bytes > FEW.per_peer || new.identity.is_some() && new.bytes > FEW.per_identity {
            return Inserted::TooLarge;
        }
        while self.bytes(|one| one.owner == new.owner) + new.bytes > FEW.per_peer {
            self.evict(|one| one.owner == new.owner);
        }
        while new.identity.is_some() && self.bytes(|one| one.identity == new.identity) + new.bytes > FEW.per_identity {
            self.evict(|one| one.identity == new.identity);
        }
        self.0.push(new);
        Inserted::New
    }
}

proptest! {
    /// The queues and sums are those of the plain list, but for the choice among several peers, of which this has too few to matter.
    #[test]
    fn the_ledger_keeps_the_books(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            // So large that no two peers reach it together.
            let limits = SessionLimits { total: 100 * SESSION_BYTES, ..FEW };
            let (mut ledger, mut model) = (Ledger::new(LIFE, limits), Model::default());
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
                        let place = model.0.iter().position(|one| one.id == id && now < one.expires);
                        assert_eq!(found, place.is_some());
                        if let Some(place) = place {
                            let mut one = model.0.remove(place);
                            (one.is_used, one.expires) = (true, now + LIFE);
                            if let Step::Update(_, texts) = step {
                                one.bytes = SESSION_BYTES + texts;
                            }
                            model.0.push(one);
                        }
                    }
                    Step::Remove(id) => {
                        let there = model.0.iter().any(|one| one.id == id && now < one.expires);
                        model.0.retain(|one| one.id != id);
                        assert_eq!(ledger.remove(&id.to_string(), now), there);
                    }
                    Step::Pass(seconds) => tokio::time::advance(Duration::from_secs(seconds)).await,
                    Step::Reap => {
                        ledger.reap(Some(now));
                        model.0.retain(|one| now < one.expires);
                    }
                }
                let mut expected: Vec<String> = model.0.iter().map(|one| one.id.to_string()).collect();
                expected.sort();
                assert_eq!(ids(&ledger), expected);
                assert_eq!(ledger.bytes, model.bytes(|_| true));
                assert_eq!(ledger.index.len(), ledger.entries.len());
                assert_eq!(ledger.groups.len(), ledger.names.len());
                let largest: usize = ledger.largest.iter().map(|(bytes, _)| bytes).sum();
                assert_eq!(largest, ledger.bytes);
            }
        });
    }
}
